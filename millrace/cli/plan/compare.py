"""``millrace compare``: this plan beside other engines, versions and services of AWS."""

from __future__ import annotations

from dataclasses import asdict

import typer
from rich.markup import escape

from millrace.cli.shared.console import (
    figure_columns,
    print_json,
    print_table_with_trailing_texts,
    word_columns,
)
from millrace.cli.shared.html_pages import check_page_is_writable, html_page, write_page
from millrace.cli.shared.options import AsJson, EnvironmentName, HtmlPage
from millrace.config import ConfigurationError, Environment, load
from millrace.config.engines import KINDS
from millrace.sizing import plan, total_cost
from millrace.sizing.alternatives.other_engines_and_services import alternatives
from millrace.sizing.cost_saving_moves import environment_on_engine_or_none
from millrace.sizing.readable_numbers import dollars


def compare(
    env: EnvironmentName,
    as_json: AsJson = False,
    html: HtmlPage = None,
) -> None:
    """Compare the plan with the same work on each engine and version, and with services of AWS that need no job.

    Dollars a month with streams and storage, each with its date and source. Unknown dollars take no part in the ranking.

    [bold]Examples[/bold]

      millrace compare --env prod

      millrace compare --env prod --json | jq '.[0].usd'
    """
    environment = load(env)
    check_page_is_writable(html)
    result = alternatives(environment, plan(environment), _dollars_by_engine(environment))
    document = [asdict(each) for each in result]
    if html is not None:
        title = f"{environment.project}-{environment.name}: other ways"
        write_page(html, html_page("compare", title, {"ways": document}))
        typer.echo(f"wrote {html}", err=as_json)
    if as_json:
        print_json(document)
        return
    rows = [
        [
            *map(
                escape,
                (
                    each.name,
                    "unknown" if each.usd is None else dollars(each.usd),
                    each.price,
                    each.lacks,
                    "; ".join(each.beyond),
                ),
            )
        ]
        for each in result
    ]
    print_table_with_trailing_texts(
        [*word_columns("way"), *figure_columns("$/month")],
        ("price", "does not do", "of which the file uses"),
        rows,
    )


def _dollars_by_engine(environment: Environment) -> dict[str, float | str]:
    """Return the dollars of the environment with all jobs on each engine and version, or why there is no such plan."""
    costs: dict[str, float | str] = {}
    for engine, kind in KINDS.items():
        for version in kind.spark_version_by_engine_version:
            other = environment_on_engine_or_none(environment, environment.jobs, engine, version=version)
            try:
                usd = None if other is None else total_cost(plan(other)).value
                words = "a key of a job does not fit it"
            except ConfigurationError as error:
                usd, words = None, f"no plan: {error.problems[0].allowed}"
            costs[f"{kind.title} {version}"] = words if usd is None else usd
    return costs
