"""``millrace cost``: planned cost of an environment, and the AWS bill."""

from __future__ import annotations

import sys
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any

import typer

from millrace.cli.plan.plan_and_validate import old_prices_warning
from millrace.cli.plan.plan_tables import cost_table, costs_left_out_sentence
from millrace.cli.shared.console import figure_columns, plain_table, print_json, print_rich, word_columns
from millrace.cli.shared.options import AsJson, EnvironmentName
from millrace.config import load
from millrace.config.document.problems import wrong_option_error
from millrace.lifecycle.account.deployed_environment import connect_to_account
from millrace.lifecycle.account.real_cost import AwsBill, read_bill
from millrace.sizing import Plan, plan
from millrace.sizing.cost import HOURS
from millrace.sizing.costs.planned_and_billed_cost import PlannedAndPaid, planned_and_paid
from millrace.sizing.plan_as_plain_data import plan_as_plain_data as whole

_ITEMS = 5
"""Usage types shown for each subject; the others are summed."""


def cost_command(
    env: EnvironmentName,
    actual: Annotated[
        bool,
        typer.Option(
            "--actual", help="Show what AWS billed, by tag, beside the plan. Costs two cents (Cost Explorer)."
        ),
    ] = False,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="DATE",
            help="With --actual: first day. Default: the first of the last billed day's month.",
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            metavar="DATE",
            help="With --actual: day at whose beginning the costs end. Default: today.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the planned monthly cost of an environment; with --actual, compare it with the AWS bill.

    Needs the tags millrace:project, millrace:environment, millrace:job and millrace:stream activated for the bill.

    [bold]Examples[/bold]

      millrace cost --env prod

      millrace cost --env prod --actual --since 2026-11-01 --until 2026-11-15
    """
    environment = load(env)
    sized = plan(environment)
    notes = [note for note in (old_prices_warning(environment),) if note is not None]
    if not actual:
        for option, value in (("--since", since), ("--until", until)):
            if value is not None:
                raise wrong_option_error(
                    option, value, "only together with --actual, because a plan is always for one month"
                )
        _print_planned_cost(sized, notes, as_json=as_json)
        return
    today = datetime.now(UTC).date()
    end = today if until is None else _parse_day("--until", until)
    begin = first_day_of_last_billed_month(end) if since is None else _parse_day("--since", since)
    if begin >= end:
        raise wrong_option_error(
            "--since",
            begin.isoformat(),
            f"a day before {end.isoformat()}, the value of --until, which is exclusive",
        )
    # Of the environment's region: botocore knows the one endpoint of each partition, and China's is its own.
    bill = read_bill(connect_to_account(environment).client("ce"), environment, begin, end)
    paid = {subject: sum(usage.values()) for subject, usage in bill.usage.items()}
    result = planned_and_paid(sized, paid, bill.day_count)
    if as_json:
        print_json({**bill_document(bill, result), "warnings": notes})
    else:
        _print_planned_and_paid(sized, bill, result)
        typer.echo("".join(f"Note: {note}\n" for note in notes), nl=False)


def first_day_of_last_billed_month(end: date) -> date:
    """Return the first of the month that the day before ``end``, which is exclusive, belongs to: a bill has one day at least.

    Examples
    --------
    >>> [str(first_day_of_last_billed_month(date(2026, 12, day))) for day in (1, 2)]
    ['2026-11-01', '2026-12-01']
    """
    return (end - timedelta(days=1)).replace(day=1)


def _parse_day(option: str, value: str) -> date:
    try:
        return date.fromisoformat(value)
    except ValueError as error:
        raise wrong_option_error(option, value, "a date, such as 2026-11-01") from error


def bill_document(bill: AwsBill, lines: tuple[PlannedAndPaid, ...]) -> dict[str, Any]:
    """Return the comparison as an object that ``json.dumps`` takes.

    Returns
    -------
    dict
        ``version``, ``since``, ``until``, ``days``, ``estimated``, ``planned_usd``, ``paid_usd``, and ``subjects``:
        each with ``subject``, ``planned_usd``, ``paid_usd``, ``difference_usd`` and ``usage`` (USD by usage type).
    """
    return {
        "version": 1,
        "since": bill.since.isoformat(),
        "until": bill.until.isoformat(),
        "days": bill.day_count,
        "estimated": bill.estimated,
        "planned_usd": sum(each.planned for each in lines),
        "paid_usd": sum(each.paid for each in lines),
        "subjects": [
            {
                "subject": each.subject,
                "planned_usd": each.planned,
                "paid_usd": each.paid,
                "difference_usd": each.difference,
                "usage": dict(bill.usage.get(each.subject, {})),
            }
            for each in lines
        ],
    }


def _print_planned_cost(sized: Plan, notes: list[str], *, as_json: bool) -> None:
    document = whole(sized)
    if as_json:
        parts = {section: document[section] for section in ("streams", "clusters", "jobs")}
        costs = {name: {each: of["cost"] for each, of in members.items()} for name, members in parts.items()}
        print_json(
            {
                "version": 1,
                **costs,
                "shared": document["shared"],
                "total": document["total"],
                "left_out": document["left_out"],
                "warnings": notes,
            }
        )
        return

    print_rich(cost_table(sized, terminal=sys.stdout.isatty()))
    typer.echo(
        f"costs are for a month of {HOURS} hours, with the prices of {sized.prices.isoformat()}, "
        f"{sized.prices_of}"
    )
    typer.echo("\n".join((costs_left_out_sentence(sized), *(f"Note: {note}" for note in notes))))


def _print_planned_and_paid(sized: Plan, bill: AwsBill, compared: tuple[PlannedAndPaid, ...]) -> None:
    table = plain_table(*word_columns("for"), *figure_columns("planned", "paid", "difference"))
    for each in compared:
        table.add_row(
            each.subject, *(f"${usd:,.2f}" for usd in (each.planned, each.paid)), f"{each.difference:+,.2f}"
        )
        lines = list(bill.usage.get(each.subject, {}).items())
        for usage, usd in lines[:_ITEMS]:
            table.add_row(f"  {usage}", "", f"${usd:,.2f}", "")
        if len(lines) > _ITEMS:
            rest = sum(usd for _, usd in lines[_ITEMS:])
            table.add_row(f"  {len(lines) - _ITEMS} more", "", f"${rest:,.2f}", "")
    planned, paid = (sum(getattr(each, key) for each in compared) for key in ("planned", "paid"))
    table.add_row("total", f"${planned:,.2f}", f"${paid:,.2f}", f"{paid - planned:+,.2f}")
    state = ", which AWS still estimates" if bill.estimated else ""
    print_rich(
        f"{bill.since} to {bill.until}, {bill.day_count} days{state}; prices of the plan of {sized.prices.isoformat()}",
        table,
        "shared: all costs without the tag of a job or stream: Kafka clusters, storage, network, logs.",
    )
