"""Checks of sinks: that what they name is there, that rows they refuse have a place, that no two share one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path as FilePath

from millrace.config.document import is_file
from millrace.config.explain import nearest
from millrace.config.model import EmrJob, Environment, Job, KafkaTopic, KinesisStream, MskCluster
from millrace.config.problems import MISSING, Finding, Path
from millrace.config.queries import (
    DeriveQuery,
    LandQuery,
    Query,
    RouteQuery,
    SourceQuery,
    Written,
    written,
)
from millrace.config.sinks import DeltaSink, JdbcSink, KafkaSink, KinesisSink, ParquetSink

MIB = 1024**2

KINESIS_RECORD = MIB
"""Bytes of the largest record, where the stream does not say (Kinesis developer guide, "Quotas and limits")."""

KAFKA_MESSAGE = 1023 * 1024
"""Bytes of the largest message of a topic that is made here: 1,048,588 by default with all that is around key, value and
headers (Kafka's documentation, ``max.message.bytes``)."""

_KAFKA_BUFFER = 31 * MIB
"""... and of any topic: the producer's buffer holds 32 MiB (the same, ``buffer.memory``)."""

_LOGIN = re.compile(r"[?&](user|password|sslpassword|username)=", re.IGNORECASE)

_URL_OPTIONS = frozenset(
    [
        "adaptiveFetch",
        "allowEncodingChanges",
        "assumeMinServerVersion",
        "autosave",
        "binaryTransfer",
        "currentSchema",
        "defaultRowFetchSize",
        "hostRecheckSeconds",
        "loadBalanceHosts",
        "options",
        "prepareThreshold",
        "preparedStatementCacheQueries",
        "preparedStatementCacheSizeMiB",
        "receiveBufferSize",
        "sendBufferSize",
        "stringtype",
        "targetServerType",
    ]
)
"""Parameters of pgjdbc that change neither who is talked to nor which class is loaded (its documentation, "Connection
Parameters"). What the URL says wins over all else, so the others are for the sink's own keys."""

_HERE = ("localhost", "127.0.0.1")
_RDS = re.compile(r"(?!.*\.proxy-).*\.rds\.amazonaws\.com(\.cn)?")
"""Servers of RDS and Aurora show certificates of RDS' own authority; its proxies, of one that Java knows (RDS user guide,
"Using SSL/TLS to encrypt a connection")."""


def check_sink(
    path: Path, end: Written, query: Query, job: Job, environment: Environment, root: FilePath
) -> Iterator[Finding]:
    """Check one query's sink, or that of one of its routes.

    Parameters
    ----------
    path
        Of the query, or of the route.
    end
        What has the sink.
    query, job, environment
        The query, its job, and the environment's valid parts.
    root
        The project, where certificates are looked up.
    """
    sink, here = end.sink, (*path, "sink")
    if isinstance(query, DeriveQuery):
        yield from _letters(path, query)
        if query.key and not sink.replaces:
            yield Finding(
                (*here, "kind"),
                sink.kind,
                f"with {'latest_by' if query.latest_by else 'state.key'} a sink in which a later result replaces an "
                "earlier one: iceberg, jdbc, dynamodb, "
                "opensearch, kafka or kinesis",
            )
    if isinstance(sink, ParquetSink | DeltaSink) and sink.file_size < MIB:
        yield Finding(
            (*here, "file_size"),
            f"{int(sink.file_size)}B",
            "at least 1MiB: a batch is written into as many files as its bytes take",
        )
    if isinstance(sink, KafkaSink):
        yield from _stream((*here, "topic"), sink.topic, query, environment, kind=KafkaTopic)
        yield from _message((*here, "max_record_size"), sink, environment)
    elif isinstance(sink, KinesisSink):
        yield from _stream((*here, "stream"), sink.stream, query, environment, kind=KinesisStream)
        yield from _record((*here, "max_record_size"), sink, environment)
    elif isinstance(sink, JdbcSink):
        yield from _url((*here, "url"), sink)
        yield from _tls(here, sink, root)
    elif isinstance(sink, DeltaSink) and isinstance(job, EmrJob):
        yield Finding(
            (*here, "kind"), sink.kind, "a sink other than delta, or a Glue job, which ships Delta's jars"
        )


def _url(path: Path, sink: JdbcSink) -> Iterator[Finding]:
    if _LOGIN.search(sink.url):
        yield Finding(path, sink.url, "a URL without user and password: sink.secret names both")
    elif not 0 < sink.port < 65536:
        yield Finding(path, sink.url, "a port from 1 to 65535")


def _tls(here: Path, sink: JdbcSink, root: FilePath) -> Iterator[Finding]:
    """The server is known by its certificate, or is on this machine."""
    refused = [each for each in sink.options if each not in _URL_OPTIONS]
    if refused and not _LOGIN.search(sink.url):
        yield Finding(
            (*here, "url"),
            sink.url,
            f"a URL without {', '.join(refused)}: TLS is set by the sink's keys tls and authorities",
        )
    if sink.tls == "off":
        if sink.host not in _HERE:
            yield Finding((*here, "tls"), "off", f"verify-full: only {' and '.join(_HERE)} go without")
        if sink.authorities is not None:
            yield Finding((*here, "authorities"), sink.authorities, "nothing with tls: off")
    elif sink.authorities is not None:
        yield from _authorities((*here, "authorities"), sink.authorities, root)
    elif _RDS.fullmatch(sink.host):
        yield Finding(
            (*here, "authorities"),
            MISSING,
            "a .pem file below pipelines/: Java does not know RDS' own authority, which signs this server's certificate",
            "https://truststore.pki.rds.amazonaws.com/REGION/REGION-bundle.pem",
        )


def _authorities(path: Path, name: str, root: FilePath) -> Iterator[Finding]:
    from cryptography import x509

    file = (root / name).resolve()
    if file.suffix != ".pem" or not file.is_relative_to((root / "pipelines").resolve()) or not is_file(file):
        yield Finding(path, name, "a .pem file below pipelines/ that exists: it travels with the job")
        return
    content = file.read_bytes()
    if b"PRIVATE KEY" in content:
        yield Finding(path, name, "certificates alone: this file holds a private key")
        return
    try:
        found = x509.load_pem_x509_certificates(content)
    except ValueError as error:
        yield Finding(path, name, f"certificates in PEM: {error}")
        return
    now = datetime.now(UTC)
    if all(each.not_valid_after_utc < now for each in found):
        yield Finding(path, name, "a certificate that is still valid")


def check_places(environment: Environment) -> Iterator[Finding]:
    """Refuse two queries that write one place: neither would know what the other replaced.

    Parameters
    ----------
    environment
        Its valid parts.
    """
    writers: dict[str, str] = {}
    for job_name, job in environment.jobs.items():
        for name, query in job.queries.items():
            for at, end in written(query).items():
                if end.sink.kind == "iceberg":
                    continue
                key, place = end.sink.place
                path = ("jobs", job_name, "queries", name, *at, "sink", key)
                first = writers.setdefault(place, ".".join(path))
                if first != ".".join(path):
                    value = str(getattr(end.sink, key))
                    yield Finding(path, value, f"what no other query writes; {first} names it, too")


def _letters(path: Path, query: DeriveQuery) -> Iterator[Finding]:
    here = (*path, "dead_letters")
    if query.sink.refuses and query.dead_letters is None:
        yield Finding(here, MISSING, f"a table for the rows that the {query.sink.kind} sink refuses")
    if not query.sink.refuses and query.dead_letters is not None:
        yield Finding(
            here, query.dead_letters, f"nothing with the {query.sink.kind} sink, which takes every row"
        )


def _stream(
    path: Path,
    name: str,
    query: Query,
    environment: Environment,
    *,
    kind: type[KafkaTopic] | type[KinesisStream],
) -> Iterator[Finding]:
    label = "Kafka topic" if kind is KafkaTopic else "Kinesis stream"
    known = [each for each, stream in environment.streams.items() if isinstance(stream, kind)]
    stream = environment.streams.get(name)
    if not isinstance(stream, kind):
        allowed = f"a {label} of this environment: {', '.join(known) or 'there is none'}"
        yield Finding(path, name, allowed, nearest(name, known))
    elif isinstance(stream, KinesisStream) and stream.read_role is not None:
        yield Finding(
            path, name, "a stream of this account: read_role reads another account's, and writes none"
        )
    elif isinstance(stream, KafkaTopic) and stream.pattern is not None:
        yield Finding(path, name, "one topic: a pattern stands for several")
    if name in _read_by(query, environment):
        yield Finding(path, name, "another stream than the one that the query reads: it would feed itself")


def made_here(environment: Environment, topic: KafkaTopic) -> bool:
    """Whether a topic is made by this environment, with what a cluster gives a new one."""
    return not topic.existing and isinstance(environment.kafka.get(topic.cluster), MskCluster)


def _message(path: Path, sink: KafkaSink, environment: Environment) -> Iterator[Finding]:
    """A row that the sink lets through and the topic does not take would fail its batch each time anew."""
    topic = environment.streams.get(sink.topic)
    if not isinstance(topic, KafkaTopic):
        return
    most, why = KAFKA_MESSAGE, "the largest message of a topic that is made here"
    if not made_here(environment, topic):
        most, why = _KAFKA_BUFFER, "what a producer's buffer holds"
    if sink.max_record_size > most:
        yield Finding(path, f"{int(sink.max_record_size)}B", f"at most {most // 1024}KiB, {why}")


def _record(path: Path, sink: KinesisSink, environment: Environment) -> Iterator[Finding]:
    stream = environment.streams.get(sink.stream)
    if not isinstance(stream, KinesisStream):
        return
    most = stream.max_record_size or KINESIS_RECORD
    if sink.max_record_size > most:
        yield Finding(
            path,
            f"{int(sink.max_record_size)}B",
            f"at most {most // 1024}KiB, the largest record of streams.{sink.stream}",
            f"raise streams.{sink.stream}.max_record_size, up to 10MiB",
        )


def _read_by(query: Query, environment: Environment) -> set[str]:
    """Streams whose records reach a query."""
    if isinstance(query, SourceQuery):
        return {*query.streams}
    tables = {table for table, _ in query.reads}
    return {
        stream
        for job in environment.jobs.values()
        for each in job.queries.values()
        if isinstance(each, LandQuery | RouteQuery) and each.table in tables
        for stream in each.streams
    }
