"""Other ways to do an environment's work: engines and versions by their own plans, services of AWS by a table of dated prices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from types import MappingProxyType

from millrace.config.model import Environment, MskCluster, Stream
from millrace.config.queries import LandQuery, Query
from millrace.config.units import format_duration
from millrace.sizing.cost import HOURS
from millrace.sizing.plan_model import Plan
from millrace.sizing.readable_numbers import dollars

_NEVER = MappingProxyType(
    {
        "transforms": "transforms, joins, state",
        "sinks": "other sinks than a table",
        "formats": "other formats than JSON",
        "payloads": "decompression, redaction",
    }
)
"""Abilities of Millrace that no service of the table has, each in words."""


@dataclass(frozen=True)
class StreamToTableService:
    """A service of AWS that writes streams into tables.

    Attributes
    ----------
    usd_gb
        US dollars for a GB; None where nobody read a price, or where a price does not tell what the work needs.
    price
        The price, with its source.
    read
        Date on which the source was read.
    freshness
        Least time from arrival to the table.
    reads
        Whether it can read a stream, by the stream and the MSK cluster of a topic; other topics have None.
    lacks
        What it does not do beside :data:`_NEVER`, in words.
    """

    name: str
    usd_gb: float | None
    price: str
    read: date
    freshness: timedelta
    reads: Callable[[Stream, MskCluster | None], bool]
    lacks: str
    transforms: bool = False


_DAY = date(2026, 11, 27)
_APPEND = "append only, no schema change, no backfill, no erasure"

SERVICES = (
    StreamToTableService(
        "Amazon Data Firehose to Iceberg", 0.075, "$0.075 a GB in us-east-1, of the first 250 TB; a report of AWS's price page, unconfirmed",
        _DAY, timedelta(seconds=60), lambda stream, _: stream.in_firehose, "exactly once (at least once), replay, schema change, erasure",
    ),
    StreamToTableService(
        "Kinesis streaming tables", None, "no page read", _DAY, timedelta(minutes=15),
        lambda stream, _: stream.topic_or_capacity_mode == "on-demand", _APPEND,
    ),
    StreamToTableService(
        "MSK Data Delivery", None, "no page read", _DAY, timedelta(minutes=15),
        lambda _, cluster: cluster is not None and cluster.tier == "express", _APPEND,
    ),
    StreamToTableService(
        "MSK Connect with an Iceberg sink", None, f"$0.11 an MCU-hour, ${0.11 * HOURS:.2f} a month; how many it needs is not known",
        _DAY, timedelta(seconds=60), lambda _, cluster: cluster is not None, "a connector that AWS supports, erasure",
    ),
    StreamToTableService(
        "Managed Service for Apache Flink", None,
        f"$0.11 a KPU-hour, ${2 * 0.11 * HOURS:.2f} a month at least; how many it needs is not known", _DAY,
        timedelta(seconds=5), lambda *_: True, "a program to write in Flink, dead letters, replay, erasure", transforms=True,
    ),
)  # fmt: skip
"""Services that write streams into tables (their developer guides, November 2026)."""


@dataclass(frozen=True)
class Alternative:
    """An engine, a version or a service that can do the work.

    Attributes
    ----------
    usd
        Dollars a month with streams and storage; None if it is not known, and then it takes no part in a ranking.
    price
        What the dollars rest on, with date and source.
    lacks
        What it does not do.
    beyond
        What the file uses of that; empty if it does all that the file asks for.
    """

    name: str
    usd: float | None
    price: str
    lacks: str = ""
    beyond: tuple[str, ...] = ()


def alternatives(
    environment: Environment, now: Plan, engines: Mapping[str, float | str]
) -> list[Alternative]:
    """Return this plan, then all other ways.

    First those that do all that the file asks for, the cheapest first, then the others, then those whose dollars are not known.

    Parameters
    ----------
    engines
        Dollars a month of plans of other engines and versions by name, or the reason why there is none.
    """
    table = f"prices of {now.prices.isoformat()}, {now.prices_of}"
    found = [
        Alternative(name, usd, table) if isinstance(usd, float) else Alternative(name, None, usd)
        for name, usd in engines.items()
    ]
    found += service_alternatives(environment, now)
    found.sort(key=lambda each: (each.usd is None, bool(each.beyond), each.usd or 0, each.name))
    usd = sum(line.usd for lines in now.cost_items_by_key.values() for line in lines)
    return [Alternative("this plan", usd, table), *found]


def service_alternatives(environment: Environment, now: Plan) -> list[Alternative]:
    """Return the services of AWS, with streams, clusters and storage of the plan beside their own dollars."""
    read = {name for _, _, query in environment.queries for name in query.source_stream_names}
    gigabytes = sum(environment.streams[name].traffic.monthly_gb for name in read)
    beside = sum(
        line.usd
        for key, lines in now.cost_items_by_key.items()
        for line in lines
        if key.startswith(("streams.", "clusters.")) or line.name.startswith("S3 storage")
    )
    streams, found = environment.streams, []
    clusters = {
        name: cluster
        for name in read
        if isinstance(cluster := environment.kafka.get(streams[name].cluster_name or ""), MskCluster)
    }
    for each in SERVICES:
        usd = None if each.usd_gb is None else beside + each.usd_gb * gigabytes
        price = f"{each.price}; {each.read.isoformat()}"
        beyond = [*_unsupported_features(environment, each)]
        if unread := sorted(name for name in read if not each.reads(streams[name], clusters.get(name))):
            beyond.append(f"it cannot read {', '.join(unread)}")
            usd, price = None, f"no plan: {beyond[-1]}"
        lacks = ", ".join((each.lacks, *(() if each.transforms else _NEVER.values())))
        found.append(Alternative(each.name, usd, price, lacks, tuple(beyond)))
    return found


def _unsupported_features(environment: Environment, service: StreamToTableService) -> Iterator[str]:
    """Yield what the file uses and a service does not do, beside the streams that it cannot read."""
    fastest = min(job.latency for job in environment.jobs.values())
    if fastest < service.freshness:
        yield f"an SLA of {format_duration(fastest)}: it takes {format_duration(service.freshness)}"
    if service.transforms:
        return
    used = {each for _, _, query in environment.queries for each in _used_features(query)}
    yield from (words for feature, words in _NEVER.items() if feature in used)


def _used_features(query: Query) -> Iterator[str]:
    if not isinstance(query, LandQuery):
        yield from ("transforms", "sinks")
        return
    if not query.format.in_firehose:
        yield "formats"
    if query.decompress_up_to is not None or query.redact:
        yield "payloads"


def cheaper_service_advice(environment: Environment, now: Plan) -> Iterator[str]:
    """Yield a line if a service of AWS does all that the file asks for, for less."""
    usd = sum(line.usd for lines in now.cost_items_by_key.values() for line in lines)
    able = [
        each for each in service_alternatives(environment, now) if not each.beyond and (each.usd or usd) < usd
    ]
    for each in sorted(able, key=lambda each: each.usd or 0)[:1]:
        yield (
            f"the file uses nothing beyond {each.name}, about {dollars(each.usd or 0)} a month in place of {dollars(usd)} "
            f"({each.price}); it does not do: {each.lacks}. `millrace compare` has the others"
        )
