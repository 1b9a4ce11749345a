"""HTML page of a plan: verdict, flow, costs, use of limits, other ways to run each job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from millrace.cli.plan.plan_tables import costs_left_out
from millrace.cli.plan.report.flow import flow, flow_rows
from millrace.cli.shared.bars import SHOWN, Bar, Branch, bars, bars_in_words, cost_in_words, cost_tree
from millrace.cli.shared.flow_picture import flow_picture, in_words
from millrace.cli.shared.html_pages import Page
from millrace.cli.shared.verdict import Verdict
from millrace.config import Environment
from millrace.sizing import Plan
from millrace.sizing.demand import query_demands
from millrace.sizing.model import ClusterPlan, CostItem, JobPlan, StreamPlan, WorkerChoice
from millrace.sizing.risks import fullness
from millrace.sizing.text_format import count, dollars, duration_text, format_number

if TYPE_CHECKING:
    from millrace.cli.plan.report.plan_verdict import CheckedPlan


def plan_page(found: CheckedPlan, verdict: Verdict) -> Page:
    """Return the page of a plan, with its verdict."""
    environment, plan = found.environment, found.plan
    page = Page(f"{environment.project}-{environment.name}: plan")
    page.verdict(verdict)
    boxes, arrows = flow(found, verdict.risks)
    question = "What flows where at the peak?"
    page.picture(question, f"{in_words(boxes)}.", flow_picture(boxes, arrows), kind="flow")
    page.table(
        ["from", "to", "at the peak", "what it is"], flow_rows(boxes, arrows), question, words=True, fold=True
    )
    tree = costs(plan)
    page.picture("What costs what, in a month?", cost_in_words(tree), cost_tree(tree), kind="costs")
    page.text(f"Prices of {plan.prices.isoformat()}, {plan.prices_of}. {costs_left_out(plan)}.")
    for question, noun, rows in (
        ("Do queries keep up with the peak?", "query", list(_capacity(found))),
        ("Are records in time at the peak?", "query", list(_ages(found))),
        ("Do shards take the peak?", "stream", list(_shards(found))),
    ):
        if rows:
            page.picture(question, bars_in_words(rows), bars(rows, noun), kind="room")
    page.add_heading("What would run each job for less, or faster?")
    jobs = sorted(plan.jobs.values(), key=lambda job: -found.usd(f"jobs.{job.name}"))
    for place, job in enumerate(jobs):
        if place == SHOWN:
            page.begin_fold(f"{count(len(jobs) - SHOWN, 'job')} that cost less")
        _ways(page, environment, job)
    if len(jobs) > SHOWN:
        page.end_fold()
    if plan.advice or plan.warnings:
        page.add_heading("Notes")
    for line in (*plan.advice, *plan.warnings):
        page.text(line)
    return page


def costs(plan: Plan) -> Branch:
    """Return the cost of a plan as a tree: its total, sections, members, lines of the bill."""

    def lines(items: tuple[CostItem, ...]) -> list[Branch]:
        return [Branch(each.name, each.usd, each.assumed, each.why) for each in items]

    sections: dict[str, Mapping[str, JobPlan | StreamPlan | ClusterPlan]] = {
        "job": plan.jobs,
        "stream": plan.streams,
        "Kafka cluster": plan.clusters,
    }
    found = [
        Branch.of(
            count(len(members), noun), [Branch.of(m.name, lines(m.cost)) for m in members.values()], noun
        )
        for noun, members in sections.items()
        if members
    ]
    if plan.shared:
        found.append(Branch.of("shared by all", lines(plan.shared)))
    return Branch.of("Total", found)


def _capacity(found: CheckedPlan) -> Iterator[Bar]:
    """Yield the peak as a share of the capacity of full batches."""
    for demand in found.demands:
        query = found.plan.jobs[demand.job].queries[demand.query]
        if query.records_per_batch is None:
            continue
        limit, trigger = query.records_per_batch.value, query.trigger_seconds.value
        each = (query.batch_seconds.value - demand.work.overhead) / (demand.work.rate * trigger)
        capacity = limit / max(trigger, demand.work.overhead + limit * each)
        words = f"{format_number(demand.work.rate)} of {format_number(capacity)} records/s"
        yield Bar(f"{demand.job}/{demand.query}", demand.work.rate / capacity, words)


def _ages(found: CheckedPlan) -> Iterator[Bar]:
    """Yield the oldest record of the simulation as a share of the SLA."""
    for each in found.played:
        if each.oldest == each.oldest:  # NaN if nothing was committed; the verdict says so
            words = f"oldest {duration_text(each.oldest)} of {duration_text(each.sla)}"
            yield Bar(f"{each.job}/{each.query}", each.oldest / each.sla, words)


def _shards(found: CheckedPlan) -> Iterator[Bar]:
    for name, stream in found.environment.streams.items():
        sized = found.plan.streams[name]
        if share := fullness(stream, sized):
            yield Bar(
                name, share, f"of {count(sized.expected_partitions.value, stream.parts.removesuffix('s'))}"
            )


def _ways(page: Page, environment: Environment, job: JobPlan) -> None:
    """Add all ways to run a job, under a summary with the plan's way."""
    first, other = job.choices[0], job.runner_up
    against = ""
    if other is not None:
        more = other.usd - first.usd
        against = f"; next {other}, {dollars(abs(more))} {'more' if more >= 0 else 'less'}"
    page.begin_fold(f"{job.name}: {first}, {dollars(first.usd)} a month{against}", anchor=f"job-{job.name}")
    page.text(f"{count(job.cores.value, 'core')}: {job.cores.why}")
    page.table(
        ["way", "workers", "$ a month", "GiB needed", "worst age", "remarks"],
        [
            [
                str(each),
                str(each.workers),
                f"{each.usd:,.2f}",
                f"{each.memory_needed_gib:.1f} of {each.memory_gib:g}",
                duration_text(worst_age(environment, job, each)),
                each.refused or each.unproven or ("the plan" if each is first else ""),
            ]
            for each in job.choices
        ],
        f"Ways to run {job.name}",
    )
    for line in job.advice:
        page.text(line)
    page.end_fold()


def worst_age(environment: Environment, job: JobPlan, choice: WorkerChoice) -> float:
    """Return the age in seconds that no record exceeds at the peak with a choice's cores: T + D, in each query.

    Cores of complete workers, including those that the queries do not need, are divided as in the plan.
    """
    own = [demand for demand in query_demands(environment)[0] if demand.job == job.name]
    factor = choice.executors * choice.vcpu / job.cores.value
    ages = {}
    for demand in own:
        query = job.queries[demand.query]
        work = query.batch_seconds.value - demand.work.overhead
        ages[demand.query] = query.trigger_seconds.value + demand.work.overhead + work / factor
    landed = max((ages[demand.query] for demand in own if demand.lands), default=0.0)
    derived = max((ages[demand.query] for demand in own if not demand.lands), default=0.0)
    return landed + derived
