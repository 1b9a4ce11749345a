"""Fault test with kill -9 of deployed jobs: ``python -m tests.faults.kill_deployed_jobs --kills 5``.

An environment of its own is synthesised and deployed to LocalStack, and each job is started from the launch document
that the deployment has written: a topic of a real broker straight into a table; windows and distinct purchases over
what was landed; orders from the broker joined with payments from kinesalite. Records are sent while a job runs, its
driver is killed at a random moment, again and again, and at last one run goes on to the end. What the tables hold
must be what the producers' ledger says. It ends with 1 where it is not.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from millrace.lifecycle.audits.hourly_audit import HOUR, AuditResult
from millrace.lifecycle.audits.query_audit import audit_query
from millrace.sandbox import operate_running_sandbox
from millrace.sandbox.localstack_deployment import Sandbox, running_localstack_and_kafka
from millrace.sandbox.payloads.records_from_nycflights import RecordToSend
from millrace.sandbox.programs.child_processes import RUN, SandboxError
from millrace.sandbox.programs.run_launch_document_locally import LocalJob
from millrace.sandbox.records.ledger import compare_with_ledger, row_count
from millrace.sandbox.records.producer import KafkaProducer, KinesisProducer, RecordProducer
from tests import kinesalite
from tests.faults import lake_rows
from tests.faults.round_setup import split_shard
from tests.faults.row_difference import Difference
from tests.faults.shop import orders_with_expected_results
from tests.faults.shop.orders_with_expected_results import Remembered
from tests.faults.shop_project import deployed
from tests.faults.sink_contents import of_stack, rows
from tests.kinesalite import Kinesalite

HOME = RUN / "faults-deployed"
END_SECONDS = 600.0
"""Longest that the last run may take to the end of what was sent."""

LATE = 50
Row = tuple[Any, ...]


@dataclass
class Source:
    """A topic or stream of the shop: who sends, what was sent, what is sent next."""

    producer: RecordProducer
    make: Callable[[random.Random, int, int], Iterator[RecordToSend]]
    sent: int = 0

    def __post_init__(self) -> None:
        self.producer.ledger = Remembered()

    @property
    def ledger(self) -> Remembered:
        assert isinstance(self.producer.ledger, Remembered), "as __post_init__ has it"
        return self.producer.ledger

    def send(self, choose: random.Random, count: int) -> None:
        """Send the next records and wait until the source has them."""
        self.producer.send(self.make(choose, self.sent, count), sent=lambda _: None)
        self.sent += count


@dataclass
class Shop:
    """The deployed shop, its sources and the runs of its jobs."""

    sandbox: Sandbox
    kinesis: Kinesalite
    choose: random.Random
    runs: list[LocalJob] = field(default_factory=list)

    def __post_init__(self) -> None:
        brokers, client = self.sandbox.kafka.bootstrap, self.kinesis.client()
        self.stream = self.sandbox.names.stream("payments")
        client.create_stream(StreamName=self.stream, ShardCount=2)
        client.get_waiter("stream_exists").wait(StreamName=self.stream)
        self.orders = Source(KafkaProducer(brokers, "orders"), orders_with_expected_results.orders)
        self.shipments = Source(KafkaProducer(brokers, "shipments"), orders_with_expected_results.orders)
        self.payments = Source(KinesisProducer(client, self.stream), orders_with_expected_results.payments)
        self.catalog = self.sandbox.spark.catalog(self.sandbox.names.warehouse_url)

    def start(self, job: str) -> LocalJob:
        """Start a job from its deployed launch document, its stream being kinesalite's."""
        launch = self.sandbox.launch_document(job)
        binds = ("--bind", f"kinesis.endpoint={self.kinesis.endpoint}")
        self.runs.append(self.sandbox.spark.submit(launch, f"{job}-{len(self.runs) + 1}", binds))
        return self.runs[-1]

    def rows(self, table: str, *columns: str) -> list[Row]:
        """Rows of a table; none where it is not there yet."""
        return lake_rows.read(self.catalog, self.sandbox.names.table(table), *columns)

    def count(self, table: str) -> int:
        """Rows of an append-only table, by its last snapshot."""
        return row_count(self.catalog, self.sandbox.names.table(table))

    def landed(self, table: str, ledger: Remembered) -> Difference:
        """Hold a landing table against a ledger."""
        result = compare_with_ledger(self.catalog, ledger, self.sandbox.names.table(table))
        others = result.unknown + result.misjudged + result.altered
        return Difference(table, result.produced, result.lost, result.duplicated, others)

    def files(self, table: str, *columns: str) -> Iterator[Row]:
        """Rows of the files that a Parquet sink's manifests name."""
        names = self.sandbox.names
        folder = f"{names.bucket('lake')}/parquet/{names.database}/{table}"
        return rows(of_stack(self.sandbox.stack), folder, *(columns or ("_id",)))

    def letters(self, table: str, *ledgers: Remembered) -> Difference:
        """Hold a direct query's dead letters against the spoiled records of its sources."""
        spoiled = Counter(
            (i, p)
            for ledger in ledgers
            for i, p in zip(ledger.ids, ledger.payloads, strict=True)
            if p is not None
        )
        return Difference.of(table, spoiled, Counter(self.rows(table, "_id", "_bytes")))

    def until_taxed(self, job: LocalJob) -> None:
        """Wait until every order that was sent is in the direct query's table, or among its dead letters."""
        ledger = self.orders.ledger
        both = orders_with_expected_results.taxed(ledger).total() + ledger.dirty_count
        self.wait(job, lambda: self.count("taxed") + self.count("taxed_letters") >= both, f"at {both} rows")

    def taxed(self) -> list[Difference]:
        """Hold the direct query's tables against the ledger."""
        held = Counter(self.rows("taxed", "_id", "n", "amount", "tax"))
        wanted = orders_with_expected_results.taxed(self.orders.ledger)
        return [Difference.of("taxed", wanted, held), self.letters("taxed_letters", self.orders.ledger)]

    def audited(self, job: str, query: str, left_out: int = 0) -> Difference:
        """Let ``millrace audit`` compare source and tables; ``left_out`` records are known to be in no table."""
        place = operate_running_sandbox.sandbox_deployment(self.sandbox.spark, self.sandbox.environment)
        stack = self.sandbox.stack.client
        place = replace(place, client=lambda s: self.kinesis.client() if s == "kinesis" else stack(s))
        now = datetime.now(UTC)
        told = audit_query(place, job, query, now - HOUR, now)
        (result,) = (each for each in told if isinstance(each, AuditResult))
        unaudited = [each.query for each in told if not isinstance(each, AuditResult)]
        if unaudited != (["boards/shipments"] if query == "boards" else []):
            raise SandboxError(f"not audited: {', '.join(unaudited)}")
        came = sum(hour.arrived or 0 for hour in result.hours)
        others = sum(hour.waiting for hour in result.hours)
        others += abs(sum(hour.left_out for hour in result.hours) - left_out)
        return Difference(f"audit of {query} ({result.method})", came, result.missing_records, 0, others)

    def batches(self, job: LocalJob, query: str | None = None) -> int:
        """Batches with records in them that a run told of."""
        told = (e for e in job.events() if e["event"] == "batch" and (e.get("read") or e.get("written")))
        return sum(1 for e in told if query in (None, e["query"]))

    def wait(
        self, job: LocalJob, reached: Callable[[], bool], what: str, seconds: float = END_SECONDS
    ) -> None:
        """Wait for something while a job runs.

        Raises
        ------
        SandboxError
            It did not come in time, or the job ended by itself.
        """
        job.process.wait_until(reached, seconds=seconds, what=what)

    def killed(self, job: str, kills: int, portion: Callable[[], None]) -> LocalJob:
        """Start and kill a job so many times, each time over a portion of records; return its last run."""
        for _ in range(kills):
            portion()
            run = self.start(job)
            self.wait(run, lambda run=run: self.batches(run) > 0, "a batch")  # type: ignore[misc]  # of this turn
            portion()
            more = self.batches(run) + self.choose.randrange(4)
            self.wait(run, lambda run=run, more=more: self.batches(run) >= more, "more batches")  # type: ignore[misc]  # of this turn
            time.sleep(self.choose.uniform(0.0, 1.5))
            run.process.kill()
        portion()
        return self.start(job)

    def end(self) -> None:
        """End all runs, and the producers while the broker is there to say goodbye to."""
        for run in self.runs:
            run.process.kill()
        del self.orders, self.shipments


def direct_query(shop: Shop, kills: int, count: int) -> list[Difference]:
    """A topic into a table without a landing table: rows with their tax, and dead letters beside them."""
    part = count // (2 * kills + 1)
    run = shop.killed("direct", kills, lambda: shop.orders.send(shop.choose, part))
    shop.until_taxed(run)
    _settle(run)
    free = len(shop.orders.ledger.whole()) - orders_with_expected_results.taxed(shop.orders.ledger).total()
    return [*shop.taxed(), shop.audited("direct", "tax", free)]


def direct_routes(shop: Shop, kills: int, count: int) -> list[Difference]:
    """Two topics, read once: one through a transform into a table, the other as it is into files."""
    part = count // (2 * kills + 1)

    def portion() -> None:
        shop.orders.send(shop.choose, part)
        shop.shipments.send(shop.choose, part)

    run = shop.killed("routed", kills, portion)
    orders, shipments = shop.orders.ledger, shop.shipments.ledger
    taxed = orders_with_expected_results.taxed(orders)
    shipped = Counter((i, o["n"], o["amount"]) for i, o in shipments.whole().items())
    dirty = orders.dirty_count + shipments.dirty_count
    shop.wait(
        run,
        lambda: shop.count("boards_taxed") + shop.count("boards_letters") >= taxed.total() + dirty,
        f"{taxed.total()} rows and {dirty} letters",
    )
    shop.wait(run, lambda: Counter(shop.files("shipped")).total() >= shipped.total(), "all files")
    _settle(run)
    held = Counter(shop.rows("boards_taxed", "_id", "n", "amount", "tax"))
    files = Counter(shop.files("shipped", "_id", "n", "amount"))
    letters = [shop.letters("boards_letters", orders, shipments)]
    result = shop.audited("routed", "boards", len(orders.whole()) - taxed.total())
    return [
        Difference.of("boards_taxed", taxed, held),
        Difference.of("shipped", shipped, files),
        *letters,
        result,
    ]


def stateful_query(shop: Shop, kills: int, count: int) -> list[Difference]:
    """Windows and distinct purchases; what is days late, after the watermark has passed, changes neither."""
    part, orders = count // (2 * kills + 2), shop.orders
    run = shop.killed("stateful", kills, lambda: orders.send(shop.choose, part))
    shop.wait(run, lambda: shop.count("orders_landed") >= len(orders.ledger), "all landed")
    shop.wait(run, lambda: _firsts(shop).exact and _sums(shop).exact, "sums and first orders")
    late = orders_with_expected_results.late(shop.choose, LATE)
    orders.producer.send(late, sent=lambda _: None)
    shop.wait(run, lambda: shop.count("orders_landed") >= len(orders.ledger), "the late ones landed")
    orders.send(shop.choose, part)
    # What came after the late ones is there: so they were looked at before.
    shop.wait(run, lambda: _firsts(shop).lost == 0 and _sums(shop).lost == 0, "what came after the late ones")
    _settle(run)
    return [shop.landed("orders_landed", orders.ledger), _sums(shop), _firsts(shop)]


def _sums(shop: Shop) -> Difference:
    held = Counter(shop.rows("sold", "since", "item", "orders", "amount"))
    return Difference.of("sold", orders_with_expected_results.sums(shop.orders.ledger), held)


def _firsts(shop: Shop) -> Difference:
    held = shop.rows("first_orders", "_id", "purchase", "amount")
    purchases = {order["purchase"] for order in shop.orders.ledger.good().values()}
    return Difference(
        "first_orders", len(purchases), *orders_with_expected_results.wrong_firsts(shop.orders.ledger, held)
    )


def joined_sources(shop: Shop, kills: int, count: int) -> list[Difference]:
    """Orders from the broker with payments from a stream whose shards are split and merged between the kills."""
    part = count // (2 * kills + 1)
    shipments, payments = shop.shipments, shop.payments

    def portion() -> None:
        shipments.send(shop.choose, part)
        payments.send(shop.choose, part)
        if len(shop.runs) % 2:
            split_shard(shop.kinesis.client(), shop.stream, shop.choose)
            shop.kinesis.client().get_waiter("stream_exists").wait(StreamName=shop.stream)

    run = shop.killed("joined", kills, portion)
    wanted = orders_with_expected_results.pairs(shipments.ledger, payments.ledger)
    shop.wait(run, lambda: shop.count("settled") >= wanted.total(), f"{wanted.total()} pairs")
    _settle(run)
    held = Counter(shop.rows("settled", "_id", "purchase", "amount", "paid"))
    tables = [("shipments_landed", shipments), ("payments_landed", payments)]
    result = [shop.audited("joined", query) for query in ("land-shipments", "land-payments")]
    return [
        *(shop.landed(t, source.ledger) for t, source in tables),
        Difference.of("settled", wanted, held),
        *result,
    ]


def _settle(run: LocalJob) -> None:
    """Give what is too much a while to show, then end the run."""
    time.sleep(5.0)
    run.process.kill()


ROUNDS: dict[str, Callable[[Shop, int, int], list[Difference]]] = {
    "direct_query": direct_query,
    "direct_routes": direct_routes,
    "stateful_query": stateful_query,
    "joined_sources": joined_sources,
}


@contextmanager
def opened(seed: int) -> Iterator[Shop]:
    """Deploy the shop, and end all its runs at last."""
    shutil.rmtree(HOME, ignore_errors=True)
    with ExitStack() as ending:
        stack, broker = ending.enter_context(running_localstack_and_kafka())
        kinesis = ending.enter_context(kinesalite.running(seed=seed))
        choose = random.Random(seed)
        shop = Shop(deployed(HOME, stack, broker), kinesis, choose)
        ending.callback(shop.end)
        yield shop


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=ROUNDS, default=list(ROUNDS), metavar="ROUND")
    parser.add_argument("--kills", type=int, default=5, help="of each job")
    parser.add_argument("--records", type=int, default=12_000, help="of each source")
    parser.add_argument("--seed", type=int, default=1)
    return parser


def main() -> int:
    """Kill, compare, print a line for each table."""
    options = parser().parse_args()
    tried: list[Difference] = []
    with opened(options.seed) as shop:
        for name in options.only:
            begun, before = time.monotonic(), len(shop.runs)
            lines = ROUNDS[name](shop, options.kills, options.records)
            batches = sum(shop.batches(run) for run in shop.runs[before:])
            sys.stdout.write(
                f"{name}: {options.kills} kills, {batches} batches, {time.monotonic() - begun:.0f} s\n"
            )
            for line in lines:
                sys.stdout.write(f"  {line.what}: {line.wanted} rows wanted, {line}\n")
            sys.stdout.flush()
            tried += lines
    whole = Difference.total(tried)
    sys.stdout.write(
        f"{', '.join(options.only)}: {options.kills} kills each, {whole.wanted:,} rows and figures wanted in "
        f"{len(tried)} tables and audits: {whole}\n"
    )
    return int(not all(line.exact for line in tried))


if __name__ == "__main__":
    raise SystemExit(main())
