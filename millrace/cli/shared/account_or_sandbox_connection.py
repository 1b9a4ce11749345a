"""Connections of commands to an environment's AWS account, or to its running sandbox."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millrace.config import Environment, Names
from millrace.lifecycle.account.deployed_environment import DeployedEnvironment, connect_to_account

if TYPE_CHECKING:
    from millrace.lifecycle.audits.query_audit import AuditedDeployment


def connect_account(environment: Environment) -> DeployedEnvironment:
    """Connect to the account of an environment; if the file names none, to that of the credentials."""
    return connect_to_account(Names(environment, environment.account or ""))


def connect_sandbox_or_account(environment: Environment) -> AuditedDeployment:
    """Connect to the running sandbox of an environment, or to its account if there is none."""
    return sandbox_or_account_with_connection(environment)[0]


def sandbox_or_account_with_connection(
    environment: Environment,
) -> tuple[AuditedDeployment, DeployedEnvironment | None]:
    """Return what :func:`connect_sandbox_or_account` does, and the connection to the account; None for the sandbox."""
    from millrace.lifecycle.audits.query_audit import deployment_on_aws
    from millrace.sandbox.operate_running_sandbox import running_sandbox_deployment

    if (sandbox := running_sandbox_deployment(environment)) is not None:
        return sandbox, None
    aws = connect_account(environment)
    return deployment_on_aws(aws), aws
