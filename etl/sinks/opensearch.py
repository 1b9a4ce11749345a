"""OpenSearch sink: a document for each row, by the bulk API, with the identity as document id."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import quote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ..launch.sinks import OpenSearchSinkSettings
from ..record.errors import SinkError, StartError
from ..record.job_run_context import JobRun
from ..services.backoff import START_SECONDS, Backoff
from .base import (
    DELETED,
    ORDER,
    BatchIdentity,
    Refuse,
    Reread,
    WriteCounts,
    refuse_unwritable_map_keys,
    version_if_rows_are_results,
)
from .delivery import python_task_writes
from .delivery.python_task_writes import Entry, Refused, RequestWriter, RowToSend, UnsupportedRowError
from .delivery.record_order import is_decided_by_arrival, is_not_older, order_after_replacement

MOST_DOCUMENTS = 1000
MOST_BYTES = 5 * 1024 * 1024
"""Limits of one request; "Bulk" of OpenSearch's performance guide advises 5 to 15 MiB, and small domains accept 10."""

ID_BYTES = 512
"""Longest id of a document (OpenSearch documentation, "Index document")."""

_SECONDS = 60
_BUSY = frozenset({408, 429, 500, 502, 503, 504})
"""Statuses, of a request or of a document in it, after which a retry may succeed."""

_INVALID, _NONE, _CONFLICT, _TOO_LARGE = 400, 404, 409, 413
_CLOSED = "index_closed_exception"
"""Error of a document with the status of an invalid one, although its index is the cause."""


@dataclass
class SignedHttpClient:
    """Client of a domain: signed requests over one connection, which is opened again after it breaks.

    Parameters
    ----------
    endpoint
        ``https://host[:port]``; ``http`` for a server on this machine.
    region
        Region of the domain, for the signature.
    """

    endpoint: str
    region: str
    _session: Any = field(init=False, repr=False)
    _credentials: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        from botocore.httpsession import URLLib3Session
        from botocore.session import get_session

        trusted: Any = os.environ.get("SSL_CERT_FILE") or True
        self._session = URLLib3Session(timeout=_SECONDS, verify=trusted)
        self._credentials = get_session().get_credentials()
        if self._credentials is None:
            raise SinkError(f"{self.endpoint}: the job has no AWS credentials with which to sign requests")

    def send(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """Send a request, signed by the job's role (AWS Signature Version 4); return its status and answer.

        Raises
        ------
        BotoCoreError
            The connection broke. The next request opens another one.
        """
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest

        request = AWSRequest(method, self.endpoint + path, {"Content-Type": "application/x-ndjson"}, body)
        # A role's credentials expire; the provider renews them.
        frozen = self._credentials.get_frozen_credentials()
        SigV4Auth(frozen, "es", self.region).add_auth(request)
        answer = self._session.send(request.prepare())
        return answer.status_code, answer.content

    def send_until_answered(
        self, method: str, path: str, waits: Backoff, body: bytes = b""
    ) -> tuple[int, bytes]:
        """Send a request, see :meth:`send`, and repeat it while the domain is busy or unreachable.

        Raises
        ------
        SinkError
            It is busy or unreachable for longer than the patience.
        """
        from botocore.exceptions import BotoCoreError

        while True:
            try:
                status, answer = self.send(method, path, body)
            except BotoCoreError as error:
                waits.wait(f"{type(error).__name__}: {error}")
                continue
            if status not in _BUSY:
                return status, answer
            waits.wait(f"status {status}: {answer[:300].decode(errors='replace')}")

    def close(self) -> None:
        """Close the connection."""
        self._session.close()


def bulk_action_line(identity: str, version: int | None, *, deletes: bool = False) -> bytes:
    """Return the line before a document.

    ``create`` leaves an existing document unchanged. ``index`` with a version replaces a document of the same or an earlier
    version, and is a conflict if a later one exists ("Index document", ``version_type``).
    """
    if version is None:
        return json.dumps({"create": {"_id": identity}}).encode()
    named = {"_id": identity, "version": version, "version_type": "external_gte"}
    return json.dumps({"delete" if deletes else "index": named}).encode()


@dataclass
class DocumentWriter(RequestWriter):
    """Writer of one partition's documents.

    Parameters
    ----------
    version
        Version for rows that are results, of which a later one replaces an earlier one; None for records.
    """

    MOST, MOST_BYTES = MOST_DOCUMENTS, MOST_BYTES

    client: SignedHttpClient
    index: str
    version: int | None
    _conflicts: list[RowToSend] = field(default_factory=list, repr=False)

    @staticmethod
    def document_id(record: RowToSend) -> str:
        """Return the id of a row's document: identities of two sources may be equal, so the source is a part of it."""
        return record.id if record.source is None else f"{record.source}/{record.id}"

    def to_entry_and_size(self, record: RowToSend) -> tuple[bytes, int]:
        """Return the lines of a document, or of a delete."""
        identity = self.document_id(record)
        length = len(identity.encode())
        if not 0 < length <= ID_BYTES:
            raise UnsupportedRowError(f"the id has {length} bytes; OpenSearch allows 1 to {ID_BYTES} bytes")
        entry = bulk_action_line(identity, self.version, deletes=record.deleted) + b"\n"
        entry += b"" if record.deleted else row_json_to_document_bytes(record.text) + b"\n"
        return entry, len(entry)

    def write_rest_and_yield_refused(self) -> Iterator[Refused]:
        """Write the waiting rows, repeat those for which the domain was busy, and yield those that are refused."""
        yield from self._send_and_yield_refused(self.take_waiting_entries())

    def _send_and_yield_refused(self, waiting: list[Entry]) -> Iterator[Refused]:
        while waiting:
            body = b"".join(entry for _, entry in waiting)
            status, answer = self.client.send_until_answered(
                "POST", f"/{quote(self.index)}/_bulk", self.backoff, body
            )
            if status == _TOO_LARGE:
                if len(waiting) == 1:
                    yield (
                        waiting[0][0],
                        f"the document of {len(waiting[0][1])} bytes is larger than the domain accepts",
                    )
                    return
                # The domain's limit is lower than this code's: send halves.
                half = len(waiting) // 2
                yield from self._send_and_yield_refused(waiting[:half])
                yield from self._send_and_yield_refused(waiting[half:])
                return
            items = self._entries_of_answer(status, answer, "items", "a bulk request", len(waiting))
            left: list[Entry] = []
            for (record, entry), item in zip(waiting, items, strict=True):
                [result] = item.values()
                code = result["status"]
                if code in _BUSY:
                    left.append((record, entry))
                elif code == _CONFLICT:
                    self._conflicts.append(record)  # it exists: a replay; or a later result exists
                elif code < 300:
                    self.written += 1
                elif code == _NONE and "error" not in result:
                    continue  # the document to delete does not exist
                elif code == _INVALID and result["error"]["type"] != _CLOSED:
                    yield record, f"{code}: {json.dumps(result['error'])[:1000]}"
                else:
                    # The index is gone, closed, blocked (as AWS does where a domain lacks space) or forbidden.
                    error = json.dumps(result.get("error"))[:500]
                    raise SinkError(f"OpenSearch index {self.index}: status {code} for a document: {error}")
            self.backoff.wait_before_sending_rest(len(waiting), len(left), "documents: the domain is busy")
            waiting = left

    def _entries_of_answer(
        self, status: int, answer: bytes, name: str, request: str, count: int
    ) -> list[dict[str, Any]]:
        """Return a list in the domain's answer: an entry for each document of the request, in order.

        Raises
        ------
        SinkError
            The domain refuses the request itself, or its answer is none of such a request.
        """
        what = f"OpenSearch index {self.index}"
        if status != 200:
            raise SinkError(f"{what}: status {status}: {answer[:500].decode(errors='replace')}")
        try:
            entries = [*json.loads(answer)[name]]
        except (ValueError, KeyError, TypeError) as error:
            raise SinkError(f"{what}: unexpected response to {request}: {answer[:200]!r}") from error
        if len(entries) != count:
            raise SinkError(f"{what}: {count} documents were sent, but the response lists {len(entries)}")
        return entries


@dataclass
class LatestDocumentWriter(DocumentWriter):
    """Writer of the last records of keys, each of which replaces or deletes only the document of an older one.

    A document's order is compared here, and the write is on condition that the document did not change since (``if_seq_no``,
    "Index document"). A script in the domain would do it in one request, but read the document's numbers as doubles.
    """

    def write_rest_and_yield_refused(self) -> Iterator[Refused]:
        """Write the waiting rows, compared again where documents changed meanwhile; yield those that are refused."""
        waiting = self.take_waiting_entries()
        while waiting:
            self._conflicts.clear()
            yield from self._send_and_yield_refused(self._rows_later_than_documents(waiting))
            again = {id(record) for record in self._conflicts}
            waiting = [entry for entry in waiting if id(entry[0]) in again]
            self.backoff.wait_before_sending_rest(len(again) + 1, len(again), "documents: others write them")

    def _rows_later_than_documents(self, waiting: list[Entry]) -> list[Entry]:
        """Return the rows that are later than their documents, with their actions."""
        ids = [self.document_id(record) for record, _ in waiting]
        body = json.dumps({"docs": [{"_id": each, "_source": [f"millrace.{ORDER[1:]}"]} for each in ids]})
        while True:
            status, answer = self.client.send_until_answered(
                "POST", f"/{quote(self.index)}/_mget", self.backoff, body.encode()
            )
            there = self._entries_of_answer(status, answer, "docs", "a request of _mget", len(waiting))
            # Such as a shard without a copy while a node starts again: whether the document exists is unknown.
            unread = [each["error"] for each in there if "error" in each]
            if not unread:
                break
            reason = json.dumps(unread[0])[:300]
            self.backoff.wait(f"{len(unread)} of {len(there)} documents could not be read: {reason}")
        later: list[Entry] = []
        for (record, _), identity, result in zip(waiting, ids, there, strict=True):
            order = str(record.order)
            named: dict[str, Any] = {"_id": identity}
            if result.get("found"):
                old = result.get("_source", {}).get("millrace", {}).get(ORDER[1:])
                self.unordered += old is not None and is_decided_by_arrival(order, old)
                if old is not None and not is_not_older(order, old):
                    continue
                order = order if old is None else order_after_replacement(order, old)
                named |= {"if_seq_no": result["_seq_no"], "if_primary_term": result["_primary_term"]}
            elif record.deleted:
                continue
            if record.deleted:
                later.append((record, json.dumps({"delete": named}).encode() + b"\n"))
                continue
            kind = "index" if result.get("found") else "create"
            line = json.dumps({kind: named}).encode()
            later.append((record, line + b"\n" + row_json_to_document_bytes(record.text, order) + b"\n"))
        return later


RESERVED = "_"
"""Prefix of names that OpenSearch reserves at the top level of a document (``_id``, ``_source``)."""


_JSON = json.JSONDecoder()


def row_json_to_document_bytes(text: str, order: str | None = None) -> bytes:
    """Convert a row's JSON to a document: envelope columns are put below ``millrace``, without their underscore.

    Parameters
    ----------
    order
        Order in place of the row's own; None to keep it.

    Values are copied as text: parsed and written again, a decimal of many digits would be another number.

    Examples
    --------
    >>> row_json_to_document_bytes('{"_id":"t/0/1","flight":7}')
    b'{"flight":7,"millrace":{"id":"t/0/1"}}'
    """
    theirs, ours = [], []
    for name, value in _members_of_json_object(text):
        if name == DELETED:
            continue
        if name == ORDER and order is not None:
            value = json.dumps(order)
        if name.startswith(RESERVED):
            ours.append(f"{json.dumps(name[1:], ensure_ascii=False)}:{value}")
        else:
            theirs.append(f"{json.dumps(name, ensure_ascii=False)}:{value}")
    theirs.append(f'"millrace":{{{",".join(ours)}}}')
    return ("{" + ",".join(theirs) + "}").encode()


def _members_of_json_object(text: str) -> Iterator[tuple[str, str]]:
    """Yield names and values of an object as Spark writes it: without spaces in between."""
    at = 1
    while text[at] != "}":
        name, colon = _JSON.raw_decode(text, at)
        _, end = _JSON.raw_decode(text, colon + 1)
        yield name, text[colon + 1 : end]
        at = end + (text[end] == ",")


def open_sink(settings: OpenSearchSinkSettings, _run: JobRun, _key: tuple[str, ...]) -> OpenSearchSink:
    """Make the sink, see :func:`etl.sinks.base.open_sink`."""
    return OpenSearchSink(settings)


def _make_writer(
    kind: type[DocumentWriter], settings: OpenSearchSinkSettings, version: int | None
) -> DocumentWriter:
    """Make a writer in the task of a partition."""
    reached = SignedHttpClient(settings.endpoint, settings.region)
    return kind(reached, Backoff(f"OpenSearch index {settings.index}"), settings.index, version)


@dataclass(frozen=True)
class OpenSearchSink:
    """Existing index; its owner defines the mapping.

    Parameters
    ----------
    settings
        Domain and index.
    """

    settings: OpenSearchSinkSettings
    acts_on_rdd: bool = True

    def prepare(self, spark: SparkSession, schema: StructType) -> None:
        """Check that the index exists.

        Raises
        ------
        StartError
            The index does not exist, the domain cannot be reached, or a column has the reserved name ``millrace``.
        """
        if "millrace" in schema.fieldNames():
            raise StartError(
                "OpenSearch: the column name `millrace` is reserved for identity and times; rename the "
                "column in the transform"
            )
        where = f"{self.settings.endpoint}/{self.settings.index}"
        refuse_unwritable_map_keys(schema, where)
        waits = Backoff("at the start", patience=START_SECONDS)
        try:
            with closing(SignedHttpClient(self.settings.endpoint, self.settings.region)) as reached:
                status, _ = reached.send_until_answered("HEAD", f"/{quote(self.settings.index)}", waits)
        except SinkError as error:
            raise StartError(f"{where}: {error}") from error
        if status != 200:
            raise StartError(
                f"{where}: the domain responded with status {status}; create the index with its mapping "
                "before the job starts"
            )

    def write(
        self,
        rows: DataFrame,
        place: BatchIdentity | None,
        refuse: Refuse,
        reread: Reread | None = None,
    ) -> WriteCounts:
        """Write a document for each row.

        Guarantee: each identity is one document, after any kill, retry or replay. An existing record
        is not changed and counts as a duplicate; a result replaces the one with
        its key, unless that is of a later batch, or of a later record with ``latest_by``; then the new one counts as a
        duplicate. A batch that fails half-way has written
        a part of its documents, and finds them when it is repeated. Documents that do not fit the mapping become dead letters.
        """
        kind = LatestDocumentWriter if ORDER in rows.columns else DocumentWriter
        opening = partial(_make_writer, kind, self.settings, version_if_rows_are_results(rows, place))
        return python_task_writes.send_batch(rows, F.lit(None), opening, refuse)
