"""Jobs of one query with two routes, as launch documents have them: landed in one table, or straight into two."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from millrace.sandbox.records.producer import KafkaProducer
from tests.faults.in_process_job import PARTITIONS, PORTION, Job
from tests.faults.record_sender import events

KINDS = {"route": "land", "direct-route": "direct"}
"""Kinds of documents, and the kind of job whose rows theirs are."""

_DECODED = ("format", "schema", "redact", "rules", "decompress_up_to", "enrich", "transform", "sink")


class RoutedJob(Job):
    """Two topics of one cluster, a job that reads both, its checkpoints and tables."""

    def __init__(self, spark: Any, broker: Any, home: Any, number: int, kind: str, catalog: str) -> None:
        self._routed = kind
        super().__init__(spark, broker, home, number, KINDS[kind], catalog=catalog)
        self._other = f"{self._topic}-more"
        broker.create_topic(self._other, PARTITIONS, any_time=True)
        self._others = KafkaProducer(broker.bootstrap, self._other)
        self._others.ledger = self._producer.ledger

    def send(self) -> None:
        """Send a portion to each topic."""
        super().send()
        self._others.send(events(PORTION, self._choose, first=self._first), sent=lambda _: None)
        self._first += PORTION

    def drop(self) -> None:
        """Remove what it left."""
        super().drop()
        self._spark.sql(f"DROP TABLE IF EXISTS {self._full('out_more')} PURGE")

    def _queries(self) -> list[dict[str, Any]]:
        [flat] = super()._queries()
        decoded = {key: flat.pop(key) for key in _DECODED if key in flat}
        source = flat.pop("source")
        routes = []
        for name, topic, out in (("events", self._topic, "out"), ("more", self._other, "out_more")):
            end = {"sink": {"kind": "iceberg", "table": self._table(out)}} if "sink" in decoded else {}
            whose = {
                "name": name,
                "changes_of": None,
                "origin": topic,
                "source": source | {"name": name, "topic": topic},
            }
            routes.append(whose | decoded | end)
        return [{**flat, "kind": self._routed, "routes": routes}]

    def _table(self, what: str) -> str:
        return f"in_process_routes.t{self._number}_{what}"

    def _rows(self, what: str, *columns: str) -> pa.Table:
        result = super()._rows(what, *columns)
        return pa.concat_tables([result, super()._rows("out_more", *columns)]) if what == "out" else result
