"""AWS account as a target of verifications.

Jobs are started and stopped by their state machines, as people do it. A run is killed without the machine, so that
the deployment's own means restart it: an event, a rule and the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from pyiceberg.catalog import Catalog

from millrace.config.aws.pagination import list_all
from millrace.config.aws.resource_names import Names
from millrace.config.engines import ended_run_states
from millrace.config.model import EmrJob, Environment, GlueJob, KinesisStream, MskCluster
from millrace.lifecycle.account import kafka_access
from millrace.lifecycle.account.deployed_environment import (
    DeployedEnvironment,
    NotDeployedError,
    ignoring_not_found_errors,
)
from millrace.lifecycle.account.kafka_access import Settings
from millrace.lifecycle.audits import query_audit as audit_job
from millrace.lifecycle.aws_error_messages import AwsError, translating_aws_errors
from millrace.lifecycle.deploy import stop_emr_application
from millrace.lifecycle.jobs.state_machine import Verb, execute_verb_for_answer
from millrace.lifecycle.preflight.account_checks import check_cdk_bootstrap_version
from millrace.lifecycle.preflight.run_preflight_checks import PreflightAccount
from millrace.sandbox.kill_and_restart_jobs import DrillError, DrillTimeLimits, wait_for_condition
from millrace.sandbox.programs import cdk
from millrace.sizing.plan_model import Plan
from millrace.verify.environment_copy import SHARDS, VerificationCopy
from millrace.verify.expected_and_actual_cost import BilledRun, billed_quantities, price_names_of_engine
from millrace.verify.removals.removal import kafka_admin_client
from millrace.verify.removals.removal_scope import all_stacks
from millrace.verify.target_base import ExpectedStepSeconds, VerificationTarget

POLL_SECONDS = 5.0

_BROKER_SECONDS = 15.0

PATIENCE = DrillTimeLimits(start=900, end=600, recover=1800, land=900, reshard=600, remove=2700, vanish=180)
EXPECTED = ExpectedStepSeconds(deploy=600, start=150, recover=240, reshard=60, remove=900)
"""Not measured; they are for an estimate only, and no result depends on them."""


@dataclass
class AwsAccountTarget(VerificationTarget):
    """An account, with the caller's credentials.

    Attributes
    ----------
    aws
        Clients, with the names of the verified environment.
    plan
        Plan of the copy; not necessary for a removal.
    """

    aws: DeployedEnvironment
    plan: Plan | None = None
    poll_seconds: float = POLL_SECONDS
    patience: DrillTimeLimits = PATIENCE
    paid: bool = True

    @property
    def where(self) -> str:
        """The place, for people."""
        return f"account {self.aws.names.account}, {self.aws.names.environment.region}"

    def client(self, service: str) -> Any:
        """Return a boto3 client."""
        return self.aws.client(service)

    def check_can_deploy(self, copy: VerificationCopy) -> None:
        """Send a free request to each service that is needed.

        Raises
        ------
        AwsError, NotDeployedError
            A service refuses, CDK is not bootstrapped, shards are used up, or brokers cannot be reached.
        """
        names = copy.names
        assert self.plan is not None
        with translating_aws_errors("cannot read the version of CDK's bootstrap"):
            (row,) = check_cdk_bootstrap_version(
                PreflightAccount(DeployedEnvironment(names, self.aws.client), self.plan)
            )
        if row.verdict != "ok":
            raise NotDeployedError(f"{row.found}: run `{row.command}`, with an administrator's credentials")
        with translating_aws_errors("cannot list the stacks"):
            stacks = (stack["StackName"] for stack in all_stacks(self.client))
            existing = [stack for stack in stacks if stack.startswith(f"{names.prefix}-")]
        if existing:
            raise AwsError(
                f"stack {existing[0]} already exists; repeat the command, which chooses another name"
            )
        with translating_aws_errors("cannot list tagged resources"):
            self.client("resourcegroupstaggingapi").get_resources(ResourcesPerPage=1)
        with translating_aws_errors("cannot list the log groups"):
            self.client("logs").describe_log_groups(limit=1)
        if any(isinstance(stream, KinesisStream) for stream in copy.environment.streams.values()):
            self._check_shard_quota(copy)
        self._check_engines_answer(copy)
        if copy.kafka_cluster is not None:
            self._check_brokers_answer(names, copy.kafka_cluster)

    def _check_engines_answer(self, copy: VerificationCopy) -> None:
        for engine in {job.engine for job in copy.environment.jobs.values()}:
            with translating_aws_errors(f"cannot list the jobs of {engine}"):
                if engine == "glue":
                    self.client("glue").get_jobs(MaxResults=1)
                else:
                    self.client("emr-serverless").list_applications(maxResults=1)

    def _check_shard_quota(self, copy: VerificationCopy) -> None:
        with translating_aws_errors("cannot read the shard quota"):
            limits = self.client("kinesis").describe_limits()
        left = limits["ShardLimit"] - limits["OpenShardCount"]
        if left < 2 * SHARDS:
            raise AwsError(
                f"{left} of {limits['ShardLimit']} shards are left in {copy.environment.region}, but "
                f"{2 * SHARDS} are needed: raise the quota in the Service Quotas console, or delete streams "
                "that are not needed"
            )

    def _check_brokers_answer(self, names: Names, cluster: str) -> None:
        settings = self.kafka_settings(names, cluster)
        try:
            kafka_admin_client(settings).list_topics(timeout=_BROKER_SECONDS)
        except KafkaException as error:
            raise AwsError(
                f"the brokers of {cluster} do not answer this machine ({error.args[0].str()}): run the command "
                "inside the VPC of the cluster, or leave Kafka streams out with --no-kafka"
            ) from error

    def deploy(self, copy: VerificationCopy, assembly: Path) -> None:
        """Deploy with CDK's command line."""
        cdk.deploy_stacks(assembly, tags=copy.tags)

    def catalog(self, names: Names) -> Catalog:
        """Open the Glue Data Catalog."""
        return audit_job.deployment_on_aws(DeployedEnvironment(names, self.aws.client)).catalog()

    def kafka_settings(self, names: Names, cluster: str) -> Settings:
        """Return the settings of its brokers, with the caller's credentials."""
        return kafka_access.cluster_connection_settings(names, cluster, self.client)

    def start(self, names: Names, job: str) -> None:
        """Start it by its state machine."""
        self._run_verb(names, job, "start")

    def stop(self, names: Names, job: str) -> None:
        """Stop it by its state machine."""
        self._run_verb(names, job, "stop")

    def _run_verb(self, names: Names, job: str, verb: Verb) -> None:
        aws = DeployedEnvironment(names, self.aws.client)
        execute_verb_for_answer(aws, job, verb, progress=lambda _: None, reason="verification")

    def kill_run(self, names: Names, job: str) -> None:
        """End its run: on EMR Serverless without a grace period, on Glue, which has none, by a normal stop.

        Raises
        ------
        AwsError, DrillError
            AWS refuses, there is no run, or it does not end.
        """
        if isinstance(names.environment.jobs[job], GlueJob):
            killed = self._kill_glue_runs(names.job(job))
        else:
            killed = self._kill_emr_runs(self._application_id(names, job))
        if not killed:
            raise DrillError(f"job {job} has no run that the verification could kill")

    def _kill_glue_runs(self, name: str) -> list[str]:
        """End the runs of a Glue job, and return their ids."""
        glue = self.client("glue")
        with translating_aws_errors(f"cannot read the runs of {name}"):
            live = [r["Id"] for r in self._glue_runs(name) if r["JobRunState"] not in ended_run_states.GLUE]
        if live:
            with translating_aws_errors(f"cannot stop the run of {name}"):
                glue.batch_stop_job_run(JobName=name, JobRunIds=live)
        self._wait_for_end(
            name,
            live,
            lambda run: (
                glue.get_job_run(JobName=name, RunId=run)["JobRun"]["JobRunState"] in ended_run_states.GLUE
            ),
        )
        return live

    def _kill_emr_runs(self, application: str) -> list[str]:
        """End the runs of an EMR Serverless application without a grace period, and return their ids."""
        emr, target = self.client("emr-serverless"), {"applicationId": application}
        with translating_aws_errors(f"cannot read the runs of {application}"):
            live = [
                run["id"]
                for run in self._emr_runs(application)
                if run["state"] not in ended_run_states.EMR_SERVERLESS
            ]
        with translating_aws_errors(f"cannot stop the run of {application}"):
            for run in live:
                # Refused if it is being cancelled, or has just ended (opensearch-project/sql#2577).
                with ignoring_not_found_errors("ValidationException"):
                    emr.cancel_job_run(**target, jobRunId=run, shutdownGracePeriodInSeconds=0)
        self._wait_for_end(
            application,
            live,
            lambda run: (
                emr.get_job_run(**target, jobRunId=run)["jobRun"]["state"] in ended_run_states.EMR_SERVERLESS
            ),
        )
        return live

    def _wait_for_end(self, owner: str, live: list[str], ended: Callable[[str], bool]) -> None:
        what = f"the end of {', '.join(live)} of {owner}"
        wait_for_condition(
            lambda: all(map(ended, live)), self.patience.end, what, poll_seconds=self.poll_seconds
        )

    def _glue_runs(self, name: str) -> Iterator[Mapping[str, Any]]:
        page = {"PageSize": 100}
        return list_all(self.client("glue"), "get_job_runs", "JobRuns", JobName=name, PaginationConfig=page)

    def _emr_runs(self, application: str) -> Iterator[Mapping[str, Any]]:
        emr = self.client("emr-serverless")
        return list_all(emr, "list_job_runs", "jobRuns", applicationId=application)

    def _application_id(self, names: Names, job: str) -> str:
        with translating_aws_errors(f"cannot read the stack of {job}"):
            return DeployedEnvironment(names, self.aws.client).job_outputs(job)["ApplicationId"]

    def end_all_runs(self, prefix: str, jobs: Mapping[str, Mapping[str, str]]) -> None:
        """Set the desired state of all jobs to stopped, end all runs, and stop the applications, to allow their deletion."""
        for job, resources in jobs.items():
            with translating_aws_errors(f"cannot set the desired state of {job} to stopped"):
                self.client("ssm").put_parameter(
                    Name=f"/{prefix}/jobs/{job}/wish", Type="String", Value="stopped", Overwrite=True
                )
            glue = resources.get("AWS::Glue::Job")
            application = resources.get("AWS::EMRServerless::Application")
            if glue:
                self._kill_glue_runs(glue)
            if application:
                self._kill_emr_runs(application)
                with translating_aws_errors(f"cannot stop application {application}"):
                    stop_emr_application(self.client("emr-serverless"), application, self.poll_seconds)

    def billed_runs(self, names: Names, job: str) -> list[BilledRun]:
        """Return the runs with the engine's counts; without counts, with the same seconds of all workers."""
        settings = names.environment.jobs[job]
        assert self.plan is not None, "runs are those of a copy"
        workers = self.plan.jobs[job].max_workers.value
        if isinstance(settings, GlueJob):
            with translating_aws_errors(f"cannot read the usage of the runs of {job}"):
                return [
                    _billed_glue_run(job, settings, workers, run) for run in self._glue_runs(names.job(job))
                ]
        assert isinstance(settings, EmrJob), "an engine of Millrace"
        application = self._application_id(names, job)
        emr = self.client("emr-serverless")
        with translating_aws_errors(f"cannot read the usage of the runs of {job}"):
            requests = [
                {"applicationId": application, "jobRunId": run["id"]} for run in self._emr_runs(application)
            ]
            return [
                _billed_emr_run(job, settings, workers, emr.get_job_run(**each)["jobRun"])
                for each in requests
            ]


def existing_cluster_sections_for_topic(environment: Environment) -> dict[str, dict[str, Any]]:
    """Return the clusters for a verification's topic: existing ones in an existing network."""
    return {
        name: cluster.model_dump(mode="json", exclude_none=True)
        for name, cluster in environment.kafka.items()
        if isinstance(cluster, MskCluster)
        and cluster.existing is not None
        and environment.network.vpc is not None
    }


def _billed_glue_run(job: str, settings: GlueJob, workers: int, run: Mapping[str, Any]) -> BilledRun:
    seconds = float(run.get("ExecutionTime") or 0) or _run_seconds(run, "StartedOn", "CompletedOn")
    counted = run.get("DPUSeconds")
    hours = (
        {price_names_of_engine(settings)[0]: counted / 3600}
        if counted
        else billed_quantities(settings, workers, seconds)
    )
    return BilledRun(job, run["Id"], seconds, hours, counted=bool(counted))


def _billed_emr_run(job: str, settings: EmrJob, workers: int, run: Mapping[str, Any]) -> BilledRun:
    seconds = _run_seconds(run, "createdAt", "updatedAt")
    counted, hours = run.get("billedResourceUtilization"), billed_quantities(settings, workers, seconds)
    if counted:
        vcpu, gib, *_ = price_names_of_engine(settings)
        hours = {vcpu: float(counted["vCPUHour"]), gib: float(counted["memoryGBHour"])}
    return BilledRun(job, run["jobRunId"], seconds, hours, counted=bool(counted))


def _run_seconds(run: Mapping[str, Any], begin: str, end: str) -> float:
    begun, ended = run.get(begin), run.get(end)
    if not isinstance(begun, datetime) or not isinstance(ended, datetime):
        return 0.0
    return max(0.0, (ended - begun).total_seconds())
