"""A plan as a page: what each way to run a job costs and how old its records get, what it can take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millrace.cli.shared.pages import Page

if TYPE_CHECKING:
    from millrace.config import Environment
    from millrace.sizing import Plan
    from millrace.sizing.model import Choice, JobPlan


def plan_page(environment: Environment, plan: Plan) -> Page:
    """Return the page of a plan."""
    from millrace.sizing import total

    page = Page(f"{environment.project}-{environment.name}: plan")
    page.text(f"${total(plan).value:,.2f} a month, {plan.region}, prices of {plan.prices.isoformat()}.")
    page.heading("Throughput of each query")
    page.text("Records per second of full batches, compared with the average and the peak traffic.")
    page.chart(_capacity(_loads(environment, plan)), "Records per second: traffic and throughput")
    for job in plan.jobs.values():
        page.heading(f"Job {job.name}")
        page.text(f"{job.max_workers.value} of {job.worker}: {job.cores.why}")
        page.table(
            ["way", "workers", "$ a month", "GiB needed", "worst age", "remarks"],
            [
                [
                    str(each),
                    str(each.workers),
                    f"{each.usd:,.2f}",
                    f"{each.memory_needed_gib:.1f} of {each.memory_gib:g}",
                    f"{worst_age(environment, job, each):,.1f} s",
                    each.refused or each.unproven or ("the plan" if each is job.choices[0] else ""),
                ]
                for each in job.choices
            ],
            f"Ways to run {job.name}",
        )
        page.chart(_ways(environment, job), f"{job.name}: cost and record age of each way to run it")
        for line in job.advice:
            page.text(line)
    for line in (*plan.advice, *plan.warnings):
        page.text(line)
    return page


def worst_age(environment: Environment, job: JobPlan, choice: Choice) -> float:
    """Return the age in seconds that no record exceeds at the peak with a choice's cores: T + D, in each hop.

    Cores of whole workers, also those beyond what the queries need, are shared out as the plan shares its own.
    """
    from millrace.sizing.hops import hops

    own = [hop for hop in hops(environment)[0] if hop.job == job.name]
    factor = choice.executors * choice.vcpu / job.cores.value
    ages = {}
    for hop in own:
        query = job.queries[hop.query]
        work = query.batch_seconds.value - hop.work.overhead
        ages[hop.query] = query.trigger_seconds.value + hop.work.overhead + work / factor
    landed = max((ages[hop.query] for hop in own if hop.lands), default=0.0)
    derived = max((ages[hop.query] for hop in own if not hop.lands), default=0.0)
    return landed + derived


def _loads(environment: Environment, plan: Plan) -> list[dict[str, Any]]:
    from millrace.sizing.hops import hops

    rows = []
    for hop in hops(environment)[0]:
        query = plan.jobs[hop.job].queries[hop.query]
        if query.records_per_batch is None:
            continue
        limit = query.records_per_batch.value
        work = query.batch_seconds.value - hop.work.overhead
        each = work / (hop.work.rate * query.trigger_seconds.value)
        capacity = limit / max(query.trigger_seconds.value, hop.work.overhead + limit * each)
        name = f"{hop.job}/{hop.query}"
        rows += [
            {"query": name, "what": "average", "value": round(hop.work.rate * hop.average, 3)},
            {"query": name, "what": "peak", "value": round(hop.work.rate, 3)},
            {"query": name, "what": "capacity", "value": round(capacity, 3)},
        ]
    return rows


def _capacity(rows: list[dict[str, Any]]) -> Any:
    import altair as alt

    return (
        alt.Chart({"values": rows})
        .mark_bar()
        .encode(
            y=alt.Y("query:N", title=None),
            yOffset=alt.YOffset("what:N", sort=["average", "peak", "capacity"]),
            x=alt.X("value:Q", title="records per second"),
            color=alt.Color("what:N", sort=["average", "peak", "capacity"], title=None),
            tooltip=["query:N", "what:N", "value:Q"],
        )
        .properties(height=20 * len(rows))
    )


def _ways(environment: Environment, job: JobPlan) -> Any:
    import altair as alt

    rows = [
        {
            "usd": round(each.usd, 2),
            "age": round(worst_age(environment, job, each), 3),
            "way": str(each),
            "engine": each.place,
            "state": "the plan" if each is job.choices[0] else "does not fit" if each.refused else "would do",
        }
        for each in job.choices
    ]
    return (
        alt.Chart({"values": rows})
        .mark_point(filled=True, size=90)
        .encode(
            x=alt.X("usd:Q", title="US dollars a month"),
            y=alt.Y("age:Q", title="worst age at the peak, s", scale=alt.Scale(zero=False)),
            color=alt.Color("engine:N", title=None),
            shape=alt.Shape("state:N", sort=["the plan", "would do", "does not fit"], title=None),
            # As objects: of text Altair makes one by its whole schema, a fortieth of a second each.
            tooltip=[alt.Tooltip(each) for each in ("way:N", "usd:Q", "age:Q", "state:N")],
        )
        .properties(height=220)
    )
