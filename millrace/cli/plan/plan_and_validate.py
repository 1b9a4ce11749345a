"""Planning commands that change nothing: ``plan``, ``validate``."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import asdict, replace
from datetime import UTC, date, datetime
from typing import Annotated

import typer
from rich.markup import escape
from rich.text import Text
from rich.tree import Tree

from millrace.cli.plan.plan_tables import job_tables, plan_tables
from millrace.cli.plan.report.apply_cost_saving_moves import move_lines, write_moves_into_files
from millrace.cli.plan.report.plan_document import plan_document
from millrace.cli.plan.report.plan_risks import SimulatedPlan
from millrace.cli.plan.report.plan_verdict import plan_verdict
from millrace.cli.shared.console import (
    REFUSED,
    figure_columns,
    plain_table,
    print_json,
    print_rich,
    terminal_width,
    word_columns,
)
from millrace.cli.shared.html_pages import check_page_is_writable, html_page, write_page
from millrace.cli.shared.options import AsJson, EnvironmentName, HtmlPage
from millrace.cli.shared.verdict import verdict_panel
from millrace.config import ConfigurationError, Environment, find_root, load
from millrace.config.aws.foreign_accounts_and_hosts import describe_inherited_accounts_and_hosts
from millrace.config.aws.regions import aws_partition_of_region
from millrace.config.checks.queries import advice_on_schemas
from millrace.config.document.problems import wrong_option_error
from millrace.config.sources.base import MOST_RECORDS_PER_SECOND
from millrace.sizing import Plan, plan
from millrace.sizing.alternatives.job_planner import PlansMade
from millrace.sizing.alternatives.plan_difference import differences
from millrace.sizing.cost_saving_moves import environment_with_cheapest_engines, find_moves
from millrace.sizing.environment_with_plan_choices import environment_as_planned
from millrace.sizing.number_derivation import DerivationNode, derivation_of_number
from millrace.sizing.plan_as_plain_data import plan_as_plain_data
from millrace.sizing.prices_and_limits import price_table_of_region
from millrace.sizing.readable_numbers import count
from millrace.sizing.simulation.expected_cost import plan_with_expected_cost
from millrace.sizing.simulation.plan_simulation_check import simulated_queries_of_plan


def plan_command(
    env: EnvironmentName,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print one JSON object with every figure, its reason and its origin."),
    ] = False,
    key: Annotated[
        str | None,
        typer.Option(
            "--explain",
            metavar="KEY",
            help="Explain one number, such as jobs.flights.max_workers: formula, inputs and the origin of each input; or one job, "
            "such as jobs.flights.",
        ),
    ] = None,
    html: HtmlPage = None,
    diff: Annotated[
        str | None,
        typer.Option(
            "--diff",
            metavar="REF|FILE",
            help="Show only what differs from another plan: of a commit, branch or tag, of another environment's file, or of a "
            "file that --json wrote.",
        ),
    ] = None,
    deployed: Annotated[
        bool,
        typer.Option(
            "--deployed", help="Keep deployed sizes that suffice, as `millrace deploy` does; asks AWS."
        ),
    ] = False,
    as_markdown: Annotated[
        bool, typer.Option("--markdown", help="With --diff: print a Markdown table for a pull request.")
    ] = False,
    traffic: Annotated[
        float,
        typer.Option("--traffic", metavar="FACTOR", help="Plan every stream at FACTOR times its traffic."),
    ] = 1.0,
    apply: Annotated[
        str | None,
        typer.Option(
            "--apply", metavar="NUMBERS", help="Write moves of the verdict into the file, such as 1,3."
        ),
    ] = None,
    with_templates: Annotated[
        bool,
        typer.Option(
            "--templates",
            help="With --diff: also synthesise both, and show which permissions, trust, keys, buckets and networks differ. Needs "
            "`millrace setup`.",
        ),
    ] = False,
) -> None:
    """Size an environment: shards, partitions, workers, limits and monthly cost, each with its reason.

    Needs no AWS account, no Java and no network, except with `--deployed`, and changes nothing.

    [bold]Examples[/bold]

      millrace plan --env prod

      millrace plan --env environments/minimal.yaml

      millrace plan --env prod --json | jq '.jobs.flights.max_workers.value'

      millrace plan --env prod --explain jobs.flights.max_workers

      millrace plan --env prod --diff main --markdown --templates

      millrace plan --env prod --traffic 2

      millrace plan --env prod --apply 1,2
    """
    if not 0 < traffic < math.inf:
        raise wrong_option_error("--traffic", f"{traffic:g}", "a number above 0")
    others = {
        "--traffic": traffic != 1,
        "--deployed": deployed,
        "--diff": diff,
        "--explain": key,
        "--json": as_json,
        "--html": html,
    }
    if apply is not None and (options := [option for option, value in others.items() if value]):
        raise wrong_option_error("--apply", apply, f"without {' and '.join(options)}")
    for option, chosen in (("--markdown", as_markdown), ("--templates", with_templates)):
        if chosen and diff is None:
            raise wrong_option_error(option, "(no --diff)", "only with --diff")
    check_page_is_writable(html)
    environment = environment_with_cheapest_engines(load(env, open_engines=True), plan_keeps_all_slas)
    if deployed:
        from millrace.lifecycle.account.deployed_environment import connect_to_account
        from millrace.lifecycle.changes.read_deployed_sizes import read_deployed_sizes

        environment = environment.with_deployed_sizes(read_deployed_sizes(connect_to_account(environment)))
    environment = environment_with_scaled_traffic(environment, traffic)
    sized = plan(environment, made := PlansMade())
    if apply is not None:
        write_moves_into_files(environment, find_moves(environment, sized, plan_keeps_all_slas, made), apply)
        return
    job = next((name for name in sized.jobs if key == f"jobs.{name}"), None)
    if html is not None or job or (diff is None and key is None):
        doubted = simulated_plan_with_warnings(environment, sized)
        moves = find_moves(environment, sized, plan_keeps_all_slas, made) if traffic == 1 else ()
        sized = doubted.plan
        verdict = replace(plan_verdict(doubted, env), moves=tuple(move_lines(moves)))
        if html is not None or as_json:
            document = plan_document(doubted, verdict, moves)
        if html is not None:
            write_page(html, html_page("plan", f"{environment.project}-{environment.name}: plan", document))
    if diff is not None:
        _print_plan_diff(
            environment,
            sized,
            diff,
            env,
            as_json=as_json,
            as_markdown=as_markdown,
            with_templates=with_templates,
        )
    elif job is not None:
        if as_json:
            print_json(document["jobs"][job])
        else:
            print_rich(*job_tables(environment, sized, job, terminal=sys.stdout.isatty()))
    elif key is not None:
        _print_explanation(environment, sized, key, as_json=as_json)
    elif as_json:
        print_json(document)
    else:
        columns = terminal_width(sys.stdout)
        print_rich(
            *verdict_panel(verdict, terminal=columns is not None),
            *plan_tables(environment, sized, width=columns),
        )
        if html is not None:
            typer.echo(f"wrote {html}")


def simulated_plan_with_warnings(environment: Environment, sized: Plan) -> SimulatedPlan:
    """Return a plan with warnings from its simulation and from the age of its prices."""
    environment = environment_as_planned(environment, sized)
    sized = plan_with_expected_cost(environment, sized)
    played = tuple(simulated_queries_of_plan(environment, sized))
    more = [line for each in played for line in each.contradictions()]
    if (note := old_prices_warning(environment)) is not None:
        more.append(note)
    return SimulatedPlan(environment, replace(sized, warnings=(*sized.warnings, *more)), played, note)


def plan_keeps_all_slas(environment: Environment, sized: Plan) -> bool:
    """Return whether a plan keeps every SLA in the simulation; without any, whether no backlog grows."""
    sla = plan_verdict(simulated_plan_with_warnings(environment, sized)).sla
    return sla.state in {"kept", "unknown"}


def environment_with_scaled_traffic(environment: Environment, factor: float) -> Environment:
    """Return an environment with more or less traffic on every stream.

    Raises
    ------
    ConfigurationError
        A stream would have a rate that its file may not state.
    """
    if factor == 1:
        return environment
    rates = {name: each.traffic.records_per_second * factor for name, each in environment.streams.items()}
    largest = max(rates, key=lambda name: rates[name])
    if rates[largest] > MOST_RECORDS_PER_SECOND:
        most = MOST_RECORDS_PER_SECOND / environment.streams[largest].traffic.records_per_second
        allowed = f"at most {most:.6g}, with which {largest} has {MOST_RECORDS_PER_SECOND:,} records/s"
        raise wrong_option_error("--traffic", f"{factor:g}", allowed)
    streams = {
        name: each.model_copy(
            update={"traffic": each.traffic.model_copy(update={"records_per_second": rates[name]})}
        )
        for name, each in environment.streams.items()
    }
    return environment.model_copy(update={"streams": streams})


def old_prices_warning(environment: Environment, today: date | None = None) -> str | None:
    """Return a line if an environment's prices are old; it is not part of the plan, which does not depend on the day.

    Parameters
    ----------
    environment
        Its region's price table is checked.
    today
        Left out, the day in UTC.
    """
    table = price_table_of_region(environment.region, environment.value_locations.root)
    return table.describe_old_prices(datetime.now(UTC).date() if today is None else today)


def _print_explanation(environment: Environment, sized: Plan, key: str, *, as_json: bool) -> None:
    explanation = derivation_of_number(environment, sized, key)
    if as_json:
        print_json(asdict(explanation))
        return

    def tree_of_derivation(node: DerivationNode) -> Tree:
        parts = (node.how, f"from {node.origin}" if node.origin else "")
        first = f"{escape(node.name)} = [bold]{escape(node.value)}[/bold]"
        grown = Tree("  ".join((first, *(escape(each) for each in parts if each))))
        grown.children.extend(map(tree_of_derivation, node.inputs))
        return grown

    print_rich(tree_of_derivation(explanation))


def _print_plan_diff(
    environment: Environment,
    sized: Plan,
    reference: str,
    env: str,
    *,
    as_json: bool,
    as_markdown: bool,
    with_templates: bool,
) -> None:
    # They import what compares templates, which takes a tenth of the time of a small plan.
    from millrace.cli.plan import plan_diff
    from millrace.cli.plan.report import permission_diff_between_versions

    root = environment.value_locations.root
    before, values, templates = plan_diff.version_to_compare(
        reference, env, root, with_templates=with_templates
    )
    keys = [] if values is None else plan_diff.changed_keys(values, plan_diff.values_by_key(environment))
    changed = differences(before, json.loads(json.dumps(plan_as_plain_data(sized))))
    changes = (
        None
        if templates is None
        else permission_diff_between_versions.template_change_lines(environment, templates, root)
    )
    if as_json:
        print_json(plan_diff.diff_document(changed, keys, changes))
        return
    if as_markdown:
        tables = plan_diff.differences_as_markdown(changed, reference) + plan_diff.changed_keys_as_markdown(
            keys
        )
        block = (
            "" if changes is None else permission_diff_between_versions.template_changes_as_markdown(changes)
        )
        typer.echo(tables + block, nl=False)
        return
    if not changed:
        typer.echo(f"sizes and costs are the same as in the plan of {reference}")
    else:
        rows = (map(Text, plan_diff.difference_cells(each)) for each in changed)
        print_rich(plain_table(*word_columns(""), *figure_columns("before", "after", "more"), rows=rows))
    for title, lines in (("keys", keys), ("templates", changes)):
        if lines:
            typer.echo("\n".join((title, *(f"  {each}" for each in lines))))


def validate_command(
    env: EnvironmentName,
    spark: Annotated[
        bool,
        typer.Option("--spark/--no-spark", help="Plan the transforms on local Spark, with empty tables."),
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Check an environment file and list all its mistakes at once.

    Also sizes the environment, because a pinned number may break a limit. Lists the accounts, hosts and secrets that the
    environment takes over from a file that it extends. Where Spark is installed, each transform is called with empty tables,
    which finds unknown columns. Exit status 2 if there is a mistake; with --json also then one object, with `problems`.

    [bold]Examples[/bold]

      millrace validate --env prod

      millrace validate --env prod --json | jq -r .region
    """
    from millrace.cli.plan.check_transforms_on_spark import check_transforms_and_list_unchecked

    try:
        environment = load(env)
        sized = plan(environment)
        unchecked = check_transforms_and_list_unchecked(environment, sized) if spark else []
    except ConfigurationError as error:
        if not as_json:
            raise
        problems = [asdict(each) for each in error.problems]
        print_json({"valid": False, "problems": problems}, indent=None)
        raise typer.Exit(REFUSED) from None
    tree = environment.value_locations.tree
    inherited = [] if tree is None else describe_inherited_accounts_and_hosts(tree)
    advice = list(advice_on_schemas(environment, find_root()))
    if as_json:
        document = {
            "valid": True,
            "environment": environment.name,
            "project": environment.project,
            "account": environment.account,
            "region": environment.region,
            "partition": aws_partition_of_region(environment.region),
            "streams": list(environment.streams),
            "jobs": list(environment.jobs),
            "inherited": inherited,
            "advice": advice,
            "unchecked": unchecked,
        }
        print_json(document, indent=None)
        return
    streams, jobs = (
        count(len(each), name) for each, name in ((environment.streams, "stream"), (environment.jobs, "job"))
    )
    typer.echo(f"{environment.name} is valid: {streams}, {jobs}")
    if inherited:
        typer.echo("these accounts, hosts and secrets come from the file that it extends:")
        typer.echo("\n".join(f"  {line}" for line in inherited))
    for each in (*advice, *unchecked):
        typer.echo(each, err=True)
