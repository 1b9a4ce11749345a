"""Grants for the commands that deploy, start, stop and watch jobs."""

from __future__ import annotations

from aws_cdk import DefaultStackSynthesizer

from millrace.config.aws.iam_statements import FILES, NO_NARROWER, TAGGED, Grant, allow

from .. import engines
from ..environment_permission_scope import PermissionScope


def grants_to_assume_bootstrap_roles(scope: PermissionScope) -> list[Grant]:
    """Assume two roles of CDK's bootstrap; a third role, which the first one passes, deploys the templates."""
    roles = [
        scope.bootstrap_resource_name(DefaultStackSynthesizer.DEFAULT_DEPLOY_ROLE_ARN),
        scope.bootstrap_resource_name(DefaultStackSynthesizer.DEFAULT_FILE_ASSET_PUBLISHING_ROLE_ARN),
    ]
    version = scope.bootstrap_resource_name(
        DefaultStackSynthesizer.DEFAULT_BOOTSTRAP_STACK_VERSION_SSM_PARAMETER
    )
    return [
        allow("ActAsBootstrapRoles", ["sts:AssumeRole"], roles),
        allow("ReadBootstrapVersion", ["ssm:GetParameter"], [scope.names.arn("ssm", f"parameter{version}")]),
    ]


def grants_to_read_stacks(scope: PermissionScope) -> list[Grant]:
    """Read the deployed templates, outputs and launch documents."""
    assets = scope.bootstrap_resource_name(DefaultStackSynthesizer.DEFAULT_FILE_ASSETS_BUCKET_NAME)
    # Those that the file no longer has, too, which a deployment removes.
    stacks = [scope.names.arn("cloudformation", f"stack/{scope.names.prefix}-*")]
    documents = [f"{scope.names.s3_arn(assets)}/{scope.names.stack('job-*')}/*"]
    return [
        allow("FindStacks", ["cloudformation:ListStacks"], ["*"], why=NO_NARROWER),
        allow(
            "CompareStacks",
            ["cloudformation:DescribeStacks", "cloudformation:GetTemplate"],
            stacks,
            why="A stack's ARN ends with an id, and the stacks of removed jobs are in no file",
        ),
        allow("FindImports", ["cloudformation:ListImports"], ["*"], why=NO_NARROWER),
        allow("ReadLaunchDocuments", ["s3:GetObject"], documents, why=FILES),
    ]


def grants_to_keep_replaced_versions(scope: PermissionScope) -> list[Grant]:
    """Keep the version that a deployment replaces, and find it again."""
    names = scope.names
    places = [
        f"{scope.names.s3_arn(names.versions_url(job).removeprefix('s3://'))}/*" for job in scope.job_names
    ]
    digests = [names.arn("ssm", f"parameter{names.versions_parameter(job)}") for job in scope.job_names]
    return [
        allow("KeepVersions", ["s3:GetObject", "s3:PutObject"], places, why=FILES),
        allow("KeepDigests", ["ssm:GetParameterHistory", "ssm:PutParameter"], digests),
        *scope.s3_key_grants("Encrypt", ["kms:GenerateDataKey"], "data"),
    ]


def grants_to_stop_applications(scope: PermissionScope) -> list[Grant]:
    """Prepare engines for changes: an EMR Serverless application accepts them only when it is stopped."""
    return [
        grant
        for kind in scope.job_names_by_engine
        for grant in engines.deployed_engine(kind).grants_to_prepare_for_deployment(scope)
    ]


def grants_to_read_metrics(_: PermissionScope) -> list[Grant]:
    """Read the metrics of jobs and streams."""
    return [allow("ReadMetrics", ["cloudwatch:GetMetricData"], ["*"], why=NO_NARROWER)]


def grants_to_call_state_machines(scope: PermissionScope) -> list[Grant]:
    """Call a job's state machine, whose ARN is an output of its stack."""
    stacks = [
        scope.names.arn("cloudformation", f"stack/{scope.names.stack(f'job-{job}')}/*")
        for job in scope.job_names
    ]
    return [
        allow("FindMachines", ["cloudformation:DescribeStacks"], stacks, why="A stack's ARN ends with an id"),
        allow(
            "AskMachines",
            ["states:StartExecution"],
            [scope.names.arn("states", "stateMachine:*")],
            scope.condition_own_tags(),
            why=TAGGED,
        ),
        # Executions have the tags of their machine (Step Functions developer guide, "Creating tag-based IAM policies").
        allow(
            "FollowMachines",
            ["states:DescribeExecution", "states:GetExecutionHistory"],
            [scope.names.arn("states", "execution:*:*")],
            scope.condition_own_tags(),
            why=TAGGED,
        ),
        # Developer guide, "Data at rest encryption": who starts or reads an encrypted machine needs its key.
        *scope.key_grants("UseMachines", ["kms:Decrypt", "kms:GenerateDataKey"], "states", "alerts"),
    ]


def grants_to_watch_job_runs(scope: PermissionScope) -> list[Grant]:
    """Watch one run of a job with arguments of its own; its state machine starts it, and checks them."""
    return [
        grant
        for kind, jobs in scope.job_names_by_engine.items()
        for grant in engines.deployed_engine(kind).grants_to_watch_runs(scope, jobs)
    ]


def grants_to_read_log_lines(scope: PermissionScope) -> list[Grant]:
    """Read the lines of the jobs' runs."""
    groups = [
        scope.names.arn(
            "logs", f"log-group:/{scope.names.prefix}/jobs/{job}{ending.format(job=scope.names.job(job))}"
        )
        for job, settings in scope.names.environment.jobs.items()
        for ending in ("", ":*", *settings.log_group_endings)
    ]
    return [
        allow("FindLogGroups", ["logs:DescribeLogGroups"], ["*"], why=NO_NARROWER),
        allow(
            "ReadLines",
            ["logs:FilterLogEvents", "logs:GetLogEvents"],
            groups,
            why="Streams, and on Glue groups below the job's own, have names that are made at run time",
        ),
    ]
