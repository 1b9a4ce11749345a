"""``millrace upgrade`` and ``millrace rollback``: one job to another version, and back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millrace.cli.lifecycle import AsJson, JobName, aws_told, check_job
from millrace.cli.plan import EnvironmentName
from millrace.config import load

if TYPE_CHECKING:
    from millrace.lifecycle.verbs import Aws

REFUSED = 2


class AnotherReleaseError(ValueError):
    """A launch document of another release of the core; says what this one does not read in it."""


Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Patience = Annotated[
    int,
    typer.Option(
        "--patience",
        metavar="SECONDS",
        min=60,
        help="How long the version that starts may take to get healthy.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the verbs to the command line."""
    app.command("upgrade", rich_help_panel="Run")(upgrade)
    app.command("rollback", rich_help_panel="Run")(rollback)


def upgrade(
    env: EnvironmentName,
    job: JobName,
    yes: Yes = False,
    as_json: AsJson = False,
    only_show: Annotated[bool, typer.Option("--diff", help="Show what would change, and stop.")] = False,
    patience: Patience = 900,
) -> None:
    """Bring one deployed job to the version of this folder, and back where it does not get well.

    Before anything is stopped, its checkpoints are held against the new version, and its tables against the new schemas.
    Then the job is drained, which waits for the batch at hand, deployed, started, and watched until batches end
    and records are young enough; one that fails or stalls is taken back to the version of before, on the same checkpoints.

    [bold]Examples[/bold]

      millrace upgrade --env prod flights --diff

      millrace upgrade --env prod flights --yes
    """
    from millrace.cli.deploy import as_document, assembled, cdk_deploy_stack, describe, tables_of
    from millrace.cli.tables import altered, refused
    from millrace.lifecycle import upgrade as steps
    from millrace.lifecycle.deploy import Changes

    environment = load(env)
    check_job(environment, job)
    with _told("upgrade"):
        aws, assembly, found = assembled(environment, env)
        change = steps.of_job(found, job)
        stack = aws.names.stack(f"job-{job}")
        own = Changes(
            tuple(each for each in found.stacks if each.stack == stack),
            (change,),
            {name: lines for name, lines in found.numbers.items() if name == job},
        )
        if not as_json:
            typer.echo("\n".join(describe(own)))
        if change.after == "start":
            raise steps.UpgradeError(
                f"{job} is not deployed yet: `millrace deploy --env {environment.name}` deploys it"
            )
        others = steps.shared(found, aws.names.prefix)
        if others:
            raise steps.UpgradeError(
                f"{', '.join(others)} would change too, and other jobs stand on that: "
                f"`millrace deploy --env {environment.name}`"
            )
        tables = tables_of(aws, assembly, own)
        told = [*refused(tables), *refusals(aws, assembly, [job])]
        if as_json:
            document = as_document(own) | {"tables": dict(tables.altered)}
            typer.echo(json.dumps(document, indent=2, ensure_ascii=False))
        else:
            typer.echo("\n".join(altered(tables)), nl=bool(tables.altered))
        if told:
            typer.echo("millrace upgrade: nothing was drained or deployed", err=True)
            typer.echo("\n".join(told), err=True)
            raise typer.Exit(REFUSED)
        if only_show or change.after == "leave":
            return
        _ask("Upgrade", yes)
        started = steps.upgrade(
            aws,
            own,
            job,
            assembly=assembly,
            cdk_deploy=cdk_deploy_stack,
            progress=lambda line: typer.echo(line, err=True),
            patience_seconds=patience,
        )
    typer.echo(f"upgraded {job}; {'it runs' if started else 'it stays stopped'}", err=as_json)


def rollback(env: EnvironmentName, job: JobName, yes: Yes = False, patience: Patience = 900) -> None:
    """Take one deployed job back to the version that was deployed before, on the same checkpoints.

    Every `millrace upgrade` and every `millrace deploy` that changes a job keeps what it replaces. A version that
    cannot go on from the checkpoints as they are now is refused before anything is stopped.

    [bold]Examples[/bold]

      millrace rollback --env prod flights --yes
    """
    from millrace.cli.deploy import assembled, cdk_deploy_stack
    from millrace.lifecycle import upgrade as steps

    environment = load(env)
    check_job(environment, job)
    with _told("rollback"):
        aws, assembly, _ = assembled(environment, env)
        version = steps.previous(aws, job)
        typer.echo(f"{job}: back to what was deployed until {version.at}: {version.document_url}", err=True)
        try:
            told = checkpoint_refusals(aws, job, version.document(aws.client("s3")))
        except AnotherReleaseError as error:
            told = []
            typer.echo(
                f"{job}: its checkpoints cannot be checked here: {error}. Its own core checks them before it reads anything, and "
                "ends with status 2 where it cannot go on from them; this command would then tell that it is not well",
                err=True,
            )
        if told:
            typer.echo("millrace rollback: nothing was drained or deployed", err=True)
            typer.echo("\n".join(told), err=True)
            raise typer.Exit(REFUSED)
        _ask("Roll back", yes)
        started = steps.roll_back(
            aws,
            version,
            assembly=assembly,
            cdk_deploy=cdk_deploy_stack,
            progress=lambda line: typer.echo(line, err=True),
            patience_seconds=patience,
        )
    typer.echo(f"rolled {job} back; {'it runs' if started else 'it stays stopped'}")


@contextmanager
def _told(verb: str) -> Iterator[None]:
    """Turn what AWS, CDK or a version that does not get well says into one message and exit status 1."""
    from millrace.lifecycle.deploy import DeployError
    from millrace.lifecycle.upgrade import UpgradeError
    from millrace.sandbox.process import SandboxError
    from millrace.sandbox.toolchain import ToolchainError

    with aws_told(verb):
        try:
            yield
        except (DeployError, SandboxError, ToolchainError, UpgradeError) as error:
            typer.echo(f"millrace {verb}: {error}", err=True)
            raise typer.Exit(1) from None


def refusals(aws: Aws, assembly: Path, jobs: list[str]) -> list[str]:
    """Say which checkpoints the versions of an assembly cannot go on from, a line each.

    Parameters
    ----------
    assembly
        The folder that ``cdk synth`` wrote.
    jobs
        Those that would be started again.
    """
    from millrace.lifecycle.deploy import document_of

    return [
        line for job in jobs for line in checkpoint_refusals(aws, job, document_of(aws.names, assembly, job))
    ]


def checkpoint_refusals(aws: Aws, job: str, document: Mapping[str, Any]) -> list[str]:
    """Say which of a job's checkpoints a launch document cannot go on from, by the core's own rules.

    Parameters
    ----------
    document
        That would start the job. What a transform groups by shows only when it is planned, at the start.

    Raises
    ------
    AnotherReleaseError
        It is of a release whose settings this one does not read.
    AwsError
        AWS refused a call.
    """
    import dataclasses

    from etl import manifest, settings
    from etl.strict import SettingsError
    from millrace.config.engines import SPARK
    from millrace.lifecycle.checkpoints import Checkpoints
    from millrace.lifecycle.problems import told
    from millrace.sandbox.toolchain import ROOT

    def schema_text(path: str) -> bytes | None:
        file = ROOT / path
        return file.read_bytes() if file.is_file() else None

    found: list[str] = []
    try:
        parsed = settings.parse(document["settings"])
        conf: Callable[[str], str | None] = document["spark"].get
        planned = SPARK[document["engine_version"]]
    except (KeyError, SettingsError) as error:
        raise AnotherReleaseError(f"its launch document is of another release ({error})") from error
    kept = Checkpoints(aws.client("s3"), aws.names, job)
    for query in parsed.queries:
        with told(f"reading the checkpoint of {job}/{query.name}"):
            text = kept.manifest(query.name)
        if text is None:
            continue
        where = f"{aws.names.checkpoints(job)}/{query.name}"
        try:
            old = manifest.read(text)
        except manifest.ManifestError as error:
            found.append(f"job {job}, query {query.name}: the manifest of the checkpoint {where}: {error}")
            continue
        # A sandbox in the place of an engine has written what its own connector reads.
        here = dataclasses.replace(parsed, engine="sandbox") if old.engine == "sandbox" else parsed
        spark = old.spark if old.engine == "sandbox" else planned
        new = manifest.of(here, query, spark=spark, conf=conf, schema_text=schema_text)
        wrong = manifest.refused(manifest.changes(old, new))
        if wrong:
            out = manifest.way_out(aws.names.environment.name, job, query.name, wrong)
            found.append(
                f"job {job}, query {query.name}: it cannot go on from the checkpoint {where}: "
                f"{'; '.join(map(str, wrong))}; {out}"
            )
    return found


def _ask(what: str, yes: bool) -> None:
    import sys

    if yes:
        return
    if not sys.stdin.isatty():
        typer.echo(f"millrace {what.lower()}: nobody to ask; repeat with --yes", err=True)
        raise typer.Exit(2)
    if not typer.confirm(f"{what} this?", err=True):
        raise typer.Exit(1)
