"""Steps of ``millrace verify``: the copy's deployment, test and removal, and the check of claims that only an account can prove.

What this module imports needs the extras; so the command imports it late, and all that is below it imports normally.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import typer
from rich.table import Column, Table
from rich.text import Text

from millrace.cli.plan import prices
from millrace.cli.plan.policies import policy_documents
from millrace.cli.shared.console import (
    FAILED,
    confirm_or_exit,
    open_progress_display,
    print_json,
    print_rich,
    reporting_write_errors_as_wrong_option,
    table_with_rows,
)
from millrace.cli.watch import verify_report
from millrace.config import find_root
from millrace.config.model import Environment, KafkaTopic
from millrace.etl import __version__
from millrace.lifecycle.account.deployed_environment import DeployedEnvironment, connect_to_account
from millrace.sandbox.programs.localstack import ACCOUNT
from millrace.sandbox.programs.toolchain import state_folder
from millrace.sizing import plan
from millrace.sizing.costs.endpoints_or_nat_gateways import called_services
from millrace.verify import aws_target, sandbox_target
from millrace.verify.account.check_claims import (
    ClaimAnswer,
    answers_document,
    check_claims,
    claims_report,
    verdict_counts_text,
)
from millrace.verify.account.check_input_and_answer import ClaimContext
from millrace.verify.environment_copy import (
    VerificationCopy,
    VerificationSettings,
    random_verification_name,
    write_verification_environment,
)
from millrace.verify.expected_and_actual_cost import cost_items
from millrace.verify.removals.removal import remove_verification
from millrace.verify.removals.removal_scope import (
    can_clean_command_find,
    find_verifications,
)
from millrace.verify.run import Verification, estimate_time_and_usage
from millrace.verify.verification_outcome import VerificationOutcome


def cleanup_command(environment: Environment) -> str:
    """Return the command that removes what verifications of an environment left."""
    return f"millrace verify --clean --env {environment.name}"


def exit_status_after_verification(
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
    """Deploy the copy, test it and remove it, or only show it; return the exit status."""
    if in_sandbox:
        account, where, expected = ACCOUNT, "the sandbox on this machine", sandbox_target.EXPECTED
        clusters = sandbox_target.sandbox_cluster_sections(environment)
    else:
        aws = connect_to_account(environment)
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
                    observe=None if in_sandbox else partial(check_claims_of_copy, environment, place.client),
                )
                outcome = verification.run()
        if outcome.claims:
            write_claims_report(outcome.claims, environment, report)
        _print_outcome(outcome, None if in_sandbox else cleanup_command(environment), as_json=as_json)
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
        print_json(outcome.document())
    else:
        verify_report.print_outcome(outcome)
    for trouble in outcome.trouble:
        typer.echo(f"millrace verify: {trouble}", err=True)
    if cleanup is not None:
        _print_cleanup_instructions(outcome.remains, cleanup, stack_exists=outcome.kept)


def _print_cleanup_instructions(remains: Sequence[str], command: str, *, stack_exists: bool = False) -> None:
    """Say how to remove what is left: by the command while a stack exists that it can find, otherwise by hand."""
    if stack_exists or can_clean_command_find(remains):
        typer.echo(f"millrace verify: these resources are left; to remove them, run: {command}", err=True)
        return
    for each in remains:
        typer.echo(f"millrace verify: delete this resource by hand: {each}", err=True)


def exit_status_after_removal(environment: Environment, *, yes: bool, as_json: bool) -> int:
    """Remove what earlier verifications of an environment left; return the exit status."""
    aws = connect_to_account(environment)
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
        account = aws_target.AwsAccountTarget(aws)
        done = {scope.name: remove_verification(account, scope, say=say) for scope in left}
    if as_json:
        print_json({name: asdict(removed) for name, removed in done.items()})
    for name, removed in done.items():
        text = f"still there: {', '.join(removed.remains)}" if removed.remains else "gone"
        typer.echo(f"{name}: {text}", err=as_json)
    for removed in done.values():
        _print_cleanup_instructions(removed.remains, cleanup_command(environment))
    return FAILED if any(removed.remains for removed in done.values()) else 0


def exit_status_after_claims_check(environment: Environment, report: Path | None, *, as_json: bool) -> int:
    """Check the claims for a deployed environment and print the verdicts; return the exit status.

    Raises
    ------
    AwsError
        There are no credentials, or they are of another account.
    """
    aws = connect_to_account(environment)
    with open_progress_display() as say:
        answers = check_claims(_claim_context(environment, aws), say)
    if as_json:
        print_json(answers_document(answers))
    else:
        headings = ("claim", "verdict", "result, or why it was not checked")
        shown = Table(*(Column(each, overflow="fold") for each in headings), box=None, pad_edge=False)
        rows = ((each.id, each.verdict, each.why) for each in answers)
        print_rich(Text(verdict_counts_text(answers)), table_with_rows(shown, rows))
    write_claims_report(answers, environment, report)
    return FAILED if any(each.verdict == "refuted" for each in answers) else 0


def check_claims_of_copy(
    environment: Environment, client: Callable[[str], Any], copy: VerificationCopy
) -> tuple[ClaimAnswer, ...]:
    """Check the claims for a copy of an environment while it is deployed."""
    return check_claims(_claim_context(environment, DeployedEnvironment(copy.names, client)))


def write_claims_report(
    answers: tuple[ClaimAnswer, ...], environment: Environment, report: Path | None
) -> None:
    """Write the report that a user sends back, and say where it is."""
    file = report or state_folder() / "verify" / f"claims-{environment.name}.md"
    read = datetime.now(UTC).date().isoformat()
    with reporting_write_errors_as_wrong_option("--report", file):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(
            claims_report(answers, version=__version__, region=environment.region, read=read),
            encoding="utf-8",
        )
    typer.echo(
        f"claims: {verdict_counts_text(answers)}; wrote {file}: please send this file back (docs/unproved.md)",
        err=True,
    )


def _claim_context(environment: Environment, aws: DeployedEnvironment) -> ClaimContext:
    return ClaimContext(
        aws.names,
        aws.client,
        called_services(environment),
        {} if environment.account is None else policy_documents(environment),
        prices.price_list_client(environment.region),
        datetime.now(UTC).date(),
    )
