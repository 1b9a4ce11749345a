"""``millrace policies``: IAM policies for people who deploy or operate an environment."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Annotated, Any

import typer

from millrace.cli.shared.console import print_json, reporting_write_errors_as_wrong_option
from millrace.cli.shared.options import EnvironmentName
from millrace.config import Environment, Finding, Names, load
from millrace.config.aws.regions import aws_partition_of_region
from millrace.config.document.problems import wrong_option_error
from millrace.etl.launch import typed_json
from millrace.infra.launch.launch_settings import job_settings
from millrace.lifecycle.account.catalog_columns import table_names_in_settings
from millrace.sandbox.programs.toolchain import node_bin_folder
from millrace.sizing import plan


def policies(
    env: EnvironmentName,
    repository: Annotated[
        str | None,
        typer.Option(
            metavar="OWNER/NAME",
            help="Also write trust.json: the trust of a role that workflows of this GitHub repository assume to deploy, in the "
            "repository's environment with the name of ENV.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            file_okay=False,
            help="Write the policies to files in this folder. Default: print them.",
        ),
    ] = None,
) -> None:
    """Write minimal IAM policies for the people who deploy an environment and for those who operate it.

    deployer.json allows preflight, deploy, upgrade, rollback, start and status: it assumes the roles of CDK's bootstrap and reads what
    these commands compare. operator.json allows status, start, stop, drain, logs, checkpoint, replay, bench, backfill,
    audit, split, schema check, history and cost. A policy longer than IAM allows is split into several files; attach all of
    them. Needs no AWS account.

    [bold]Examples[/bold]

      millrace policies --env prod

      millrace policies --env prod --out policies

      millrace policies --env prod --repository acme/streams --out policies
    """
    environment = load(env)
    result = policy_documents(environment)
    if repository is not None:
        result["trust.json"] = github_trust_policy(environment, repository)
    if out is None:
        print_json(result)
        return
    with reporting_write_errors_as_wrong_option("--out", out):
        out.mkdir(parents=True, exist_ok=True)
        # If a policy now needs fewer files, remove the others, so that nobody attaches them.
        for left in out.iterdir():
            if re.fullmatch(r"(deployer|operator)(-\d+)?\.json", left.name) and left.name not in result:
                left.unlink()
    for name, document in result.items():
        file = out / name
        with reporting_write_errors_as_wrong_option("--out", file):
            file.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        typer.echo(f"wrote {file}")


def github_trust_policy(environment: Environment, repository: str) -> dict[str, Any]:
    """Return the trust of a role for workflows of one repository in one of its environments.

    The subject names both, without a wildcard, so that neither another repository nor a job outside of the environment, whose
    branches and reviewers GitHub enforces, gets the role (GitHub documentation, "Configuring OpenID Connect in Amazon Web
    Services").

    Raises
    ------
    ConfigurationError
        The repository is not OWNER/NAME.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9._-]+", repository):
        raise wrong_option_error(
            "--repository", repository, "one repository as OWNER/NAME, without a wildcard"
        )
    issuer, where = "token.actions.githubusercontent.com", aws_partition_of_region(environment.region)
    statement = {
        "Sid": "DeployFromOneEnvironment",
        "Effect": "Allow",
        "Principal": {"Federated": f"arn:{where}:iam::{environment.account}:oidc-provider/{issuer}"},
        "Action": "sts:AssumeRoleWithWebIdentity",
        "Condition": {
            "StringEquals": {
                f"{issuer}:aud": "sts.amazonaws.com",
                f"{issuer}:sub": f"repo:{repository}:environment:{environment.name}",
            }
        },
    }
    return {"Version": "2012-10-17", "Statement": [statement]}


def policy_documents(environment: Environment) -> dict[str, dict[str, Any]]:
    """Return the policies of an environment.

    Returns
    -------
    dict
        Policy documents by file name: ``deployer.json``, or ``operator-1.json`` and so on if there are several.

    Raises
    ------
    ConfigurationError
        The environment names no account, which every ARN needs.
    ToolchainError
        There is no Node.
    """
    # The modules of CDK start Node when they are imported.
    os.environ["PATH"] = os.pathsep.join((str(node_bin_folder()), os.environ.get("PATH", "")))
    from millrace.infra.environment_permission_scope import PermissionScope
    from millrace.infra.permissions.permissions_by_command import ROLES, policy_documents_of_role

    if environment.account is None:
        allowed = (
            "twelve digits, because each ARN of the policies has the account; write account: into the environment file "
            "(`aws sts get-caller-identity --query Account` prints it)"
        )
        raise environment.value_locations.error_of_findings(
            [Finding(("account",), value="(none)", allowed=allowed)]
        )
    names = Names(environment, environment.account)
    sized = plan(environment)
    settings = [
        typed_json.to_json_value(job_settings(environment, job, names)) for job in sized.jobs.values()
    ]
    scope = PermissionScope(names, table_names_in_settings(settings))
    result: dict[str, dict[str, Any]] = {}
    for role in ROLES:
        parts = policy_documents_of_role(scope, role)
        for number, part in enumerate(parts, start=1):
            result[f"{role}.json" if len(parts) == 1 else f"{role}-{number}.json"] = part
    return result
