"""The CDK app: load the environment, plan it, build its stacks, synthesise.

Run by ``cdk``, which passes ``-c env=NAME``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from aws_cdk import App

from infra.deployment import build
from infra.errors import InfrastructureError
from millrace.config import ConfigurationError, load
from millrace.config.model import Environment
from millrace.config.names import Names
from millrace.sizing import plan

ROOT = Path(__file__).resolve().parent


def main() -> int:
    """Synthesise the environment that the context names; return the exit status."""
    app = App()
    try:
        environment = load(requested(app))
        build(app, names=Names(environment, account(environment)), plan=plan(environment), root=ROOT)
    except (ConfigurationError, InfrastructureError) as error:
        print(error, file=sys.stderr)  # noqa: T201  # the message is all that a user is to see
        return 2
    app.synth()
    return 0


def requested(app: App) -> str:
    """Return the environment that was asked for.

    Raises
    ------
    InfrastructureError
        None was; the message lists those there are.
    """
    name = app.node.try_get_context("env")
    if not name:
        known = sorted(file.stem for file in (ROOT / "environments").glob("*.yaml") if file.stem != "base")
        raise InfrastructureError(f"which environment? Add -c env=NAME; there are {', '.join(known)}")
    return str(name)


def account(environment: Environment) -> str:
    """Return the account of an environment: its own, else that of the caller's credentials.

    Raises
    ------
    InfrastructureError
        Neither is known.
    """
    found = environment.account or os.environ.get("CDK_DEFAULT_ACCOUNT")
    if not found:
        raise InfrastructureError(
            f"environment {environment.name} names no account and no AWS credentials were found: "
            f"write `account:` into environments/{environment.name}.yaml or sign in first"
        )
    return found


if __name__ == "__main__":
    sys.exit(main())
