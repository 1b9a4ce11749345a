"""Avro: one datum in each payload, bare or after the header of a registry's serializer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path as FilePath
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, StringConstraints

from millrace.config.document.problems import MISSING, Finding, Path, findings_for_refused_keys
from millrace.config.document.yaml_tree import is_folder
from millrace.config.formats import ddl
from millrace.config.formats.avro_schema import AvroSchemaError, avro_columns, parse_avro_schema
from millrace.config.formats.base import FormatConfig, FormatUse, file_in_project, is_below_pipelines
from millrace.etl.launch import formats as launch

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


JARS: Mapping[str, str] = {"avro": "a job with Avro needs"}


class WriterSchemaSource(FormatConfig):
    """Keys that say where the schemas of a framing's ids are."""

    writers: str | None = Field(
        default=None,
        description="Folder below pipelines/ with the writers' schemas; the name of each file is the id of its "
        "schema, such as 17.avsc.",
        examples=["pipelines/shop/schemas/orders"],
    )
    registry: (
        Annotated[str, StringConstraints(pattern=r"^https?://[A-Za-z0-9._-]+(:[0-9]{1,5})?(/\S*)?$")] | None
    ) = Field(
        default=None,
        description="URL of a Confluent registry without a login, read when the job starts.",
        examples=["https://registry.company.example:8081"],
    )
    subject: str | None = Field(
        default=None, description="Subject in the registry, such as orders-value.", examples=["orders-value"]
    )

    def check_writer_schema_source(self, path: Path, framing: str, root: FilePath) -> Iterator[Finding]:
        """Check that exactly one source of the schemas is given, and the files of a folder."""
        if framing == "glue" and self.registry is not None:
            yield Finding(
                (*path, "registry"), self.registry, "nothing with framing glue: give its schemas as writers"
            )
        elif self.registry is not None and ".confluent.cloud" in urlsplit(self.registry).netloc:
            allowed = (
                "a registry without a login, which Confluent Cloud always wants: give its schemas as writers"
            )
            yield Finding((*path, "registry"), self.registry, allowed)
        elif (self.writers is None) == (self.registry is None):
            value = MISSING if self.writers is None else self.writers
            others = "writers" if framing == "glue" else "either writers or registry"
            yield Finding(
                (*path, "writers"), value, f"with framing {framing}: {others}, for the ids' schemas"
            )
        if (self.registry is None) != (self.subject is None):
            missing = "subject" if self.subject is None else "registry"
            yield Finding((*path, missing), MISSING, "required: registry and subject go together")
        if self.writers is not None:
            yield from _check_writer_schema_folder((*path, "writers"), self.writers, framing, root)


class AvroFormat(WriterSchemaSource):
    """One Avro datum; `schema` is the reader's, an .avsc file."""

    suffix = ".avsc"

    kind: Literal["avro"]
    framing: Literal["none", "confluent", "glue"] = Field(
        default="none",
        description="The header that a registry's serializer puts before the datum.",
        examples=["confluent"],
    )

    @property
    def jars(self) -> Mapping[str, str]:
        """Return Spark's Avro."""
        return JARS

    def launch_settings(self) -> launch.AvroFormat:
        """Return its keys."""
        return launch.AvroFormat(self.framing, self.writers, self.registry, self.subject)

    def check(self, use: FormatUse) -> Iterator[Finding]:
        """Check that its keys are consistent."""
        path = (*use.path, "format")
        if self.framing == "none":
            allowed = "only with framing: without, a datum names no schema"
            yield from findings_for_refused_keys(path, self, ("writers", "registry", "subject"), allowed)
            return
        yield from self.check_writer_schema_source(path, self.framing, use.root)

    def check_schema_text(self, use: FormatUse, text: str) -> Iterator[Finding]:
        """Check that a table can have the columns of the reader's schema."""
        try:
            if wrong := "; ".join(ddl.column_name_problems(avro_columns(text))):
                yield use.wrong_schema_finding(f"a schema that a table can have; {wrong}")
        except AvroSchemaError as error:
            yield use.wrong_schema_finding(f"an Avro schema: {error}")

    def fields(self, schema: FilePath) -> tuple[ddl.DdlField, ...]:
        """Return the fields of the reader's record."""
        return avro_columns(schema.read_text(encoding="utf-8"))


def _check_writer_schema_folder(path: Path, writers: str, framing: str, root: FilePath) -> Iterator[Finding]:
    folder = file_in_project(root, writers)
    if not is_below_pipelines(root, writers) or not is_folder(folder):
        yield Finding(path, writers, "a folder below pipelines/ that exists")
        return
    if not (files := sorted(folder.glob("*.avsc"))):
        yield Finding(path, writers, "a folder with schemas by their ids, such as 17.avsc")
    for file in files:
        by_uuid = framing == "glue"
        if not (_UUID.fullmatch(file.stem) if by_uuid else file.stem.isdecimal()):
            wanted = "a UUID in lower case" if by_uuid else "a number, such as 17.avsc"
            yield Finding(path, f"{writers}/{file.name}", f"the schema's id as its name: {wanted}")
            continue
        try:
            parse_avro_schema(file.read_text(encoding="utf-8", errors="replace"))
        except AvroSchemaError as error:
            yield Finding(path, f"{writers}/{file.name}", f"an Avro schema: {error}")
