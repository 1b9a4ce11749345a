"""``millrace verify``: deploys, feeds, kills, reshards, checks and removes a small copy of an environment."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from millrace.cli.extras import require_sandbox_extra
from millrace.cli.shared.console import FAILED
from millrace.cli.shared.options import AsJson, EnvironmentName, refuse_options_if
from millrace.config import load

_MOST_RECORDS, _MOST_PER_SECOND = 1_000_000, 1000
"""Limit of records per second: one stream's two shards take 2,000, and the copy is a small one."""


def verify(
    env: EnvironmentName,
    records: Annotated[
        int,
        typer.Option(
            min=100,
            max=_MOST_RECORDS,
            help="Smallest number of records for each stream; more are sent while kills and reshards take longer.",
        ),
    ] = 5000,
    rate: Annotated[
        float, typer.Option(min=1, max=_MOST_PER_SECOND, help="Records per second that each stream gets.")
    ] = 50.0,
    kills: Annotated[
        int, typer.Option(min=0, max=15, help="Number of kills of each job, without a grace period.")
    ] = 3,
    reshards: Annotated[
        int,
        typer.Option(min=0, max=10, help="Number of reshards of the Kinesis stream; AWS allows ten a day."),
    ] = 2,
    dirty: Annotated[
        float, typer.Option(min=0, max=1, help="Share of records that no query can decode, from 0 to 1.")
    ] = 0.02,
    seed: Annotated[int, typer.Option(help="The same seed gives the same records.")] = 1,
    without_kafka: Annotated[
        bool, typer.Option("--no-kafka", help="Do not test Kafka: all engines read Kinesis.")
    ] = False,
    in_sandbox: Annotated[
        bool,
        typer.Option(
            "--sandbox", help="Test on this machine, with LocalStack and local Spark; costs nothing."
        ),
    ] = False,
    show: Annotated[
        bool, typer.Option("--show", help="Show what would be deployed and what it costs, and stop.")
    ] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Do not remove the copy at the end.")] = False,
    clean: Annotated[
        bool, typer.Option("--clean", help="Remove what earlier verifications of ENV left, and stop.")
    ] = False,
    claims: Annotated[
        bool,
        typer.Option(
            "--claims",
            help="Deploy nothing: check in the account the claims that only an account can prove (docs/unproved.md).",
        ),
    ] = False,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            dir_okay=False,
            help="Markdown file for the results of --claims. Default: .millrace/verify/claims-ENV.md.",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    as_json: AsJson = False,
) -> None:
    """Test an environment on AWS: deploy a small copy, kill and reshard it, check every record, remove it.

    Deploys a small copy of the environment, with its own name and tag: the same region, network settings, keys and versions,
    one stream of each kind, one job on each engine in use. Sends records, kills the runs, reshards the stream, compares the
    tables with what was sent, removes the copy, and shows what it cost. Shows first what it will deploy and what that costs.
    Exit status 0: every record is in its tables once. 1: a record is not, or a step failed. 2: your mistake; nothing was made.

    With --claims, deploys nothing and only reads: checks for the deployed environment what cannot be proved on a laptop
    (docs/unproved.md). Exit status 1 if a claim is refuted.

    [bold]Examples[/bold]

      millrace verify --env dev --show

      millrace verify --env prod --no-kafka --kills 5

      millrace verify --env local --sandbox --yes
    """
    require_sandbox_extra()
    from millrace.cli.watch import run_verification
    from millrace.verify.environment_copy import VerificationSettings

    environment = load(env)
    others = in_sandbox or keep or show
    refuse_options_if(
        (clean and others, "--clean can be combined with --env, --yes and --json only"),
        (claims and (others or clean), "--claims can be combined with --env, --report and --json only"),
        (
            in_sandbox and report is not None,
            "--report cannot be combined with --sandbox, which proves nothing about AWS",
        ),
        (in_sandbox and keep, "--keep cannot be combined with --sandbox, whose servers end with the command"),
    )
    settings = VerificationSettings(records, rate, kills, reshards, dirty, seed)
    try:
        with _sigterm_as_interrupt():
            if clean:
                status = run_verification.exit_status_after_removal(environment, yes=yes, as_json=as_json)
            elif claims:
                status = run_verification.exit_status_after_claims_check(environment, report, as_json=as_json)
            else:
                status = run_verification.exit_status_after_verification(
                    environment,
                    settings,
                    in_sandbox=in_sandbox,
                    without_kafka=without_kafka,
                    show_only=show,
                    keep=keep,
                    report=report,
                    yes=yes,
                    as_json=as_json,
                )
    except KeyboardInterrupt:
        way = (
            ""
            if in_sandbox
            else f"; to remove what is left, run: {run_verification.cleanup_command(environment)}"
        )
        typer.echo(f"millrace verify: interrupted{way}", err=True)
        raise typer.Exit(FAILED) from None
    raise typer.Exit(status)


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C: the copy is removed first."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
