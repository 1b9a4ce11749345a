"""``millrace verify``: deploys, feeds, kills, reshards, checks and removes a small copy of an environment."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.cli.extras import require_sandbox_extra
from millrace.cli.shared.account_or_sandbox_connection import connect_account
from millrace.cli.shared.console import open_progress_display
from millrace.cli.shared.expected_failures import FAILED, confirm_or_exit
from millrace.cli.shared.options import AsJson, EnvironmentName
from millrace.cli.watch import verify_claims, verify_report
from millrace.config import find_root, load
from millrace.config.model import Environment, KafkaTopic
from millrace.lifecycle.account.deployed_environment import DeployedEnvironment
from millrace.lifecycle.aws_error_messages import AwsError
from millrace.sandbox.programs.toolchain import state_folder
from millrace.sizing import plan

if TYPE_CHECKING:
    from millrace.verify.environment_copy import VerificationCopy, VerificationSettings
    from millrace.verify.removals.removal import RemovalResult
    from millrace.verify.removals.removal_scope import VerificationScope
    from millrace.verify.verification_outcome import VerificationOutcome

_MOST_RECORDS, _MOST_PER_SECOND = 1_000_000, 1000
"""Limit of records per second: one stream's two shards take 2,000, and the copy is a small one."""


_TOPIC_SECONDS = 30.0


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
    if not claims:
        require_sandbox_extra()
    from millrace.verify.environment_copy import VerificationSettings

    environment = load(env)
    if clean and (in_sandbox or keep or show):
        raise typer.BadParameter("--clean can be combined with --env, --yes and --json only")
    if claims and (in_sandbox or keep or show or clean):
        raise typer.BadParameter("--claims can be combined with --env, --report and --json only")
    if report is not None and in_sandbox:
        raise typer.BadParameter("--report cannot be combined with --sandbox, which proves nothing about AWS")
    if keep and in_sandbox:
        raise typer.BadParameter(
            "--keep cannot be combined with --sandbox, whose servers end with the command"
        )
    settings = VerificationSettings(records, rate, kills, reshards, dirty, seed)
    try:
        with _sigterm_as_interrupt():
            if clean:
                status = _exit_status_after_removal(environment, yes=yes, as_json=as_json)
            elif claims:
                status = verify_claims.exit_status_after_claims_check(environment, report, as_json=as_json)
            else:
                status = _exit_status_after_verification(
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
        way = "" if in_sandbox else f"; to remove what is left, run: {_cleanup_command(environment)}"
        typer.echo(f"millrace verify: interrupted{way}", err=True)
        raise typer.Exit(FAILED) from None
    raise typer.Exit(status)


def _cleanup_command(environment: Environment) -> str:
    return f"millrace verify --clean --env {environment.name}"


def _exit_status_after_verification(
    environment: Environment,
    settings: VerificationSettings,
    *,
    in_sandbox: bool,
    without_kafka: bool,
    show_only: bool,
    keep: bool,
    report: Path | None,
    yes: bool,
    as_json: bool,
) -> int:
    from millrace.verify.environment_copy import random_verification_name, write_verification_environment
    from millrace.verify.expected_and_actual_cost import cost_items
    from millrace.verify.run import Verification, estimate_time_and_usage

    if in_sandbox:
        from millrace.sandbox.programs.localstack import ACCOUNT
        from millrace.verify import sandbox_target

        account, where, expected = ACCOUNT, "the sandbox on this machine", sandbox_target.EXPECTED
        clusters = sandbox_target.sandbox_cluster_sections(environment)
    else:
        from millrace.verify import aws_target

        aws = connect_account(environment)
        account, expected = aws.names.account, aws_target.EXPECTED
        where = f"account {account}, {environment.region}"
        clusters = aws_target.existing_cluster_sections_for_topic(environment)
    folder = state_folder() / "verify"
    copy = write_verification_environment(
        environment,
        random_verification_name(),
        account=account,
        settings=settings,
        root=find_root(),
        folder=folder,
        clusters=clusters,
        without_kafka=without_kafka,
    )
    try:
        sized = plan(copy.environment)
        left_out = _parts_not_verified_with_reasons(environment, copy, in_sandbox=in_sandbox)
        seconds, usage = estimate_time_and_usage(expected, copy, sized, settings)
        items = cost_items(copy.environment, sized, usage, expected=True)
        verify_report.print_planned_verification(
            where,
            copy,
            sized,
            settings,
            seconds,
            items,
            left_out,
            paid=not in_sandbox,
            as_json=as_json,
            all_of_it=show_only,
        )
        if show_only:
            return 0
        with (
            sandbox_target.open_sandbox_target(copy, sized)
            if in_sandbox
            else nullcontext(aws_target.AwsAccountTarget(aws, sized))
        ) as place:
            place.check_can_deploy(copy)
            confirm_or_exit("Deploy this copy, test it and remove it?", yes=yes or in_sandbox)
            with open_progress_display() as say:
                verification = Verification(
                    *(place, copy, sized, settings, folder, say),
                    keep=keep,
                    left_out=left_out,
                    observe=None
                    if in_sandbox
                    else partial(verify_claims.check_claims_of_copy, environment, place.client),
                )
                outcome = verification.run()
        if outcome.claims:
            verify_claims.write_claims_report(outcome.claims, environment, report)
        _print_outcome(outcome, None if in_sandbox else _cleanup_command(environment), as_json=as_json)
        return 0 if outcome.exact else FAILED
    finally:
        # Remaining resources are found by their tags; nothing needs the file.
        copy.file.unlink(missing_ok=True)


def _parts_not_verified_with_reasons(
    environment: Environment, copy: VerificationCopy, *, in_sandbox: bool
) -> tuple[str, ...]:
    reasons = []
    if copy.kafka_cluster is None and any(isinstance(s, KafkaTopic) for s in environment.streams.values()):
        reasons.append("Kafka: the engines of its jobs read Kinesis in this test")
    if in_sandbox:
        reasons.append("Glue and EMR Serverless themselves: local Spark runs the jobs")
    return tuple(reasons)


def _print_outcome(outcome: VerificationOutcome, cleanup: str | None, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(outcome.document(), indent=2))
    else:
        verify_report.print_outcome(outcome)
    for trouble in outcome.trouble:
        typer.echo(f"millrace verify: {trouble}", err=True)
    if cleanup is not None:
        _print_cleanup_instructions(outcome.remains, cleanup, stack_exists=outcome.kept)


def _print_cleanup_instructions(remains: Sequence[str], command: str, *, stack_exists: bool = False) -> None:
    """Say how to remove what is left: by the command while a stack exists that it can find, otherwise by hand."""
    from millrace.verify.removals.removal_scope import can_clean_command_find, removal_step

    if stack_exists or can_clean_command_find(remains):
        typer.echo(f"millrace verify: these resources are left; to remove them, run: {command}", err=True)
        return
    for each in remains:
        typer.echo(f"millrace verify: delete this resource by hand: {removal_step(each)}", err=True)


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C: the copy is removed first."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _exit_status_after_removal(environment: Environment, *, yes: bool, as_json: bool) -> int:
    """Remove what earlier verifications of an environment left; return the exit status."""
    from millrace.verify.removals.removal_scope import find_verifications

    aws = connect_account(environment)
    left = find_verifications(aws.client, environment)
    result = (
        f"{each.name}, of {each.verified_environment_name}: {', '.join(stacks)}"
        for each, stacks in left.items()
    )
    typer.echo("\n".join(result) or "nothing is left", err=as_json)
    confirm_or_exit(
        "Delete these stacks with their contents and the logs of their jobs?", yes=yes or not left
    )
    with open_progress_display() as say:
        done = {}
        for scope in left:
            done[scope.name] = _remove_verification(aws, scope, say)
    if as_json:
        typer.echo(json.dumps({name: asdict(removed) for name, removed in done.items()}, indent=2))
    for name, removed in done.items():
        text = f"still there: {', '.join(removed.remains)}" if removed.remains else "gone"
        typer.echo(f"{name}: {text}", err=as_json)
    for removed in done.values():
        _print_cleanup_instructions(removed.remains, _cleanup_command(environment))
    return FAILED if any(removed.remains for removed in done.values()) else 0


def _remove_verification(
    aws: DeployedEnvironment, scope: VerificationScope, say: Callable[[str], None]
) -> RemovalResult:
    from millrace.verify import aws_target
    from millrace.verify.removals.removal import remove_verification

    unknown = _topics_on_former_cluster(aws, scope)
    result = remove_verification(
        aws_target.AwsAccountTarget(aws),
        scope,
        say=say,
        topics=lambda: [] if unknown else _topics_left_after_deletion(aws, scope, say),
    )
    return replace(result, remains=(*unknown, *result.remains))


def _topics_on_former_cluster(aws: DeployedEnvironment, scope: VerificationScope) -> list[str]:
    """Return topics on a cluster that the environment no longer has; no stack would lead to them."""
    if not scope.cluster or scope.cluster in aws.names.environment.kafka:
        return []
    return [f"{_leftover_line_of_topics(scope)}, which is no longer in the environment"]


def _topics_left_after_deletion(
    aws: DeployedEnvironment, scope: VerificationScope, say: Callable[[str], None]
) -> list[str]:
    """Delete a verification's topics on a cluster that belongs to no stack; return those that stay."""
    from millrace.lifecycle.account import kafka_access
    from millrace.sandbox.kill_and_restart_jobs import DrillError
    from millrace.verify.removals.removal import delete_scope_topics

    if not scope.cluster:
        return []
    say(f"deleting {_leftover_line_of_topics(scope)}")
    try:
        delete_scope_topics(
            kafka_access.cluster_connection_settings(aws.names, scope.cluster, aws.client),
            scope,
            _TOPIC_SECONDS,
        )
    except (AwsError, DrillError) as error:
        return [f"{_leftover_line_of_topics(scope)} ({error})"]
    return []


def _leftover_line_of_topics(scope: VerificationScope) -> str:
    from millrace.verify.removals.removal_scope import TOPIC

    return f"{TOPIC}{scope.prefix}-.* on {scope.cluster}"
