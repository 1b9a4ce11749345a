"""``millrace history-image``: copies the history server's image to the account's own registry, without Docker."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import typer

from millrace.cli.run.cdk_assembly import cdk_deploy_stack, synthesise
from millrace.cli.shared.connections import connect_account
from millrace.cli.shared.console import progress
from millrace.cli.shared.expected_failures import RefusedError
from millrace.cli.shared.options import EnvironmentName
from millrace.config import load
from millrace.sizing import plan
from millrace.sizing.network import needs_private_image


def history_image(env: EnvironmentName) -> None:
    """Pull the history server's image into the account's registry; needed once, before a deployment without NAT.

    Without NAT gateways the server's tasks cannot reach the public registry of AWS. This command deploys the stack of the
    pull-through cache and requests the image layer by layer, which fills the cache. Run it on a machine with access to the
    internet. It needs no Docker, leaves no files here, and may be repeated.

    Exit status: 0; 1 if AWS refused or failed; 2 if the environment needs no such image.

    [bold]Examples[/bold]

      millrace history-image --env dev
    """
    from millrace.lifecycle import history_image as image
    from millrace.lifecycle.deployed import outputs
    from millrace.lifecycle.problems import translate_aws_errors

    environment = load(env)
    if not needs_private_image(environment, plan(environment).network):
        raise RefusedError(
            f"environment {environment.name} needs no image in its own registry: its network reaches the public registry"
        )
    aws = connect_account(environment)
    stack = aws.names.stack("history-image")
    with TemporaryDirectory(prefix="millrace-") as scratch:
        synthesise(env, aws.names.account, Path(scratch) / "cdk.out")
        cdk_deploy_stack(Path(scratch) / "cdk.out", stack)
    with translate_aws_errors(f"reading stack {stack}"):
        uri = outputs(aws.client("cloudformation"), stack)["ImageUri"]
    host, _, path = uri.partition("/")
    repository, _, tag = path.rpartition(":")
    registry = image.account_registry(aws.client("ecr"), host)
    with progress() as say:
        size = image.pull_image(registry, repository, tag, say)
    typer.echo(f"{uri}: {size / 1e6:,.0f} MB pulled; now deploy the environment")
