"""Avro schemas: the reader's, and the writers' by id, from files beside the code or a registry."""

from __future__ import annotations

import importlib.resources
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from http.client import HTTPException
from pathlib import PurePosixPath
from typing import Any

from py4j.java_gateway import get_field
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from ..launch.formats import MOST_DIGITS, decimals_avro_ignores
from ..record.errors import SinkError, StartError, describe_error
from ..services.backoff import START_SECONDS, Backoff

_ANSWER_SECONDS = 10
_BUSY = (429, 500, 502, 503, 504)
_NO_LOGIN = ": a job has no login for a registry; give the schemas as files, in a folder of `writers`"

_LOGICAL, _READERS = "logicalType", "millraceLogicalType"
_UNITS = tuple({f"{name}-millis", f"{name}-micros"} for name in ("timestamp", "local-timestamp"))
_INNER_ACTIONS = {
    "Container": "elementAction",
    "ReaderUnion": "actualAction",
    "RecordAdjust": "fieldActions",
    "WriterUnion": "actions",
}
"""Field with the parts of each action of Avro's ``Resolver``, which says what reads what."""


def parse_java_schema(spark: SparkSession, text: str, where: str, named: Iterable[str] = ()) -> Any:
    """Parse a schema with Avro's own parser.

    Parameters
    ----------
    named
        Schemas whose names it uses; each one may use those before it.

    Raises
    ------
    StartError
        The text is no schema; the message is the parser's.
    """
    jvm: Any = spark._jvm
    parser = jvm.org.apache.avro.Schema.Parser()
    try:
        for each in named:
            parser.parse(each)
        return parser.parse(text)
    except Py4JJavaError as error:
        raise StartError(f"{where}: {describe_error(error)}") from error


def parse_schema_json(
    spark: SparkSession, text: str, where: str, hook: Callable[[dict[str, Any]], Any] | None = None
) -> Any:
    """Read a schema's JSON, each object of it as a function returns it.

    Raises
    ------
    StartError
        As in :func:`parse_java_schema`; or a decimal that no column holds.
    """
    parse_java_schema(spark, text, where)
    found = json.loads(text, object_hook=hook)
    if wrong := ", ".join(decimals_avro_ignores(found)):
        raise StartError(
            f"{where}: decimals must have at most {MOST_DIGITS} digits, and a scale no larger than their precision: {wrong}"
        )
    return found


def reader_in_units_of_writer(spark: SparkSession, reader: str, writer: str, where: str) -> str:
    """Return the reader's schema with the units in which a writer wrote its times; Avro reads the number as if they were the same.

    Raises
    ------
    StartError
        A field has another logical type, such as a decimal of another scale.
    """
    jvm: Any = spark._jvm
    bare = parse_java_schema(
        spark,
        json.dumps(json.loads(reader, object_hook=lambda part: _renamed(part, _LOGICAL, _READERS))),
        where,
    )
    written = parse_java_schema(spark, writer, where)
    for name, leaf in _leaf_actions(jvm.org.apache.avro.Resolver.resolve(written, bare)):
        one, other = get_field(leaf, "writer"), get_field(leaf, "reader")
        if other is None or None in (kinds := (one.getProp(_LOGICAL), other.getProp(_READERS))):
            continue
        if any(set(kinds) <= units for units in _UNITS):
            other.addProp(_LOGICAL, kinds[0])
        elif kinds[0] != kinds[1] or (one.getObjectProp("scale") or 0) != (other.getObjectProp("scale") or 0):
            raise StartError(
                f"{where}: records written with this schema cannot be read with the schema of the query: field {name[1:]} was "
                f"written as {one.toString()}"
            )
    return json.dumps(
        json.loads(bare.toString(), object_hook=lambda part: _renamed(part, _READERS, _LOGICAL))
    )


def _renamed(part: dict[str, Any], key: str, to: str) -> dict[str, Any]:
    """Return a part of a schema with another name for a key, unless it has both."""
    return {
        to if name == key else name: value for name, value in part.items() if name != key or to not in part
    }


def _leaf_actions(action: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the actions of a ``Resolver`` that read a value without parts, each with the name of its field."""
    kind = action.getClass().getSimpleName()
    if kind not in _INNER_ACTIONS:
        yield name, action
        return
    inner, record = get_field(action, _INNER_ACTIONS[kind]), kind == "RecordAdjust"
    parts = list(inner) if record or kind == "WriterUnion" else [inner]
    fields = get_field(action, "writer").getFields() if record else []
    names = [f"{name}.{each.name()}" for each in fields] or [name] * len(parts)
    for part, own in zip(parts, names, strict=True):
        yield from _leaf_actions(part, own)


def writer_schemas_from_folder(path: str, framing: str) -> dict[str, str]:
    """Read the writers' schemas beside the code: ``17.avsc``, or ``UUID.avsc`` for Glue's registry.

    Parameters
    ----------
    path
        Folder below ``pipelines/``; the configuration has checked the names in it.
    framing
        Framing whose ids they are.
    """
    package, *rest = PurePosixPath(path).parts
    found: dict[str, str] = {}
    for file in importlib.resources.files(package).joinpath(*rest).iterdir():
        stem, _, suffix = file.name.rpartition(".")
        if suffix == "avsc":
            found[stem if framing == "glue" else str(int(stem))] = file.read_text(encoding="utf-8")
    return found


def writer_schemas_from_registry(spark: SparkSession, url: str, subject: str) -> dict[str, str]:
    """Read all versions of a subject from a registry that answers like Confluent's, with the schemas that they refer to.

    Parameters
    ----------
    url
        URL of the registry, such as ``https://registry.company.example:8081``.
    subject
        Such as ``orders-value``.

    Returns
    -------
    dict
        Schema by id, of the versions that exist at start.

    Raises
    ------
    StartError
        The registry does not answer, wants a login, has no such subject, or has a schema that is not Avro.
    """
    base = _versions_url(url, subject)
    found: dict[str, str] = {}
    for version in _get_from_registry(base):
        answer = _get_from_registry(f"{base}/{version}")
        try:
            if answer.get("schemaType", "AVRO") != "AVRO":
                raise StartError(
                    f"registry {url}: the schema of subject {subject} has type {answer['schemaType']}; it "
                    "must be AVRO"
                )
            identity, text = str(int(answer["id"])), str(answer["schema"])
            named: dict[str, str] = {}
            _add_referenced_schemas(url, answer, named)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise StartError(f"registry {url}: the response has no id and schema: {error}") from error
        if named:
            where = f"registry {url}: the schema of subject {subject}"
            text = parse_java_schema(spark, text, where, named.values()).toString()
        found[identity] = text
    if not found:
        raise StartError(f"registry {url}: subject {subject} has no version of a schema yet")
    return found


def _versions_url(url: str, subject: str) -> str:
    return f"{url.rstrip('/')}/subjects/{urllib.parse.quote(subject, safe='')}/versions"


def _add_referenced_schemas(url: str, answer: Mapping[str, Any], named: dict[str, str]) -> None:
    """Add the schemas that an answer refers to, each one after those that it refers to itself, by their URLs."""
    for each in answer.get("references", ()):
        place = f"{_versions_url(url, each['subject'])}/{each['version']}"
        if place not in named:
            part = _get_from_registry(place)
            _add_referenced_schemas(url, part, named)
            named[place] = str(part["schema"])


def _get_from_registry(url: str) -> Any:
    """Return the answer of a registry, which is asked again for a while if it is busy or unreachable."""
    request = urllib.request.Request(url, headers={"Accept": "application/vnd.schemaregistry.v1+json"})  # noqa: S310 - the configuration takes http(s) only
    waits = Backoff("at the start", patience=START_SECONDS)
    while True:
        try:
            with urllib.request.urlopen(request, timeout=_ANSWER_SECONDS) as answer:  # noqa: S310
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                lacks = _NO_LOGIN if error.code in (401, 403) else ""
                found = StartError(f"registry {url}: {error.code} {error.reason}{lacks}")
            if error.code not in _BUSY:
                raise found from error
        except (OSError, HTTPException) as error:  # a part of an answer is no OSError
            found = StartError(f"registry {url}: {error}")
        except ValueError as error:
            raise StartError(f"registry {url}: {error}") from error
        try:
            waits.wait(str(found))
        except SinkError:
            raise found from None
