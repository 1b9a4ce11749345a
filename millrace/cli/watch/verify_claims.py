"""``millrace verify --claims``: checks of claims that only an AWS account can prove, and the report that a user sends back."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer
from rich.table import Column, Table
from rich.text import Text

from millrace.cli.plan import prices
from millrace.cli.plan.policies import policy_documents
from millrace.cli.shared.console import (
    FAILED,
    open_progress_display,
    print_rich,
    reporting_write_errors_as_wrong_option,
)
from millrace.config.model import Environment
from millrace.etl import __version__
from millrace.lifecycle.account.deployed_environment import DeployedEnvironment, connect_to_account
from millrace.sandbox.programs.toolchain import state_folder
from millrace.sizing.costs.endpoints_or_nat_gateways import called_services
from millrace.verify.account.check_claims import (
    ClaimAnswer,
    answers_document,
    check_claims,
    claims_report,
    verdict_counts_text,
)
from millrace.verify.account.check_input_and_answer import ClaimContext
from millrace.verify.environment_copy import VerificationCopy


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
        typer.echo(json.dumps(answers_document(answers), indent=2))
    else:
        headings = ("claim", "verdict", "result, or why it was not checked")
        shown = Table(*(Column(each, overflow="fold") for each in headings), box=None, pad_edge=False)
        for each in answers:
            shown.add_row(each.id, each.verdict, each.why)
        print_rich(Text(verdict_counts_text(answers)), shown)
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
