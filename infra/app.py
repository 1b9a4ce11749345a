"""The CDK app of a project: load the environment, plan it, build its stacks, check and synthesise them.

A project's ``app.py`` calls :func:`main`; ``cdk`` runs it and passes ``-c env=NAME``.
"""

from __future__ import annotations

import os
import sys

from aws_cdk import App, Validations
from cdk_nag import AwsSolutionsChecks

from millrace.config import ConfigurationError, Environment, Names, environment_names, find_root, load
from millrace.config.aws.deployed_sizes_to_keep import DeployedSizes
from millrace.sizing import plan
from millrace.sizing.costs.endpoints_or_nat_gateways import needs_private_history_image

from .environment_stacks import build_stacks
from .errors import InfrastructureError


def main() -> None:
    """Synthesise the environment that ``cdk`` asks for, and exit with a status."""
    # CDK's own check of the templates only warns, and takes longer than everything else. cfn-lint knows more, and
    # `make check` runs it on every environment's templates (docs/design/checks.md#rules-for-templates).
    sys.exit(synthesise_and_return_status(App(builtin_cloud_formation_validation=False)))


def synthesise_and_return_status(app: App) -> int:
    """Synthesise the environment that the app's context names; return the exit status.

    The project is the nearest folder upwards that holds ``environments/``, as for every command.
    """
    root = find_root()
    try:
        environment = load(requested_environment_name(app), root=root)
        if deployed := app.node.try_get_context("deployed"):
            environment = environment.with_deployed_sizes(DeployedSizes.from_json(deployed))
        names, numbers = Names(environment, account_of_environment(environment)), plan(environment)
        build_stacks(app, names=names, plan=numbers, root=root)
        if numbers.network.egress.value != "nat" and needs_private_history_image(
            environment, numbers.network
        ):
            print(  # noqa: T201 - said before CloudFormation waits for tasks without an image
                "history server: its network cannot reach the public gallery of images, so the image must be "
                f"in this account before {names.stack('history')} is deployed for the first time. Pull it "
                "once, as docs/history-server.md says",
                file=sys.stderr,
            )
    except (ConfigurationError, InfrastructureError) as error:
        print(error, file=sys.stderr)  # noqa: T201 - the message is all that a user is to see
        return 2
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    try:
        app.synth()
    except RuntimeError as error:
        if not str(error).startswith("ValidationFailed"):
            raise
        print(error, file=sys.stderr)  # noqa: T201 - CDK has printed the findings themselves
        return 1
    return 0


def requested_environment_name(app: App) -> str:
    """Return the environment that was asked for.

    Raises
    ------
    InfrastructureError
        No environment was given; the message lists those that exist.
    """
    name = app.node.try_get_context("env")
    if not name:
        known = ", ".join(environment_names())
        raise InfrastructureError(f"the environment is missing: add -c env=NAME, with one of {known}")
    return str(name)


def account_of_environment(environment: Environment) -> str:
    """Return the account of an environment: its own, else that of the caller's credentials.

    Raises
    ------
    InfrastructureError
        Neither is known.
    """
    result = environment.account or os.environ.get("CDK_DEFAULT_ACCOUNT")
    if not result:
        raise InfrastructureError(
            f"the account is unknown: environment {environment.name} names none, and there are no AWS "
            f"credentials. Write `account:` into environments/{environment.name}.yaml, or sign in"
        )
    return result
