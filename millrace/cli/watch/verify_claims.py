"""``millrace verify --claims``: checks of claims that only an AWS account can prove, and the report that a user sends back."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.table import Column, Table
from rich.text import Text

from millrace.cli.plan import prices
from millrace.cli.plan.policies import documents
from millrace.cli.shared.connections import connect_account
from millrace.cli.shared.console import progress, show
from millrace.cli.shared.output_files import report_write_errors
from millrace.config.model import Environment
from millrace.sizing.costs.network_plan import called_services

if TYPE_CHECKING:
    from millrace.lifecycle.jobs.state_machine import DeployedEnvironment
    from millrace.verify.account.check_claims import ClaimAnswer
    from millrace.verify.account.claim_context import ClaimContext
    from millrace.verify.environment_copy import VerificationCopy

REFUTED = 1


def run(environment: Environment, report: Path | None, *, as_json: bool) -> int:
    """Check the claims for a deployed environment and print the verdicts; return the exit status.

    Raises
    ------
    AwsError
        There are no credentials, or they are of another account.
    """
    from millrace.verify.account.check_claims import answers_document, check_claims, verdict_counts

    aws = connect_account(environment)
    with progress() as say:
        answers = check_claims(_claim_context(environment, aws), say)
    if as_json:
        typer.echo(json.dumps(answers_document(answers), indent=2))
    else:
        headings = ("claim", "verdict", "result, or why it was not checked")
        shown = Table(*(Column(each, overflow="fold") for each in headings), box=None, pad_edge=False)
        for each in answers:
            shown.add_row(each.id, each.verdict, each.why)
        show(Text(verdict_counts(answers)), shown)
    write_report(answers, environment, report)
    return REFUTED if any(each.verdict == "refuted" for each in answers) else 0


def claims_observer(
    environment: Environment, client: Callable[[str], Any]
) -> Callable[[VerificationCopy], tuple[ClaimAnswer, ...]]:
    """Return a function that checks the claims for a copy of an environment while it is deployed."""
    from millrace.lifecycle.jobs.state_machine import DeployedEnvironment
    from millrace.verify.account.check_claims import check_claims

    def observe(copy: VerificationCopy) -> tuple[ClaimAnswer, ...]:
        return check_claims(_claim_context(environment, DeployedEnvironment(copy.names, client)))

    return observe


def write_report(answers: tuple[ClaimAnswer, ...], environment: Environment, report: Path | None) -> None:
    """Write the report that a user sends back, and say where it is."""
    from millrace.etl import __version__
    from millrace.sandbox.programs.toolchain import state_folder
    from millrace.verify.account import check_claims

    file = report or state_folder() / "verify" / f"claims-{environment.name}.md"
    read = datetime.now(UTC).date().isoformat()
    with report_write_errors("--report", file):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(
            check_claims.claims_report(answers, version=__version__, region=environment.region, read=read),
            encoding="utf-8",
        )
    typer.echo(
        f"claims: {check_claims.verdict_counts(answers)}; wrote {file}: please send this file back (docs/unproved.md)",
        err=True,
    )


def _claim_context(environment: Environment, aws: DeployedEnvironment) -> ClaimContext:
    from millrace.verify.account.claim_context import ClaimContext

    return ClaimContext(
        aws,
        called_services(environment),
        {} if environment.account is None else documents(environment),
        prices.price_list(environment.region),
        datetime.now(UTC).date(),
    )
