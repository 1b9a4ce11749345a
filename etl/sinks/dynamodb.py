"""DynamoDB sink: an item for each row, keyed by identity."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ..launch.sinks import DynamoDbSinkSettings
from ..record.errors import SinkError, StartError
from ..record.job_run_context import JobRun
from ..services import aws_clients
from ..services.backoff import Backoff
from .base import (
    ORDER,
    BatchIdentity,
    Refuse,
    Reread,
    WriteCounts,
    refuse_unwritable_map_keys,
    version_if_rows_are_results,
)
from .delivery import python_task_writes
from .delivery.dynamodb_items import RowToItemConverter
from .delivery.python_task_writes import Entry, Refused, RequestWriter, RowToSend
from .delivery.record_order import (
    is_decided_by_arrival,
    is_not_older,
    lane_and_position,
    order_after_replacement,
)

MOST_ITEMS = 25
MOST_BYTES = 16 * 1024 * 1024
"""Limits of one BatchWriteItem (DynamoDB API reference)."""

VERSION = "_version"
"""Attribute of an item that is a result: the version of its batch, see :attr:`etl.sinks.base.BatchIdentity.version`."""

NOT_LATER = "attribute_not_exists(#version) OR #version <= :version"
"""Condition of a result's write. An item of another program has no version."""

LANE, PLACE = "_lane", "_place"
"""Attributes beside ``_order``: a condition can compare attributes, but not parts of them."""

LATER = "attribute_not_exists(#order) OR (#lane = :lane AND #place <= :place) OR (#lane <> :lane AND #order <= :order)"
"""Condition of a delete by the last record of a key (:func:`etl.sinks.delivery.record_order.not_older_sql`)."""

LATER_WITH_TIME = (
    "attribute_not_exists(#order) OR (#order <= :order AND (#lane <> :lane OR #place <= :place))"
)
"""The same of a put, which also needs a time that is not earlier than the item's: it becomes the lane's latest arrival."""

AT_ONCE = 10
"""Concurrent requests of a task, one result each: equal to botocore's number of connections (``max_pool_connections``)."""

MOST_RESULTS = 200
"""Results per round, ``AT_ONCE`` at a time: the throttled ones are repeated together after one wait."""

_OF_AN_ITEM = frozenset({"ItemCollectionSizeLimitExceededException", "ValidationException"})
"""Error codes that a single item of a request can cause."""


@dataclass
class ItemWriter(RequestWriter):
    """Writer of one partition's items."""

    MOST, MOST_BYTES = MOST_ITEMS, MOST_BYTES

    table: str
    form: RowToItemConverter

    def to_entry_and_size(self, record: RowToSend) -> tuple[dict[str, Any], int]:
        """Return an item, see :meth:`etl.sinks.delivery.dynamodb_items.RowToItemConverter.item_and_json_size`."""
        return self.form.item_and_json_size(record.text)

    def unique_key(self, entry: Any) -> Any:
        """Return the item's key: one request must not name an item twice."""
        return tuple(str(entry.get(name)) for name in self.form.key)

    def write_rest_and_yield_refused(self) -> Iterator[Refused]:
        """Write the waiting rows, and yield those that are refused."""
        from botocore.exceptions import ClientError

        taken = self.take_waiting_entries()
        waiting = [item for _, item in taken]
        try:
            while waiting:
                waiting = self._put_items_and_return_unprocessed(waiting)
            self.written += len(taken)
        except ClientError as error:
            if aws_clients.error_code(error) not in _OF_AN_ITEM:
                raise SinkError(f"DynamoDB table {self.table}: {error}") from error
            # One item can fail a request of many; single requests show which one. Items that the table
            # already has are put again, unchanged.
            for record, item in taken:
                yield from self._put_item_or_yield_refused(record, item)

    def _put_items_and_return_unprocessed(self, items: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Write items in one request; return those that were not processed."""
        puts = {self.table: [{"PutRequest": {"Item": item}} for item in items]}
        answer = aws_clients.call_until_answered(
            lambda: self.client.batch_write_item(RequestItems=puts), self.backoff
        )
        left = [put["PutRequest"]["Item"] for put in answer.get("UnprocessedItems", {}).get(self.table, [])]
        self.backoff.wait_before_sending_rest(len(items), len(left), "items were left unprocessed")
        return left

    def _put_item_or_yield_refused(self, record: RowToSend, item: dict[str, Any]) -> Iterator[Refused]:
        from botocore.exceptions import ClientError

        try:
            aws_clients.call_until_answered(
                lambda: self.client.put_item(TableName=self.table, Item=item), self.backoff
            )
        except ClientError as error:
            if aws_clients.error_code(error) not in _OF_AN_ITEM:
                raise SinkError(f"DynamoDB table {self.table}: {error}") from error
            yield record, str(error)
        else:
            self.backoff.reset_after_write()
            self.written += 1


@dataclass
class ResultWriter(ItemWriter):
    """Writer of one partition's results that replaces no result of a later batch, and no later record of its key.

    Each has its own request: BatchWriteItem has no condition (DynamoDB API reference), and a transaction costs twice as much.
    """

    MOST = MOST_RESULTS

    version: int | None = None
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(AT_ONCE), repr=False)

    def to_entry_and_size(self, record: RowToSend) -> tuple[dict[str, Any], int]:
        """Return a result with its version, or with the parts of its record's order."""
        if record.order is None:
            return self.form.item_and_json_size(record.text, {VERSION: {"N": str(self.version)}})
        lane, place = lane_and_position(record.order)
        return self.form.item_and_json_size(record.text, {LANE: {"S": lane}, PLACE: {"S": place}})

    def write_rest_and_yield_refused(self) -> Iterator[Refused]:
        """Write the waiting rows, repeat the throttled ones, and yield those that are refused."""
        waiting = self.take_waiting_entries()
        while waiting:
            answers = self._pool.map(self._try_put_result, waiting)
            left, why = [], ""
            for entry, answer in zip(waiting, answers, strict=True):
                if isinstance(answer, aws_clients.RetryableError):
                    left.append(entry)
                    why = str(answer)
                elif isinstance(answer, Exception):
                    yield entry[0], str(answer)
                else:
                    self.written += answer
            self.backoff.wait_before_sending_rest(len(waiting), len(left), f"items: {why}")
            waiting = left

    def _try_put_result(self, entry: Entry) -> bool | Exception:
        """Put or delete one result, once: return True, False if a later one exists, or the error."""
        from botocore.exceptions import ClientError

        record, item = entry
        names = (VERSION,) if record.order is None else (ORDER, LANE, PLACE)
        request = {
            "ConditionExpression": (
                NOT_LATER if record.order is None else LATER if record.deleted else LATER_WITH_TIME
            ),
            "ExpressionAttributeNames": {f"#{name[1:]}": name for name in names},
            "ExpressionAttributeValues": {f":{name[1:]}": item[name] for name in names},
        }
        if record.deleted:
            key = {name: item[name] for name in self.form.key}
            ask = partial(self.client.delete_item, TableName=self.table, Key=key, **request)
        else:
            request |= {"ReturnValues": "ALL_OLD", "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
            ask = partial(self.client.put_item, TableName=self.table, Item=item, **request)
        try:
            old = aws_clients.call_and_classify_errors(ask).get("Attributes", {}).get(ORDER)
            if old is not None and is_decided_by_arrival(str(record.order), old["S"]):
                self.unordered += 1
        except aws_clients.RetryableError as busy:
            return busy
        except ClientError as error:
            if aws_clients.error_code(error) == "ConditionalCheckFailedException":
                answer: Any = error.response
                later = answer.get("Item", {}).get(ORDER)
                if record.order is None or later is None or not is_not_older(record.order, later["S"]):
                    return False
                # The earlier record of the lane arrived later.
                order = order_after_replacement(record.order, later["S"])
                return self._try_put_result((record, {**item, ORDER: {"S": order}}))
            if aws_clients.error_code(error) not in _OF_AN_ITEM:
                raise SinkError(f"DynamoDB table {self.table}: {error}") from error
            return error
        return True

    def close(self) -> None:
        """End the threads, and close the client's connections."""
        self._pool.shutdown(cancel_futures=True)
        super().close()


def open_sink(settings: DynamoDbSinkSettings, run: JobRun, _key: tuple[str, ...]) -> DynamoDbSink:
    """Make the sink, see :func:`etl.sinks.base.open_sink`."""
    return DynamoDbSink(settings, run.binds.get("dynamodb.endpoint"))


def _open_writer(
    settings: DynamoDbSinkSettings,
    endpoint: str | None,
    form: RowToItemConverter,
    version: int | None,
    *,
    replaces: bool,
) -> ItemWriter:
    """Make a writer in the task of a partition."""
    client, waits = (
        aws_clients.make_client("dynamodb", settings.region, endpoint),
        Backoff(f"DynamoDB table {settings.table}"),
    )
    if not replaces:
        return ItemWriter(client, waits, settings.table, form)
    return ResultWriter(client, waits, settings.table, form, version)


@dataclass(frozen=True)
class DynamoDbSink:
    """Existing DynamoDB table, with ``_id`` (text) as partition key.

    If rows are records, ``_source`` (text) is the sort key. Empty fields are left out of an
    item; times are text in ISO 8601.

    Parameters
    ----------
    endpoint
        Endpoint other than the region's own.
    """

    settings: DynamoDbSinkSettings
    endpoint: str | None = None
    acts_on_rdd: bool = True

    def prepare(self, spark: SparkSession, schema: StructType) -> None:
        """Check that the table exists and is keyed by identity.

        Raises
        ------
        StartError
            It does not exist, has another key, or cannot be described.
        """
        name, wanted = self.settings.table, RowToItemConverter.for_columns(schema).key
        refuse_unwritable_map_keys(schema, f"DynamoDB table {name}")
        client = aws_clients.make_client("dynamodb", self.settings.region, self.endpoint)
        description = aws_clients.call_at_start(
            f"DynamoDB table {name}", client, lambda asked: asked.describe_table(TableName=name)
        )["Table"]
        kinds = {a["AttributeName"]: a["AttributeType"] for a in description["AttributeDefinitions"]}
        keys = tuple(
            k["AttributeName"] for k in sorted(description["KeySchema"], key=lambda k: str(k["KeyType"]))
        )
        if keys != wanted or any(kinds[k] != "S" for k in keys):
            have = ", ".join(f"{k} ({kinds[k]})" for k in keys)
            raise StartError(
                f"DynamoDB table {name}: its key is {have}, but rows of this query need "
                f"{', '.join(f'{k} (S)' for k in wanted)}; create a table with this key"
            )

    def write(
        self,
        rows: DataFrame,
        place: BatchIdentity | None,
        refuse: Refuse,
        reread: Reread | None = None,
    ) -> WriteCounts:
        """Put an item for each row.

        Guarantee: each identity is one item, after any kill, retry or replay, and in whichever batches it
        occurs: a repeated put replaces the item with the same one. A batch that fails half-way has put a part
        of its items, and puts them again when it is repeated. Readers may see a batch grow. The table
        does not distinguish new items from known ones, so all that it accepted count as written. A result replaces
        the one with its key, unless that is of a later batch, or of a later record with ``latest_by``; then the new one
        counts as a duplicate. If two programs
        write a record's item, the later write wins.
        """
        form, version = RowToItemConverter.for_columns(rows.schema), version_if_rows_are_results(rows, place)
        replaces = version is not None or ORDER in rows.columns
        opening = partial(_open_writer, self.settings, self.endpoint, form, version, replaces=replaces)
        return python_task_writes.send_batch(rows, F.lit(None), opening, refuse)
