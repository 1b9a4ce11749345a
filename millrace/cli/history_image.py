"""``millrace history-image``: the history server's image into the account's own registry, without Docker."""

from __future__ import annotations

from pathlib import Path

import typer

from millrace.cli.lifecycle import aws_told
from millrace.cli.plan import EnvironmentName

NEEDS_NONE = 2


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("history-image", rich_help_panel="Run")(history_image)


def history_image(env: EnvironmentName) -> None:
    """Put the history server's image into the account's registry, before the server is first deployed.

    For an environment whose network has no NAT gateways: its tasks cannot reach AWS's public gallery. Deploys the stack of the
    pull-through cache, and asks the registry for the image, layer by layer, which fills the cache; run it where there is a way
    to the internet. It needs no Docker, keeps nothing here, and may be repeated.

    Exit status: 0; 1 if AWS refused or failed; 2 where the environment needs no such image.

    [bold]Examples[/bold]

      millrace history-image --env dev
    """
    from millrace.cli import verify_report
    from millrace.config import load
    from millrace.config.names import Names
    from millrace.lifecycle import history_image as image
    from millrace.lifecycle.deployed import outputs
    from millrace.lifecycle.problems import told
    from millrace.lifecycle.verbs import connect
    from millrace.sizing import plan
    from millrace.sizing.network import needs_private_image

    environment = load(env)
    if not needs_private_image(environment, plan(environment).network):
        typer.echo(f"millrace history-image: environment {environment.name} needs none", err=True)
        raise typer.Exit(NEEDS_NONE)
    with aws_told("history-image"):
        aws = connect(Names(environment, environment.account or ""))
        stack = aws.names.stack("history-image")
        _deploy(env, aws.names.account, stack)
        with told(f"reading stack {stack}"):
            uri = outputs(aws.client("cloudformation"), stack)["ImageUri"]
        host, _, path = uri.partition("/")
        repository, _, tag = path.rpartition(":")
        registry = image.private(aws.client("ecr"), host)
        with verify_report.progress() as say:
            size = image.pull(registry, repository, tag, say)
    typer.echo(f"{uri}: {size / 1e6:,.0f} MB pulled; deploy the environment now")


def _deploy(env: str, account: str, stack: str) -> None:
    from tempfile import TemporaryDirectory

    from millrace.cli.deploy import cdk_deploy_stack, synthesise
    from millrace.lifecycle.deploy import DeployError
    from millrace.lifecycle.problems import AwsError

    with TemporaryDirectory(prefix="millrace-") as scratch:
        try:
            synthesise(env, account, Path(scratch) / "cdk.out")
            cdk_deploy_stack(Path(scratch) / "cdk.out", stack)
        except DeployError as error:
            raise AwsError(str(error)) from error
