"""Planning of an environment: all sizes, costs, alarms and warnings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from millrace.config.aws import kafka_versions
from millrace.config.aws import zones_refused_by_services as zone_tables
from millrace.config.document.problems import Finding
from millrace.config.engines import versions
from millrace.config.model import Environment
from millrace.sizing.alarms.alarms import alarms
from millrace.sizing.alternatives import other_engines_and_services
from millrace.sizing.alternatives.choose_runs_and_stream_modes import environment_with_cheapest_choices
from millrace.sizing.alternatives.doubtful_plan_inputs import doubtful_input_lines
from millrace.sizing.alternatives.job_planner import JobPlanner, PlansMade
from millrace.sizing.alternatives.partition_candidates import least_job_usd
from millrace.sizing.alternatives.remedies import findings_with_remedies
from millrace.sizing.alternatives.stream_plans import least_streams_usd, stream_plans_and_findings
from millrace.sizing.costs.endpoints_or_nat_gateways import (
    dns_firewall_cost_items,
    jobs_in_vpc,
    network_plan_and_cost_items,
)
from millrace.sizing.costs.shared_cost import shared_cost_items
from millrace.sizing.costs.storage_and_unpriced_costs import unpriced_costs
from millrace.sizing.environment_with_plan_choices import environment_with_choices
from millrace.sizing.kafka_cluster_load import cluster_load
from millrace.sizing.msk_clusters import cluster_plan_and_findings
from millrace.sizing.plan_model import ClusterPlan, Figure, FigureInput, JobPlan, Plan, StreamPlan
from millrace.sizing.prices_and_limits import PRICES, PriceTable, price_table_of_region, service_limits
from millrace.sizing.queries.demand import QueryDemand, demands_by_stream
from millrace.sizing.queries.environment_demands import query_demands_and_findings


def plan(environment: Environment, made: PlansMade | None = None, *, simulated: bool = True) -> Plan:
    """Size everything in an environment.

    Parameters
    ----------
    environment
        From :func:`millrace.config.load`, or built by a program.
    made
        Plans of jobs, to which this one adds its own, for variants of one environment with the same storage.
    simulated
        Whether it is simulated which jobs hold all their workers, and other services are compared: neither changes a size or a cost.

    Returns
    -------
    Plan
        Immutable; the same environment always gives the same plan.

    Raises
    ------
    millrace.config.ConfigurationError
        An SLA that no number of cores meets, a pinned number that breaks a limit,
        or an unreadable price table of the project; all of them at once.
    """
    try:
        table = price_table_of_region(environment.region, environment.value_locations.root)
    except ValueError as error:
        allowed = f"a region whose price table can be read: {error}"
        raise environment.value_locations.error_of_findings(
            [Finding(("region",), environment.region, allowed)]
        ) from error
    made = PlansMade() if made is None else made
    environment = environment_with_cheapest_choices(
        environment,
        table,
        lambda other: _monthly_usd_or_none(other, table, made),
        lambda other: _least_monthly_usd(other, table),
        lambda other: _is_confirmed_by_simulation(other, table, made),
    )
    return _plan_with_choices_made(environment, table, made, simulated=simulated)


def _plan_with_choices_made(
    environment: Environment, table: PriceTable, made: PlansMade, *, simulated: bool = True
) -> Plan:
    """Return the plan of an environment in which nothing but sizes and tiers is left to the plan."""
    sized, problems = _environment_sizes_and_findings(environment, table, made)
    if sized is None:
        raise environment.value_locations.error_of_findings(
            findings_with_remedies(
                environment, problems, lambda other: _environment_sizes_and_findings(other, table, made)[1]
            )
        )
    demands, streams, clusters, jobs = sized
    tiers = {name: cluster.tier for name, cluster in clusters.items()}
    environment = environment_with_choices(environment, "kafka", "tier", tiers)
    network, way_out = network_plan_and_cost_items(environment, table)
    dns = dns_firewall_cost_items(
        environment, sum(jobs[name].max_workers.value for name in jobs_in_vpc(environment)), table
    )
    watched = alarms(environment, jobs, clusters)
    found = Plan(
        environment=environment.name,
        region=environment.region,
        prices=table.read,
        prices_of=table.region,
        streams=MappingProxyType(streams),
        clusters=MappingProxyType(clusters),
        jobs=MappingProxyType(jobs),
        network=network,
        alarms=watched,
        shared=shared_cost_items(environment, streams, (*way_out, *dns), watched, table),
        warnings=(
            *_other_region_price_warnings(environment, table),
            *_plan_warnings(environment, demands),
            *_broker_quota_warnings(environment, clusters),
            *doubtful_input_lines(environment, demands, streams, jobs),
        ),
        left_out=unpriced_costs(environment),
    )
    if not simulated:
        return found
    # SimPy and NumPy take long to import.
    from millrace.sizing.simulation.expected_cost import plan_with_fixed_workers_where_late

    found = plan_with_fixed_workers_where_late(environment, found)
    return replace(found, advice=tuple(other_engines_and_services.cheaper_service_advice(environment, found)))


def _broker_quota_warnings(environment: Environment, clusters: Mapping[str, ClusterPlan]) -> Iterator[str]:
    """Yield a line for each number of brokers for which AWS has to raise a quota first."""
    known = service_limits()
    counts = {name: each.brokers.value for name, each in clusters.items() if each.brokers is not None}
    for name, number in counts.items():
        version = getattr(environment.kafka[name], "version", "")
        kind = "kraft" if version.endswith(".kraft") else "zookeeper"
        if number > (most := known[f"msk.brokers.{kind}"]):
            yield f"kafka.{name}: {number} brokers; a cluster of {version} has {most:g} at most until AWS raises the quota"
    if sum(counts.values()) > (most := known["msk.brokers.account"]):
        yield f"kafka: {sum(counts.values())} brokers; an account has {most:g} at most until AWS raises the quota"


def _is_confirmed_by_simulation(environment: Environment, table: PriceTable, made: PlansMade) -> bool:
    """Return whether the simulation of a plan confirms all that it promises."""
    from millrace.sizing.simulation.plan_simulation_check import simulated_queries_of_plan

    played = simulated_queries_of_plan(environment, _plan_with_choices_made(environment, table, made))
    return all(
        each.meets_sla and not each.catch_up_takes_over_a_day and not any(each.contradictions())
        for each in played
    )


def _monthly_usd_or_none(environment: Environment, table: PriceTable, made: PlansMade) -> float | None:
    """Return the dollars a month of streams, clusters and jobs; None if they cannot be planned."""
    sized = _environment_sizes_and_findings(environment, table, made)[0]
    if sized is None:
        return None
    return sum(line.usd for section in sized[1:] for each in section.values() for line in each.cost)


def _least_monthly_usd(environment: Environment, table: PriceTable) -> float:
    """Return dollars a month below which streams, clusters and jobs of no plan are: the fewest partitions, and cores that are never idle."""
    demands, problems = query_demands_and_findings(environment, tuple(environment.jobs))
    if problems:
        return 0.0
    planner = JobPlanner(environment, demands, table, PlansMade())
    return least_streams_usd(planner, demands) + sum(least_job_usd(planner, job) for job in environment.jobs)


_Sized = tuple[list[QueryDemand], dict[str, StreamPlan], dict[str, ClusterPlan], dict[str, JobPlan]]


def _environment_sizes_and_findings(
    environment: Environment, table: PriceTable, made: PlansMade
) -> tuple[_Sized | None, list[Finding]]:
    """Size streams, clusters and jobs, or return all findings that prevent it.

    A job that its pins keep from catching up within a day is sized for the peak alone.
    """
    found, problems = _sizes_for_demands_and_findings(environment, table, made)
    if not problems:
        return found, []
    places = {tuple(map(str, each.path[:2])) for each in problems}
    pinned = (
        job
        for job, _, query in environment.queries
        if {("jobs", job), *(("streams", name) for name in query.source_stream_names)} & places
    )
    return _sizes_for_demands_and_findings(environment, table, made, tuple(dict.fromkeys(pinned)))


def _sizes_for_demands_and_findings(
    environment: Environment, table: PriceTable, made: PlansMade, as_asked: tuple[str, ...] = ()
) -> tuple[_Sized | None, list[Finding]]:
    demands, problems = query_demands_and_findings(environment, as_asked)
    if problems:
        return None, problems
    planner = JobPlanner(environment, demands, table, made)
    if planner.problems:
        return None, planner.problems
    streams, problems = stream_plans_and_findings(planner, demands)
    clusters, wrong = _cluster_plans_and_findings(environment, demands, streams, table)
    problems += wrong
    jobs = {}
    counts = {name: each.expected_partitions.value for name, each in streams.items()}
    for name in environment.jobs:
        sized, wrong = planner.plan_or_findings(name, counts)
        problems += wrong
        if sized is not None:
            jobs[name] = sized
    return (None, problems) if problems else ((demands, streams, clusters, jobs), [])


def _cluster_plans_and_findings(
    environment: Environment, demands: list[QueryDemand], streams: dict[str, StreamPlan], table: PriceTable
) -> tuple[dict[str, ClusterPlan], list[Finding]]:
    found, problems = {}, []
    counts = {name: each.expected_partitions.value for name, each in streams.items()}
    reading = demands_by_stream(demands)
    for name, cluster in environment.created_clusters.items():
        asked = cluster_load(environment, name, counts, reading)
        sized, wrong = cluster_plan_and_findings(environment, name, cluster, asked, table)
        problems += wrong
        if sized is not None:
            found[name] = sized
    return found, problems


def _other_region_price_warnings(environment: Environment, table: PriceTable) -> Iterator[str]:
    if table.region != environment.region:
        way = f"`millrace prices update --region {environment.region}` writes {PRICES}/{environment.region}.yaml"
        if environment.region.startswith("cn-"):
            way = "AWS lists prices in China in CNY, which no table takes"
        elif environment.region.startswith("us-gov-"):
            way += ", with credentials of a commercial account"
        yield f"region: the prices are those of {table.region}, as there is no table of {environment.region}: {way}"


def _plan_warnings(environment: Environment, demands: list[QueryDemand]) -> tuple[str, ...]:
    read = {name for demand in demands for name in demand.streams}
    found = [f"streams.{name}: no job reads it" for name in environment.streams if name not in read]
    found += [
        f"kafka.{name}.version: nobody has confirmed that {cluster.tier} brokers take {cluster.version} "
        f"(as of {kafka_versions.AS_OF}); MSK says so when the cluster is made"
        for name, cluster in environment.created_clusters.items()
        if cluster.tier == "express" and cluster.version not in kafka_versions.EXPRESS
    ]
    found += [
        f"jobs.{name}.version: {job.display_version} is newer than the table of versions (as of {versions.AS_OF}): it is packed, priced and "
        f"simulated like {listed}, with the jars of Spark {job.spark_line.name}, and no test ran its Spark; AWS says whether it "
        "exists when the job is deployed"
        for name, job in environment.jobs.items()
        if (listed := job.nearest_listed_version(job.version)) != job.version
    ]
    chosen = zone_tables.warning_if_aws_chooses_zones(environment)
    return (*found, *([] if chosen is None else [chosen]))


def total_cost(items: Plan) -> Figure[float]:
    """Return everything a plan costs in a month, in USD."""
    lines = [
        *items.shared,
        *(line for stream in items.streams.values() for line in stream.cost),
        *(line for cluster in items.clusters.values() for line in cluster.cost),
        *(line for job in items.jobs.values() for line in job.cost),
    ]
    why = f"prices of {items.prices.isoformat()}, every worker running all month"
    return Figure(
        sum(line.usd for line in lines),
        "USD/month",
        why,
        assumed=any(each.assumed for each in lines),
        inputs=lambda: tuple(
            FigureInput(name, f"${sum(line.usd for line in part):,.2f}", "its items' sum")
            for name, part in items.cost_items_by_key.items()
            if part
        ),
    )


def text_if_cost_limit_exceeded(environment: Environment, plan: Plan) -> str | None:
    """Return that a plan costs more than the environment allows; None if it does not."""
    most = environment.governance.max_month
    usd = total_cost(plan).value
    if most is None or usd <= most:
        return None
    return f"the plan costs ${usd:,.2f} a month, more than the ${most:,.2f} of governance.max_month"
