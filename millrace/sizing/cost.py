"""Monthly cost, itemised, from the dated price table. A month has 730 hours."""

from __future__ import annotations

import math
from datetime import timedelta

from millrace.config.engines import EMR_DISK_GIB, GIB, glue_workers
from millrace.config.model import GlueJob, Job, KafkaTopic, KinesisStream, Stream
from millrace.sizing import words
from millrace.sizing.model import CostItem, Figure
from millrace.sizing.tables import PriceTable, dpu_price

HOURS = 730
SECONDS = HOURS * 3600
GB = 10**9
_PUT_UNIT = 25_000
_KB = 1024
_DAY = timedelta(days=1)
_WEEK = 7 * _DAY


def item(name: str, quantity: float, price: str, prices: PriceTable, why: str, *, assumed: bool) -> CostItem:
    """Return one line of the bill: ``quantity`` times a price, which is named where it is unconfirmed."""
    if not prices.prices[price].confirmed:
        why += f"; the price {price} is unconfirmed"
    return CostItem(name, quantity * prices.usd(price), why, assumed)


def monthly_gb(stream: Stream) -> float:
    """Return what a stream takes in, in GB of 10⁹ bytes a month, at its average rate."""
    traffic = stream.traffic
    return traffic.records_per_second * traffic.record_size * SECONDS / GB


def billed_gb_in(stream: Stream) -> float:
    """Return what an on-demand stream is billed for as taken in, in GB a month at its average rate.

    Each record is rounded up to the next 1,024 bytes (AWS' price page of Kinesis Data Streams, "Data-In"), which for
    records of different sizes is more than for as many of their mean size.
    """
    traffic = stream.traffic
    rounded = math.ceil(traffic.record_size / _KB) * _KB
    return traffic.records_per_second * rounded * SECONDS / GB


def stream_cost(
    stream: Stream, partitions: Figure[int], readers: int, consumers: int, prices: PriceTable
) -> tuple[CostItem, ...]:
    """Return what a Kinesis stream costs; topics are paid for with their cluster.

    Parameters
    ----------
    stream
        Somebody else's costs this environment nothing.
    partitions
        Shards, of which provisioned streams pay each.
    readers
        Queries that read it without fan-out.
    consumers
        Registered fan-out consumers, of our own queries and of others.
    prices
        Of the environment's region.
    """
    if isinstance(stream, KafkaTopic) or stream.existing is not None:
        return ()
    if stream.mode == "on-demand":
        return _on_demand(stream, readers, consumers, prices)
    shards, guess = partitions.value, partitions.assumed
    hours = shards * HOURS
    traffic = stream.traffic
    units = traffic.records_per_second * SECONDS * -(-int(traffic.record_size) // _PUT_UNIT) / 1e6
    volume_guess = traffic.basis == "assumed"
    items = [
        item(
            "shards",
            hours,
            "kinesis.shard_hour",
            prices,
            f"{words.count(shards, 'shard')} for {HOURS} h",
            assumed=guess,
        ),
        item(
            "puts",
            units,
            "kinesis.million_put_units",
            prices,
            f"{units:,.0f} million PUT units of 25 KB",
            assumed=volume_guess,
        ),
    ]
    if stream.retention > _DAY:
        price = "kinesis.extended_retention_shard_hour"
        items.append(item("retention", hours, price, prices, "longer than 24 h, by the shard", assumed=guess))
    if stream.retention > _WEEK:
        kept = monthly_gb(stream) * ((stream.retention - _WEEK) / timedelta(hours=HOURS))
        price = "kinesis.long_retention_gb_month"
        items.append(
            item("long retention", kept, price, prices, f"{kept:,.0f} GB beyond 7 days", assumed=volume_guess)
        )
    if consumers:
        count = consumers
        price = "kinesis.fan_out_consumer_shard_hour"
        why = f"{words.count(count, 'consumer')} on {words.count(shards, 'shard')}"
        items.append(item("fan-out", hours * count, price, prices, why, assumed=guess))
        volume = monthly_gb(stream) * count
        items.append(
            item(
                "fan-out data",
                volume,
                "kinesis.fan_out_gb",
                prices,
                f"{volume:,.0f} GB",
                assumed=volume_guess,
            )
        )
    return tuple(items)


def _on_demand(
    stream: KinesisStream, readers: int, consumers: int, prices: PriceTable
) -> tuple[CostItem, ...]:
    volume, billed = monthly_gb(stream), billed_gb_in(stream)
    guess = stream.traffic.basis == "assumed"
    name = "kinesis.on_demand."
    items = [
        item("stream", HOURS, f"{name}stream_hour", prices, f"{HOURS} h", assumed=False),
        item(
            "data in",
            billed,
            f"{name}gb_in",
            prices,
            f"{billed:,.0f} GB, each record rounded up to 1 KiB",
            assumed=guess,
        ),
    ]
    if readers:
        why = f"{volume:,.0f} GB to {readers} reader{'s' * (readers > 1)}"
        items.append(item("data out", volume * readers, f"{name}gb_out", prices, why, assumed=guess))
    if consumers:
        out = volume * consumers
        items.append(item("fan-out data", out, f"{name}fan_out_gb", prices, f"{out:,.0f} GB", assumed=guess))
    if stream.retention > _DAY:
        kept = volume * ((min(stream.retention, _WEEK) - _DAY) / timedelta(hours=HOURS))
        price, why = f"{name}extended_retention_gb_month", f"{kept:,.0f} GB from 24 h to 7 days"
        items.append(item("retention", kept, price, prices, why, assumed=guess))
    if stream.retention > _WEEK:
        kept = volume * ((stream.retention - _WEEK) / timedelta(hours=HOURS))
        price, why = f"{name}long_retention_gb_month", f"{kept:,.0f} GB beyond 7 days"
        items.append(item("long retention", kept, price, prices, why, assumed=guess))
    return tuple(items)


def job_cost(job: Job, workers: Figure[int], prices: PriceTable) -> tuple[CostItem, ...]:
    """Return what a job costs when all its workers run all month: the most that it can.

    Parameters
    ----------
    job
        Engine and worker.
    workers
        Executors and the driver.
    prices
        Of the environment's region.
    """
    count, guess = workers.value, workers.assumed
    hours = count * HOURS
    if isinstance(job, GlueJob):
        worker = glue_workers(job.version)[job.worker]
        price = dpu_price(job.version, memory_optimized=worker.memory_optimized)
        why = f"at most, {count} {job.worker} of {worker.dpu:g} DPU for {HOURS} h"
        return (item("workers", hours * worker.dpu, price, prices, why, assumed=guess),)
    vcpu, memory = job.worker.vcpu, job.worker.memory / GIB
    base = f"emr.{job.architecture}."
    items = [
        item(
            "vCPU",
            hours * vcpu,
            f"{base}vcpu_hour",
            prices,
            f"at most, {count} workers of {vcpu} vCPU for {HOURS} h",
            assumed=guess,
        ),
        item(
            "memory",
            hours * memory,
            f"{base}gib_hour",
            prices,
            f"at most, {count} workers of {memory:g} GiB for {HOURS} h",
            assumed=guess,
        ),
    ]
    extra = job.worker.disk / GIB - EMR_DISK_GIB[0]
    if extra > 0:
        why = f"{extra:g} GiB above the {EMR_DISK_GIB[0]} that are included, on {count} workers"
        items.append(item("disk", hours * extra, "emr.disk_gib_hour", prices, why, assumed=guess))
    return tuple(items)
