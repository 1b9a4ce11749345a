"""Every payload format through a real broker and a killed job: ``python -m tests.faults.formats --records 20000``.

``millrace traffic``'s records, dirty ones and duplicates among them, go into a topic while the job lands them;
it is killed with -9 in the middle and started again. Then the landing table is held against the
ledger: each record once, the good ones good, the bad ones byte for byte. Prints a JSON object a format; the
exit status is 0 only if all are exact.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import random
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millrace.config.formats import PayloadFormat
from millrace.config.formats.avro import AvroFormat
from millrace.config.formats.csv import CsvFormat
from millrace.config.formats.json import JsonFormat
from millrace.config.formats.protobuf import ProtobufFormat
from millrace.config.formats.text import TextFormat
from millrace.sandbox import jars
from millrace.sandbox.payloads import payloads
from millrace.sandbox.process import RUN
from millrace.sandbox.producer import KafkaProducer
from millrace.sandbox.traffic import Feed, Shape, send
from millrace.sandbox.traffic_values import Generator
from tests import orders
from tests.faults.kafka import KafkaStage

FIELDS = "id BIGINT NOT NULL, city STRING NOT NULL, price DECIMAL(9,2), paid BOOLEAN NOT NULL, at TIMESTAMP"
AVSC = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "city", "type": "string"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
    ],
}
FORMATS: dict[str, tuple[str, bytes, PayloadFormat]] = {
    "json": ("o.ddl", FIELDS.encode(), JsonFormat()),
    "csv": ("o.ddl", FIELDS.encode(), CsvFormat(kind="csv")),
    "text": ("o.ddl", b"line STRING", TextFormat(kind="text")),
    "avro": ("o.avsc", json.dumps(AVSC).encode(), AvroFormat(kind="avro")),
    "protobuf": ("o.desc", orders.DESCRIPTOR, ProtobufFormat(kind="protobuf", message=orders.NAME)),
}


@dataclass
class FormatStage(KafkaStage):
    """A topic whose records have a format, and the job that lands it."""

    form: PayloadFormat = dataclasses.field(default_factory=JsonFormat)
    schema: Path = Path("o.ddl")

    def _job_settings(self, schema: Path) -> dict[str, Any]:
        job = super()._job_settings(schema)
        job["queries"][0] |= {"format": self.form.settings(), "schema": str(self.schema)}
        return job

    def _jars(self) -> list[Path]:
        return [*super()._jars(), *jars.files("avro")]


def play(name: str, records: int, seed: int) -> dict[str, Any]:
    """Send, kill, land, compare."""
    file, schema, form = FORMATS[name]
    home = RUN / f"formats-{name}"
    choose = random.Random(seed)
    stage = FormatStage(_NoKinesis(), home, f"formats-{name}", choose, form=form, schema=home / file)
    (home / file).write_bytes(schema)
    started = time.monotonic()
    stage.create_stream(2)
    try:
        written = payloads(form, stage.schema)
        shape = Shape(per_second=records / 10, dirty=0.02, duplicates=0.01, hot=0.2)
        feed = Feed(Generator(written.schema, choose), written, shape, choose)
        stage.feed.producer = producer = KafkaProducer(stage._broker.bootstrap, stage.stream)
        sending = threading.Thread(
            target=send,
            args=(feed, producer),
            kwargs={"most": records, "seconds": None, "stop": threading.Event(), "sent": lambda _: None},
        )
        sending.start()
        stage.start()
        stage.until(lambda: stage.landed() > records // 10, 120, "a tenth has landed")
        time.sleep(choose.uniform(0, 1))
        stage.job.kill()
        sending.join()
        stage.start()
        stage.until_complete()
        account = stage.account()
        ended = time.monotonic()
    finally:
        stage.close()
    found = dataclasses.asdict(account)
    return {"format": name, "exact": account.exact, "seconds": round(ended - started, 1), **found}


class _NoKinesis:
    """Stands where a stage has its Kinesis; a topic needs none."""

    endpoint = ""

    def client(self) -> None:
        return None


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="tests.faults.formats", description=__doc__.splitlines()[0])
    made.add_argument("--records", type=int, default=20_000)
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--only", nargs="+", choices=FORMATS, default=list(FORMATS))
    return made


def main(arguments: Sequence[str]) -> int:
    given = parser().parse_args(arguments)
    exact = True
    for name in given.only:
        found = play(name, given.records, given.seed)
        exact = exact and found["exact"] and found["produced"] == given.records
        print(json.dumps(found), flush=True)  # noqa: T201 - what the program is for
    return 0 if exact else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
