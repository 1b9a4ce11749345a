"""Checks of payload formats: does the schema file fit, is what it names there, does the engine have it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path as FilePath

from millrace.config import descriptors
from millrace.config.document import is_file, is_folder
from millrace.config.explain import nearest
from millrace.config.formats import SCHEMA_SUFFIX, AvroFormat, CsvFormat, ProtobufFormat
from millrace.config.model import GlueJob, Job
from millrace.config.problems import MISSING, Finding, Path
from millrace.config.queries import Payload

_NOT_SPARK_35 = ("6.0", "emr-spark-8.0.0")
"""Glue and EMR releases for whose Spark the pinned spark-avro (3.5, Scala 2.12) is not built."""

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NESTED = re.compile(r"\b(array|map|struct)\s*<", re.I)
_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.S)
_ONE_TEXT = re.compile(r"\s*(`[^`]+`|\w+)\s*:?\s*string\b(\s+not\s+null)?(\s+comment\s+.*)?\s*", re.I | re.S)


def check_format(path: Path, query: Payload, job: Job, root: FilePath) -> Iterator[Finding]:
    """Check a query's schema file and its format.

    Parameters
    ----------
    path
        Of the query.
    query, job
        The query and the job that runs it.
    root
        The project.

    Yields
    ------
    Finding
        None where the job can start with them.
    """
    kind = query.format.kind
    suffix = SCHEMA_SUFFIX[kind]
    pipelines = (root / "pipelines").resolve()
    schema = (root / query.schema_).resolve()
    here = (*path, "schema")
    if schema.suffix != suffix or not schema.is_relative_to(pipelines):
        of = f" for format {kind}"
        if "format" not in query.model_fields_set:
            others = [
                f"{name}: {s}" for name, s in SCHEMA_SUFFIX.items() if s == schema.suffix and s != suffix
            ]
            of = f"; with format {others[0]}" if others else ""
        a = "an" if suffix == ".avsc" else "a"
        yield Finding(
            here, query.schema_, f"{a} {suffix} file below pipelines/, which travels with the job{of}"
        )
    elif not is_file(schema):
        known = [str(each.relative_to(root.resolve())) for each in sorted(pipelines.rglob(f"*{suffix}"))]
        yield Finding(here, query.schema_, "a file that exists", nearest(query.schema_, known))
    else:
        yield from _content(path, query, schema)
    if isinstance(query.format, AvroFormat):
        yield from _avro((*path, "format"), query.format, job, root)


def _content(path: Path, query: Payload, schema: FilePath) -> Iterator[Finding]:
    """The file fits the format; the core, which parses it, is strict."""
    here = (*path, "schema")
    if isinstance(query.format, ProtobufFormat):
        try:
            messages = descriptors.messages(schema.read_bytes())
        except descriptors.DescriptorError as error:
            yield Finding(here, query.schema_, f"a file that protoc wrote with --descriptor_set_out: {error}")
            return
        if query.format.message not in messages:
            yield Finding(
                (*path, "format", "message"),
                query.format.message,
                f"a message of {query.schema_}: {', '.join(messages) or 'it has none'}",
                nearest(query.format.message, messages),
            )
        return
    try:
        text = schema.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        yield Finding(here, query.schema_, f"a file in UTF-8: {error.reason} at byte {error.start}")
        return
    if isinstance(query.format, AvroFormat):
        problem = _not_avro(text)
        if problem:
            yield Finding(here, query.schema_, f"an Avro schema: {problem}")
        return
    ddl = _COMMENT.sub(" ", text)
    if isinstance(query.format, CsvFormat) and (nested := _NESTED.search(ddl)):
        yield Finding(
            here, query.schema_, f"a schema whose columns hold one value each: CSV has no {nested[1].upper()}"
        )
    if query.format.kind == "text" and not _ONE_TEXT.fullmatch(ddl):
        yield Finding(here, query.schema_, "a schema of one STRING field for format text")


def _not_avro(text: str) -> str | None:
    try:
        schema = json.loads(text)
    except ValueError as error:
        return f"not JSON: {error}"
    if not isinstance(schema, dict) or schema.get("type") != "record" or not schema.get("fields"):
        return "not a record with fields"
    return None


def _avro(path: Path, avro: AvroFormat, job: Job, root: FilePath) -> Iterator[Finding]:
    if job.version in _NOT_SPARK_35:
        engine = f"Glue {job.version}" if isinstance(job, GlueJob) else job.version
        allowed = f"another format with {engine}: spark-avro is pinned for Spark 3.5 (Glue 5.1, emr-7.13.0)"
        yield Finding((*path, "kind"), "avro", allowed)
    if avro.framing == "none":
        for key, value in (("writers", avro.writers), ("registry", avro.registry), ("subject", avro.subject)):
            if value is not None:
                yield Finding((*path, key), value, "only with framing: without, a datum names no schema")
        return
    if avro.framing == "glue" and avro.registry is not None:
        yield Finding(
            (*path, "registry"), avro.registry, "nothing with framing glue: give its schemas as writers"
        )
    elif (avro.writers is None) == (avro.registry is None):
        value = MISSING if avro.writers is None else avro.writers
        others = "writers" if avro.framing == "glue" else "either writers or registry"
        yield Finding(
            (*path, "writers"), value, f"with framing {avro.framing}: {others}, for the ids' schemas"
        )
    if (avro.registry is None) != (avro.subject is None):
        missing = "subject" if avro.subject is None else "registry"
        yield Finding((*path, missing), MISSING, "required: registry and subject go together")
    if avro.writers is not None:
        yield from _writers((*path, "writers"), avro.writers, avro.framing, root)


def _writers(path: Path, writers: str, framing: str, root: FilePath) -> Iterator[Finding]:
    folder = (root / writers).resolve()
    if not folder.is_relative_to((root / "pipelines").resolve()) or not is_folder(folder):
        yield Finding(path, writers, "a folder below pipelines/ that exists")
        return
    files = sorted(folder.glob("*.avsc"))
    if not files:
        yield Finding(path, writers, "a folder with schemas by their ids, such as 17.avsc")
    for file in files:
        named = _UUID.fullmatch(file.stem) if framing == "glue" else file.stem.isdecimal()
        if not named:
            wanted = "a UUID in lower case" if framing == "glue" else "a number, such as 17.avsc"
            yield Finding(path, f"{writers}/{file.name}", f"the schema's id as its name: {wanted}")
        elif problem := _not_avro(file.read_text(encoding="utf-8", errors="replace")):
            yield Finding(path, f"{writers}/{file.name}", f"an Avro schema: {problem}")
