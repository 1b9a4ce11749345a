"""Fault test of ``millrace split``: two jobs share a busy topic whose partitions grow while they run."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]  # forgotten in its stubs
from ruamel.yaml import YAML

from millrace.sandbox.payloads.records_from_nycflights import RecordToSend
from millrace.sandbox.programs.child_processes import ChildProcess, SandboxError, wait_until
from millrace.sandbox.records.producer import KafkaProducer
from tests.faults import small_job_documents
from tests.faults.kafka_round_setup import KafkaStage
from tests.faults.record_sender import Feed
from tests.faults.shop_project import millrace

JOBS, GROWN = 2, 6
HOT = 0.5
"""Share of the records that has one key, and so one partition."""

ENVIRONMENT = """\
project: faults
account: "111122223333"
kafka:
  main: {{kind: external, bootstrap_servers: "{bootstrap}", authentication: none}}
streams:
  events:
    kind: kafka
    cluster: main
    topic: {topic}
    partitions: {partitions}
    existing: true
    traffic: {{records_per_second: 1000, record_size: 100B}}
jobs:
  events:
    engine: emr
    rate: {{records_per_second_per_core: 5000}}
    queries:
      land: {{kind: land, source: events, table: landed, schema: pipelines/faults/schemas/event.ddl}}
"""


class Skewed(KafkaProducer):
    """Gives every other record the same key."""

    def send(self, events: Iterable[RecordToSend], *, sent: Callable[[int], None]) -> None:
        super().send(self._skewed(events), sent=sent)

    def _skewed(self, events: Iterable[RecordToSend]) -> Iterator[RecordToSend]:
        for number, event in enumerate(events):
            yield dataclasses.replace(event, key=b"hot") if number * HOT % 1 == 0 else event


@dataclass
class SplitStage(KafkaStage):
    """Runs as many jobs as there are lists, into one table."""

    lists: list[list[int]] = field(default_factory=list)
    parts: list[ChildProcess] = field(default_factory=list)
    partitions: int = 4
    generation: int = 0
    number: int = 0

    def create_stream(self, shards: int) -> None:
        super().create_stream(shards)
        self.feed = Feed(Skewed(self.broker.bootstrap, self.stream), self.choose)

    def grow(self) -> None:
        """Add partitions; records with new keys go there from now on."""
        admin = self.broker.admin()  # its futures die with it
        (added,) = admin.create_partitions([NewPartitions(self.stream, GROWN)]).values()
        added.result()
        ledger = self.feed.producer.ledger
        # A client learns of new partitions within minutes, a new one at once.
        self.feed.producer = Skewed(self.broker.bootstrap, self.stream)
        self.feed.producer.ledger = ledger

    def share_out(self) -> None:
        """Take the lists that the command prints, after the environment that they make was found good."""
        project = self.home / "project"
        schemas = project / "pipelines" / "faults" / "schemas"
        schemas.mkdir(parents=True, exist_ok=True)
        (schemas / "event.ddl").write_text(self.ddl)
        (project / "environments").mkdir(exist_ok=True)
        file = project / "environments" / "faults.yaml"
        written = ENVIRONMENT.format(bootstrap=self.bootstrap, topic=self.stream, partitions=self.partitions)
        file.write_text(written)
        printed = millrace(project, "split", "events", "--env", "faults", "--jobs", str(JOBS))
        yaml = YAML(typ="safe")
        # Several documents' worth of keys, as a person would paste them.
        document, new = yaml.load(written), yaml.load(printed.split("jobs:\n", 1)[1])
        pinned = yaml.load(printed.split("jobs:\n", 1)[0]) or {}
        document["streams"]["events"] |= pinned.get("streams", {}).get("events", {})
        document["jobs"] = new
        text = io.StringIO()
        yaml.dump(document, text)
        file.write_text(text.getvalue())
        millrace(project, "validate", "--env", "faults", "--no-spark")
        self.lists = [job["queries"]["land"]["kafka"]["partitions"] for job in new.values()]
        self.generation += 1

    def start_all(self) -> None:
        """Start a job for each list."""
        self.parts = [self.start_part(number) for number in range(len(self.lists))]

    def start_part(self, number: int) -> ChildProcess:
        """Start one job, on the checkpoint that it has with these lists."""
        self.number = number
        return self.start()

    def _place(self) -> dict[str, Any]:
        part = self.home / f"part-{self.number}"
        part.mkdir(exist_ok=True)
        return {"home": part, "lake_home": self.home, "spark": {"spark.driver.memory": "1g"}}

    def _source(self) -> dict[str, Any]:
        mine, all_of_them = self.lists[self.number], sum(map(len, self.lists))
        return small_job_documents.topic(self.stream, 10_000, partitions=mine, partition_count=all_of_them)

    def _job_settings(self, schema: Path) -> dict[str, Any]:
        job = super()._job_settings(schema)
        return job | {"checkpoints": f"{self.home}/checkpoints/{self.generation}-{self.number}"}

    @property
    def live(self) -> Sequence[ChildProcess]:
        return self.parts

    def refused(self) -> list[str]:
        """What the jobs said when they failed."""
        return [e["error"] for e in self.reported() if e.get("error_class") == "LossError"]


def split_topic(stage: Any, records: int) -> None:
    """Two jobs, one killed; then the topic grows, both stop and say why, and new lists go on."""
    quarter = records // 4
    stage.feed.backlog(quarter)
    stage.share_out()
    stage.start_all()
    stage.until_landed(quarter // 2)
    stage.parts[0].kill()
    stage.feed.backlog(quarter)
    stage.parts[0] = stage.start_part(0)
    stage.until_complete()
    stage.grow()
    stage.feed.backlog(quarter)
    jobs, stage.parts = stage.parts, []
    for job in jobs:
        _until_ended(job)
    new = [
        error
        for error in stage.refused()
        if f"has {GROWN} partitions" in error and "no job reads 4, 5" in error
    ]
    if len(new) != JOBS:
        raise SandboxError(f"{len(new)} of {JOBS} jobs named the partitions that nobody reads")
    again = stage.start_part(0)
    _until_ended(again)
    if again.popen.returncode != 2 or "no job reads 4, 5" not in again.last_log_lines(25):
        raise SandboxError(
            f"a job with old lists ended with status {again.popen.returncode}:\n{again.last_log_lines(25)}"
        )
    stage.share_out()
    stage.start_all()
    stage.complete(records)


def _until_ended(job: ChildProcess) -> None:
    wait_until(
        lambda: not job.is_alive, seconds=180, what=f"ended beside partitions that nobody reads: {job.log}"
    )
