"""Streams that a program may read: each with its names, what the Data Catalog tells of its table or connection, and its settings."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from botocore.exceptions import BotoCoreError, ClientError

from millrace.advisor.existing.import_transform_stubs import ProgramQuery
from millrace.advisor.programs.possible_values import Alternative, Unknown, Values, known_value
from millrace.advisor.programs.program_stream_model import CATALOG, FORMAT, ProgramSource
from millrace.config.document.plain_text_secrets import censor

Kind = Literal["kinesis", "kafka"]

NAMES: Mapping[Kind, tuple[str, ...]] = {
    "kafka": ("subscribe", "topicName", "subscribePattern", "assign"),
    "kinesis": ("streamARN", "kinesis.streamName", "streamName", "location"),
}
BROKERS = ("kafka.bootstrap.servers", "bootstrap.servers")

_PLACES = ("streamARN", "kinesis.region", "region", "awsRegion", "kinesis.endpointUrl", "endpointUrl")
_REGION = re.compile(r"[a-z]{2}(-[a-z]+)+-\d")

_CONNECTION = (
    ("KAFKA_BOOTSTRAP_SERVERS", "kafka.bootstrap.servers"),
    ("KAFKA_SASL_MECHANISM", "kafka.sasl.mechanism"),
    ("KAFKA_CLIENT_KEYSTORE", "kafka.ssl.keystore.location"),
    ("KAFKA_SASL_SCRAM_SECRETS_ARN", "secret"),
)
"""Options that a connection of Glue stands for (Glue API reference, ``ConnectionPropertyKey``)."""


class StreamAnswers(NamedTuple):
    """Answers of the command line to what a program does not tell: a stream or a topic, and the brokers."""

    stream: str | None = None
    topic: str | None = None
    brokers: str | None = None


NO_ANSWERS = StreamAnswers()


@dataclass(frozen=True)
class ImportedStreamSettings:
    """Settings of the stream that is imported.

    Attributes
    ----------
    kind
        Kind of its source; ``None`` where nothing was recognised.
    name
        A stream's name or ARN, a topic, or a pattern of topics; ``None`` where it is open.
    options
        Options by their names in the program, in small letters, where they have one value.
    trigger
        Seconds, or ``None``.
    notes
        What differs from the program, or is not taken over, with its lines.
    open
        Questions by what they ask for: ``name``, ``brokers``, ``options``.
    pattern
        Whether the name is a pattern.
    partitions
        Partitions that the program assigns to itself; empty for all.
    reading
        Keys of a land query's ``kafka`` for its other options.
    written
        Queries with a function for each batch, or all of several.
    why_not
        Why nothing was recognised.
    ends
        Whether its runs end when they have read what was there.
    payload
        Value of ``format`` for its payloads; None where nothing tells it.
    regions
        Regions of a Kinesis stream that the program names, each in words if the text does not tell it.
    spark
        Spark settings that the program sets, each with all its values.
    also
        The other streams that the program reads, without ``written`` and ``also``.
    """

    kind: Kind | None
    name: str | None
    options: Mapping[str, str]
    trigger: float | None
    notes: tuple[str, ...] = ()
    open: Mapping[str, str] = field(default_factory=dict)
    pattern: bool = False
    partitions: tuple[int, ...] = ()
    reading: Mapping[str, Any] = field(default_factory=dict)
    written: tuple[ProgramQuery, ...] = ()
    why_not: str = ""
    ends: bool = False
    payload: str | Mapping[str, str] | None = None
    regions: tuple[str, ...] = ()
    spark: Mapping[str, Values] = field(default_factory=dict)
    also: tuple[ImportedStreamSettings, ...] = ()

    @property
    def settings_of_all_streams(self) -> tuple[ImportedStreamSettings, ...]:
        """Its streams, the first of them this one."""
        return (self, *self.also)

    def region_elsewhere(self, ours: str) -> tuple[str, bool]:
        """Return its regions in words, empty if there is only ours, and whether the text tells them."""
        elsewhere = "" if {*self.regions} <= {ours} else " or ".join(self.regions)
        return elsewhere, all(map(_REGION.fullmatch, self.regions))

    def first_option(self, *names: str) -> str | None:
        """Return the first of several options that has a value."""
        return next((self.options[each.lower()] for each in names if each.lower() in self.options), None)


class LookUpRefusedError(Exception):
    """A look-up that AWS refused, in words."""


class DataCatalog:
    """Tables and connections of Glue's Data Catalog; :class:`LookUpRefusedError` for one that cannot be read."""

    def __init__(self, client: Callable[[str], Any]) -> None:
        self._client = client

    def table_parameters(self, database: str, name: str) -> dict[str, str]:
        """Return the parameters of a table, and its location: the name of a Kinesis stream."""
        try:
            table = self._client("glue").get_table(DatabaseName=database, Name=name)["Table"]
        except (ClientError, BotoCoreError) as error:
            raise LookUpRefusedError(
                f"table {database}.{name} of the Data Catalog cannot be read ({error})"
            ) from error
        storage = table.get("StorageDescriptor", {})
        properties = {**table.get("Parameters", {}), **storage.get("Parameters", {})}
        return properties | ({"location": storage["Location"]} if storage.get("Location") else {})

    def connection_properties(self, name: str) -> dict[str, str]:
        """Return the properties of a connection, without its password."""
        try:
            answer = self._client("glue").get_connection(Name=name, HidePassword=True)
        except (ClientError, BotoCoreError) as error:
            raise LookUpRefusedError(f"Glue connection {name} ({error})") from error
        return dict(answer["Connection"].get("ConnectionProperties", {}))


class StreamName(NamedTuple):
    """A name of a stream in a program; None where the text does not tell it."""

    name: str | None
    line: int
    origin: str = ""
    pattern: bool = False
    partitions: tuple[int, ...] = ()


@dataclass
class StreamCandidate:
    """A source, with all that is known of it.

    Attributes
    ----------
    kind
        None where it is no stream, or where that is not known.
    options
        The program's, and those of its table and connection.
    refused
        Why its table or connection is not known; empty where it is.
    """

    source: ProgramSource
    kind: Kind | None
    options: dict[str, Values]
    refused: str = ""

    @property
    def names(self) -> list[StreamName]:
        """Names that the stream may have; one without a name where none is known."""
        names = [_name_or_question(one, self.kind or "kafka") for each in self._alternatives for one in each]
        missing = self.refused or self.source.more or "not named"
        return names or [StreamName(None, self.source.line, missing)]

    @property
    def brokers(self) -> frozenset[str]:
        """Its brokers, as far as they are known."""
        values = next((self.options[each] for each in BROKERS if each in self.options), ())
        texts = [each.value for each in values if isinstance(each.value, str)]
        return frozenset(part.strip() for each in texts for part in each.split(","))

    @property
    def regions(self) -> frozenset[str]:
        """Regions of a Kinesis stream that the program names, each in words if the text does not tell it."""
        places = _PLACES if self.kind == "kinesis" else ()
        values = next((self.options[each.lower()] for each in places if each.lower() in self.options), ())
        texts = (describe_values_with_lines((each,)) for each in values)
        return frozenset(found[0] if (found := _REGION.search(each)) else each for each in texts)

    @property
    def names_region(self) -> bool:
        """True if the text tells the region of a Kinesis stream."""
        return any(map(_REGION.fullmatch, self.regions))

    @property
    def reads_several_topics(self) -> bool:
        """True if it reads several topics at once, or may."""
        return any(len(each) > 1 for each in self._alternatives)

    @property
    def _alternatives(self) -> list[list[StreamName]]:
        """The names in each value of the option that names them."""
        key = next((each for each in NAMES[self.kind or "kafka"] if each.lower() in self.options), "")
        return [
            _names_of_option(key, each, self.source.line)
            for each in self.options.get(key.lower(), ())
            if each.value is not None
        ]


def region_of_stream_arn(text: str) -> str | None:
    """Return the region of a stream's ARN; None for another text, such as a stream's name."""
    arn = re.match(r"arn:aws[a-z-]*:kinesis:([a-z0-9-]+):", text)
    return None if arn is None else arn[1]


_VALID: Mapping[Kind, str] = {
    "kinesis": r"(arn:aws[a-z-]*:kinesis:[a-z0-9-]+:\d{12}:stream/)?[a-zA-Z0-9_.-]{1,128}",
    "kafka": r"[a-zA-Z0-9._-]{1,249}",
}
SERVERS = r"[^\s<>:,]+:\d{1,5}(,\s*[^\s<>:,]+:\d{1,5})*"


def _name_or_question(name: StreamName, kind: Kind) -> StreamName:
    """Return a name, or a question where no stream can have it: a sample's own gap."""
    if name.name is None or name.pattern or re.fullmatch(_VALID[kind], name.name):
        return name
    return StreamName(None, name.line, f"{name.name}, which is no name of a stream or topic")


def _names_of_option(key: str, option: Alternative, at: int) -> list[StreamName]:
    line = option.line or at
    if isinstance(option.value, Unknown):
        return [StreamName(None, line, f"{key} is {option.value.origin}")]
    text = str(option.value)
    if key == "assign":
        try:
            assigned = json.loads(text)
            return [
                StreamName(str(topic), line, partitions=tuple(map(int, parts)))
                for topic, parts in assigned.items()
            ]
        except (ValueError, TypeError, AttributeError):
            return [StreamName(None, line, "assign is no JSON object of partitions")]
    if key in ("subscribe", "streamName"):  # Databricks' reader of Kinesis takes several, too
        return [StreamName(each.strip(), line) for each in text.split(",") if each.strip()]
    return [StreamName(text, line, pattern=key == "subscribePattern")]


def candidates_by_stream(
    candidates: Iterable[StreamCandidate],
) -> list[tuple[StreamName, list[StreamCandidate]]]:
    """Return the streams that a program reads, each with its sources; none if the name of one has several values or none.

    One name is two topics on two clusters, and two Kinesis streams in two regions.
    """
    candidates_by_name: dict[tuple[Any, ...], tuple[StreamName, list[StreamCandidate]]] = {}
    for each in candidates:
        keys = [key for key in NAMES[each.kind or "kafka"] if key.lower() in each.options]
        if each.kind is None or not keys or len(each.options[keys[0].lower()]) != 1:
            return []
        for name in each.names:
            if name.name is None:
                return []
            key = (each.kind, name.name, name.pattern, each.brokers, each.regions)
            candidates_by_name.setdefault(key, (name, []))[1].append(each)
    return list(candidates_by_name.values())


def candidate_from_source(source: ProgramSource, catalog: DataCatalog) -> StreamCandidate:
    """Return a source with the options of its table in the Data Catalog, and of its connection."""
    options = dict(source.options)
    refused = ""
    try:
        if CATALOG in options:
            database, name = (
                _single_text_or_raise(options.get(key, ())) for key in ("database", "table_name")
            )
            options = _options_as_values(source.line, catalog.table_parameters(database, name)) | options
        if "connectionname" in options:
            options = (
                _options_as_values(
                    source.line,
                    _kafka_options_of_connection(
                        catalog.connection_properties(_single_text_or_raise(options["connectionname"]))
                    ),
                )
                | options
            )
    except LookUpRefusedError as error:
        refused = str(error)
    return StreamCandidate(source, _stream_kind_of_options(options), options, refused)


def _single_text_or_raise(values: Values) -> str:
    if len(values) != 1 or isinstance(values[0].value, Unknown):
        raise LookUpRefusedError(describe_values_with_lines(values) or "not named")
    return str(values[0].value)


def _options_as_values(line: int, options: Mapping[str, str]) -> dict[str, Values]:
    return {key.lower(): known_value(value, line) for key, value in options.items()}


def _kafka_options_of_connection(properties: Mapping[str, str]) -> dict[str, str]:
    options = {option: properties[key] for key, option in _CONNECTION if properties.get(key)}
    secured = properties.get("KAFKA_SSL_ENABLED", "").lower() == "true"
    sasl = "kafka.sasl.mechanism" in options
    return options | {"kafka.security.protocol": "SASL_SSL" if sasl else "SSL" if secured else "PLAINTEXT"}


def _stream_kind_of_options(options: Mapping[str, Values]) -> Kind | None:
    formats = [
        str(each.value).lower()
        for key in ("typeofdata", FORMAT)
        for each in options.get(key, ())
        if isinstance(each.value, str)
    ]
    kinds: tuple[Kind, ...] = ("kinesis", "kafka")
    for kind in kinds:
        if any(kind in each for each in formats):
            return kind
    if formats:
        return None
    return next((kind for kind in kinds if any(key.lower() in options for key in NAMES[kind][:-1])), None)


def describe_values_with_lines(values: Values) -> str:
    """Return what values are, each with its line."""
    texts = [
        (each.value.origin if isinstance(each.value, Unknown) else censor((), str(each.value)))
        + (f" (line {each.line})" if each.line else "")
        for each in values
        if each.value is not None
    ]
    return " or ".join(dict.fromkeys(texts))


def names_to_choose_from_text(names: Iterable[StreamName]) -> str:
    """Return names to choose from, each with its line."""
    return ", or ".join(
        dict.fromkeys(
            f"line {each.line}: {each.name if each.name is not None else each.origin}" for each in names
        )
    )
