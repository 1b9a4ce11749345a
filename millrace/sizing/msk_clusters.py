"""Brokers, their type and their storage, from the traffic of a cluster's topics."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from millrace.config.aws import kafka_versions
from millrace.config.document.problems import Finding
from millrace.config.kafka.clusters import Tier
from millrace.config.model import Environment, MskCluster
from millrace.sizing.cost import HOURS, cost_item
from millrace.sizing.kafka_cluster_load import GIB, ClusterLoad, broker_zone_count
from millrace.sizing.plan_model import ClusterPlan, CostItem, Figure, FigureInput, Inputs, pinned_figure
from millrace.sizing.prices_and_limits import VOLUME_BYTES, LimitTable, PriceTable, service_limits

ALIKE = 1.01
"""Factor of dollars within which two numbers of brokers cost the same, and the safer one is taken."""

SMALLEST_GROWTH_GIB = 10
"""Least growth of an MSK broker's volume (MSK developer guide, "Scale up Amazon MSK storage")."""


_TYPE_PREFIX: Mapping[Tier, str] = {"standard": "kafka.", "express": "express."}
"""First part of the names of a tier's broker types."""


def possible_tiers(environment: Environment, name: str, prices: PriceTable) -> tuple[Tier, ...]:
    """Return the tiers of which a cluster gets the cheapest: one, where the file or what is deployed decides.

    Express takes part where AWS's documents name the version, and the region's own prices say that it is offered there.
    """
    cluster, deployed = environment.kafka[name], environment.deployed_sizes.clusters.get(name)
    assert isinstance(cluster, MskCluster)
    if deployed is not None and not cluster.tier_is_given:
        return ("express" if deployed.broker_type.startswith("express.") else "standard",)
    if cluster.tier_is_given or cluster.storage is not None:
        return (cluster.tier,)
    offered = kafka_versions.EXPRESS.get(cluster.version, False) and prices.region == environment.region
    tiers: tuple[Tier, ...] = ("standard",)
    if offered and broker_zone_count(environment) == 3:
        tiers = ("standard", "express")
    if cluster.broker_type is None:
        return tiers
    return tuple(each for each in tiers if cluster.broker_type.startswith(_TYPE_PREFIX[each])) or tiers[:1]


def cluster_plan_and_findings(
    environment: Environment, name: str, cluster: MskCluster, load_: ClusterLoad, prices: PriceTable
) -> tuple[ClusterPlan | None, list[Finding]]:
    """Size one MSK cluster: the cheapest broker type that carries the load, of all tiers.

    Returns
    -------
    tuple
        The plan, or ``None`` with the findings that prevent one.
    """
    tiers, zone_count = possible_tiers(environment, name, prices), broker_zone_count(environment)
    each = [
        _tier_plan_and_findings(name, cluster.model_copy(update={"tier": tier}), load_, zone_count, prices)
        for tier in tiers
    ]
    able = [sized for sized, _ in each if sized is not None]
    if not able:
        return each[0]
    chosen = min(able, key=lambda sized: sum(line.usd for line in sized.cost))
    if len(tiers) > 1 and chosen.broker_type is not None:
        why = f"the cheapest of {' and '.join(tiers)} ones that carries the load; a deployed cluster keeps its tier"
        chosen = replace(chosen, broker_type=replace(chosen.broker_type, why=why))
    return chosen, []


def _tier_plan_and_findings(
    name: str, cluster: MskCluster, load_: ClusterLoad, zone_count: int, prices: PriceTable
) -> tuple[ClusterPlan | None, list[Finding]]:
    """Size a cluster of the tier that it names.

    Returns
    -------
    tuple
        The plan, or ``None`` with the findings that prevent one.
    """
    if cluster.tier == "serverless":
        if problems := [*_findings_of_serverless_limits(name, load_)]:
            return None, problems
        return ClusterPlan(name, cluster.tier, None, None, None, _serverless_cost_items(load_, prices)), []
    known = service_limits()
    types = [each for each in known.brokers if each.startswith(_TYPE_PREFIX[cluster.tier])]
    if cluster.broker_type is not None and cluster.broker_type not in types:
        allowed = f"with tier {cluster.tier}: {', '.join(types)}"
        return None, [Finding(("kafka", name, "broker_type"), cluster.broker_type, allowed)]
    candidates = types if cluster.broker_type is None else [cluster.broker_type]
    disk = cluster.tier == "standard"
    deployed = load_.deployed
    if deployed is not None and (deployed.broker_type not in types or cluster.brokers is not None):
        deployed = None
    # Brokers are only added.
    least = cluster.brokers or (0 if deployed is None else deployed.brokers)
    options = [
        each
        for kind in candidates
        for each in _broker_options(kind, least, cluster, load_, zone_count, known, prices)
    ]
    most = known[f"msk.brokers.{'kraft' if cluster.version.endswith('.kraft') else 'zookeeper'}"]
    if cluster.brokers is not None and all(each.brokers > cluster.brokers for each in options):
        largest = min(options, key=lambda each: each.brokers)
        allowed = f"at least {largest.brokers} of {largest.kind}: {_reason_for_option(largest, load_, zone_count, known)}"
        return None, [Finding(("kafka", name, "brokers"), str(cluster.brokers), allowed)]
    if cluster.brokers is not None:
        options = [each for each in options if each.brokers <= cluster.brokers]
    elif deployed is not None:
        # Those of another type are replaced one by one, while the cluster runs.
        same = (deployed.broker_type, deployed.brokers)
        options = [each for each in options if (each.kind, each.brokers) == same] or options
    alike = ALIKE * min((each.brokers > most, each.usd) for each in options)[1]
    # The prices of a year differ by more: of such options that which takes the peak while AWS patches one of its brokers.
    chosen = min(
        options,
        key=lambda each: (
            each.brokers > most,
            each.usd > alike or not each.has_reserve_for(load_.mib_in),
            each.usd,
            each.brokers,
        ),
    )
    storage = None
    if disk:
        storage, finding = _volume_size_and_finding(name, cluster, cluster.brokers or chosen.brokers, load_)
        if finding is not None:
            return None, [finding]
    return _provisioned_cluster_plan(name, cluster, chosen, storage, load_, zone_count, prices), []


@dataclass(frozen=True)
class _BrokerOption:
    """Brokers that carry a load.

    Attributes
    ----------
    volume
        MiB/s of throughput that each volume is provisioned with; None for the default.
    takes
        MiB/s from producers that a broker takes.
    usd
        Dollars a month for the brokers, their volumes and the throughput of these.
    fewest
        Brokers of this type that would do; more of them may have smaller volumes, which cost less.
    """

    kind: str
    brokers: int
    volume: int | None
    takes: float
    usd: float
    fewest: int

    def has_reserve_for(self, mib_in: float) -> bool:
        """Return whether all but one of the brokers take so many MiB/s from producers."""
        return mib_in <= (self.brokers - 1) * self.takes


def _broker_options(
    kind: str,
    least: int,
    cluster: MskCluster,
    load_: ClusterLoad,
    zone_count: int,
    broker_limits: LimitTable,
    prices: PriceTable,
) -> Iterator[_BrokerOption]:
    """Yield the fewest brokers of a type, at least ``least``, then each larger number that costs less than those before it, or about as much."""
    broker, hour = broker_limits.brokers[kind], prices.usd(f"msk.{kind}_hour")
    disk, stored_usd = cluster.tier == "standard", prices.usd("msk.storage_gb_month")
    for provisioned in (None,) if broker.volume_default is None else (None, broker.volume):
        takes = broker.producer_mib_per_second(load_.readers, provisioned)
        fewest = _fewest_brokers(takes, broker.partitions, load_, zone_count, broker_limits, disk=disk)
        best = math.inf
        for number in itertools.count(max(fewest, least), zone_count):
            # Each number is tried that could cost less with volumes of exactly what they hold: so less traffic never costs more.
            exact = number * hour * HOURS + disk * needed_volume_gib(1, load_) * stored_usd
            if exact >= ALIKE * best or (best < math.inf and (cluster.brokers or cluster.storage)):
                break
            volume = None if provisioned is None else math.ceil(load_.mib_in / number * 2 * VOLUME_BYTES)
            if volume is not None and volume <= (broker.volume_default or 0):
                break
            usd = number * hour * HOURS
            if volume is not None:
                usd += number * volume * prices.usd("msk.volume_mib_month")
            if disk:
                usd += number * _volume_gib(cluster, number, load_) * stored_usd
            if usd < ALIKE * best:
                best = min(best, usd)
                yield _BrokerOption(kind, number, volume, takes, usd, fewest)


def _provisioned_cluster_plan(
    name: str,
    cluster: MskCluster,
    chosen: _BrokerOption,
    storage: Figure[int] | None,
    load_: ClusterLoad,
    zone_count: int,
    prices: PriceTable,
) -> ClusterPlan:
    known, kind, needed = service_limits(), chosen.kind, chosen.brokers
    why = _reason_for_option(chosen, load_, zone_count, known)
    if cluster.brokers is None and needed > chosen.fewest and load_.deployed is None:
        why += (
            f"; {chosen.fewest} would do, with larger volumes that cost more, or without reserve for as much"
        )
    kept = load_.deployed is not None and needed == load_.deployed.brokers
    broker, path = known.brokers[kind], ("kafka", name)
    taken = f"{chosen.takes:.4g} MiB/s in with these readers, {broker.partitions:,} partitions"

    def inputs() -> Inputs:
        return (
            *load_.inputs,
            FigureInput(kind, taken, origin=broker.origin),
            *known.as_inputs_with_prefix("msk."),
        )

    brokers = (
        pinned_figure(
            cluster.brokers, "brokers", f"pinned; {chosen.fewest} would do: {why}", (*path, "brokers")
        )
        if cluster.brokers is not None
        else Figure(
            needed, "brokers", f"as deployed; {why}" if kept else why, assumed=load_.assumed, inputs=inputs
        )
    )
    broker_type = (
        pinned_figure(kind, "type", "pinned", (*path, "broker_type"))
        if cluster.broker_type is not None
        else Figure(kind, "type", "the cheapest that carries the load", assumed=load_.assumed, inputs=inputs)
    )
    cost = [
        cost_item(
            "brokers",
            brokers.value * HOURS,
            f"msk.{kind}_hour",
            prices,
            f"{brokers.value} {kind} for {HOURS} h",
            assumed=brokers.assumed or broker_type.assumed,
            inputs=(f"clusters.{name}.brokers", f"clusters.{name}.broker_type"),
        )
    ]
    if storage is not None:
        stored: float = storage.value * brokers.value
        why = f"{storage.value} GiB on each of {brokers.value} brokers"
        if chosen.volume is not None:
            cost.append(
                cost_item(
                    "volume throughput",
                    chosen.volume * brokers.value,
                    "msk.volume_mib_month",
                    prices,
                    f"{chosen.volume} MiB/s on each of {brokers.value} brokers; the default is {broker.volume_default:g}",
                    assumed=load_.assumed,
                )
            )
    else:
        stored = load_.stored_gib
        why = f"{stored:,.1f} GiB by retention, copies included in the price"
        cost.append(
            cost_item(
                "data in",
                load_.gb_month,
                "msk.express.gb_in",
                prices,
                f"{load_.gb_month:,.0f} GB",
                assumed=load_.assumed,
            )
        )
    cost.append(cost_item("storage", stored, "msk.storage_gb_month", prices, why, assumed=load_.assumed))
    return ClusterPlan(name, cluster.tier, brokers, broker_type, storage, tuple(cost), chosen.volume)


def needed_volume_gib(brokers: int, load_: ClusterLoad) -> int:
    """Return the GiB that each of so many volumes needs for all copies, with room."""
    stored = load_.stored_gib * load_.copies
    return max(1, math.ceil(stored * service_limits()["msk.storage.headroom"] / brokers))


def _volume_gib(cluster: MskCluster, brokers: int, load_: ClusterLoad) -> int:
    """Return the GiB of a Standard broker's volume: as pinned, as deployed where that suffices, else the next coarse step."""
    if cluster.storage is not None:
        return math.ceil(cluster.storage / GIB)
    needed = needed_volume_gib(brokers, load_)
    deployed = 0 if load_.deployed is None else load_.deployed.storage_gib or 0
    if deployed >= needed:
        return deployed
    size = max(next_volume_step_gib(needed), deployed and deployed + SMALLEST_GROWTH_GIB)
    return min(size, int(service_limits()["msk.broker.storage_gib"]))


def _volume_size_and_finding(
    name: str, cluster: MskCluster, brokers: int, load_: ClusterLoad
) -> tuple[Figure[int] | None, Finding | None]:
    """Return the volume of a Standard broker and why, or why it is too small."""
    known, needed, size = (
        service_limits(),
        needed_volume_gib(brokers, load_),
        _volume_gib(cluster, brokers, load_),
    )
    why = (
        f"{load_.stored_gib * load_.copies:,.1f} GiB by retention in {load_.copies} copies, "
        f"{known['msk.storage.headroom']:g} times that: {needed} GiB a broker"
    )
    if cluster.storage is not None:
        path = ("kafka", name, "storage")
        if size < needed:
            return None, Finding(path, f"{size}GiB", f"at least {needed}GiB: {why}")
        return pinned_figure(size, "GiB", f"pinned; {why}", path), None
    if load_.deployed is not None and size == load_.deployed.storage_gib:
        why = f"as deployed, as a volume never shrinks; {why}"
    return Figure(
        size,
        "GiB",
        why,
        assumed=load_.assumed,
        inputs=lambda: (*load_.inputs, f"clusters.{name}.brokers", *known.as_inputs_with_prefix("msk.")),
    ), None


def next_volume_step_gib(needed: int) -> int:
    """Return the next size of a volume, at least a sixth larger than the one before it, so that a plan seldom changes it.

    Examples
    --------
    >>> [next_volume_step_gib(size) for size in (1, 41, 81, 85, 101, 5001)]
    [10, 50, 100, 100, 120, 6000]
    """
    # Steps of a decade, in tenths of it; two sizes below 100 GiB differ by 10 GiB at least.
    tenth = int(10 ** max(0, len(str(needed)) - 2))
    for step in (10, 12, 15, 20, 25, 30, 40, 50, 60, 80):
        if step * tenth >= needed and (tenth > 1 or step % 10 == 0):
            return step * tenth
    return 100 * tenth


def _fewest_brokers(
    takes: float,
    partitions: int,
    load_: ClusterLoad,
    zone_count: int,
    broker_limits: LimitTable,
    *,
    disk: bool,
) -> int:
    """Return the fewest brokers for incoming bytes, replicas and disk, with the same number in each zone."""
    terms = [load_.mib_in / takes, load_.partitions * load_.copies / partitions]
    if disk:
        terms.append(
            load_.stored_gib
            * load_.copies
            * broker_limits["msk.storage.headroom"]
            / broker_limits["msk.broker.storage_gib"]
        )
    return zone_count * max(1, math.ceil(max(terms) / zone_count))


def _reason_for_option(
    option: _BrokerOption, load_: ClusterLoad, zone_count: int, broker_limits: LimitTable
) -> str:
    taken = f"{option.takes:.4g} MiB/s a broker" + (
        "" if broker_limits.brokers[option.kind].confirmed else ", unconfirmed"
    )
    if option.volume is not None:
        taken += f" with {option.volume} MiB/s of provisioned volume throughput"
    out = f" and {load_.mib_in * load_.readers:,.1f} MiB/s out" if load_.readers > 1 else ""
    return f"{load_.mib_in:,.1f} MiB/s in{out} at peak ({taken}), as many in each of {zone_count} zones"


def _findings_of_serverless_limits(name: str, load_: ClusterLoad) -> Iterator[Finding]:
    """Yield a finding for the cluster, and for each topic, that gets or gives out more than AWS allows."""
    for at, way in enumerate(("in", "out")):
        most, each = (
            service_limits()[f"msk.serverless.{part}bytes_{way}_per_second"] for part in ("", "partition.")
        )
        if (together := sum(load[at] for load in load_.topics.values())) > most:
            allowed = f"standard or express: {together / 1e6:,.1f} MB/s {way} at peak, {most / 1e6:g} a serverless cluster"
            yield Finding(("kafka", name, "tier"), "serverless", allowed)
        for topic, load in load_.topics.items():
            if load[at] > each * load[2]:
                allowed = f"at least {math.ceil(load[at] / each)}: {load[at] / 1e6:,.1f} MB/s {way} at peak, {each / 1e6:g} a partition of a serverless cluster"
                yield Finding(("streams", topic, "partitions"), str(load[2]), allowed)


def _serverless_cost_items(load_: ClusterLoad, prices: PriceTable) -> tuple[CostItem, ...]:
    name, guess = "msk.serverless.", load_.assumed
    out, stored = load_.gb_month_out, load_.stored_gib
    # AWS replicates in as many zones as it likes, whichever the subnets are.
    why = f"{stored:,.1f} GiB by retention; that the price includes copies is an assumption"
    return (
        cost_item("cluster", HOURS, f"{name}cluster_hour", prices, f"{HOURS} h", assumed=False),
        cost_item(
            "partitions",
            load_.partitions * HOURS,
            f"{name}partition_hour",
            prices,
            f"{load_.partitions} partitions",
            assumed=guess,
        ),
        cost_item(
            "data in", load_.gb_month, f"{name}gb_in", prices, f"{load_.gb_month:,.0f} GB", assumed=guess
        ),
        cost_item("data out", out, f"{name}gb_out", prices, f"{out:,.0f} GB", assumed=guess),
        cost_item("storage", stored, "msk.storage_gb_month", prices, why, assumed=True),
    )
