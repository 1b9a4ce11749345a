"""Base of all payload formats: their keys, and what checks, planning and deployment need from them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path as FilePath
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, ClassVar

from millrace.config.base import Model
from millrace.config.document.problems import Finding, Path
from millrace.config.formats import ddl
from millrace.etl.launch import formats as launch

if TYPE_CHECKING:
    from millrace.config.queries import Payload


MOST_SCHEMA_BYTES = 4 * 1024 * 1024
"""Limit of a schema file, which is read whole: a descriptor set with hundreds of imports is smaller."""


def schema_file_below_pipelines(root: FilePath, name: str) -> FilePath:
    """Return a schema file that can be read, which has an end.

    Raises
    ------
    ValueError
        It is not below ``pipelines/``, no plain file, or too large.
    """
    file = file_in_project(root, name)
    if not (is_below_pipelines(root, name) and file.is_file()):
        raise ValueError(f"{name} is no file below pipelines/")
    if file.stat().st_size > MOST_SCHEMA_BYTES:
        raise ValueError(f"{name} has more than {MOST_SCHEMA_BYTES:,} bytes")
    return file


@lru_cache(maxsize=1024)
def file_in_project(root: FilePath, name: str) -> FilePath:
    """Return a file or folder of a project, without links in its path."""
    # Queries share schemas, and the system is asked about each folder above one.
    return (root / name).resolve()


@lru_cache(maxsize=1024)
def is_below_pipelines(root: FilePath, name: str) -> bool:
    """Return whether a file or folder, without links in its path, is in that of pipelines, by a path that the job's archive has, too."""
    parts = PurePosixPath(name).parts
    named = parts[:1] == ("pipelines",) and ".." not in parts
    return named and file_in_project(root, name).is_relative_to(file_in_project(root, "pipelines"))


@dataclass(frozen=True)
class FormatUse:
    """A place in the file that uses a format.

    Attributes
    ----------
    path
        Path of the query or route in the file.
    query
        The query or route, with the name of its schema file.
    schema
        That file.
    root
        Folder of the project.
    """

    path: Path
    query: Payload
    schema: FilePath
    root: FilePath

    def wrong_schema_finding(self, allowed: str) -> Finding:
        """Return a finding that says what the schema file should be."""
        return Finding((*self.path, "schema"), self.query.schema_, allowed)


class FormatConfig(Model, ABC):
    """A kind of payload; ``docs/formats.md`` says what it accepts as a record.

    Attributes
    ----------
    suffix
        Suffix of its schema file.
    in_python
        Whether records pass through Python, which needs memory in addition to the heap.
    in_firehose
        Whether Amazon Data Firehose can also write it to a table.
    decoding
        CPU time of decoding a record as a multiple of JSON's: 1 over the rates that
        ``python -m tests.performance.decoding_by_format`` prints (100,000 flights, three rounds, 2026-11-23), at the slow end.
    deletes
        Whether a payload can delete the row with its key.
    """

    suffix: ClassVar[str] = ".ddl"
    in_python: ClassVar[bool] = False
    in_firehose: ClassVar[bool] = False
    decoding: ClassVar[float] = 1.0
    deletes: ClassVar[bool] = False

    kind: str

    @property
    def can_decode_outside_vpc(self) -> bool:
        """True if a job outside of any VPC can decode it: without a registry, whose server is usually a company's own."""
        return getattr(self, "registry", None) is None

    @property
    def jars(self) -> Mapping[str, str]:
        """Groups of jars that decode it and that no engine has on its class path, each with the reason in words."""
        return {}

    def check(self, use: FormatUse) -> Iterable[Finding]:
        """Yield findings about its keys that the model cannot check."""
        return ()

    def check_schema(self, use: FormatUse) -> Iterator[Finding]:
        """Yield findings about the schema file, which exists."""
        try:
            text = use.schema.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            yield use.wrong_schema_finding(f"a file in UTF-8: {error.reason} at byte {error.start}")
            return
        if text.startswith("\ufeff"):  # every job reads the file as it is
            yield use.wrong_schema_finding("a file in UTF-8 without a byte order mark at its begin")
            return
        yield from self.check_schema_text(use, text)

    def check_schema_text(self, use: FormatUse, text: str) -> Iterable[Finding]:
        """Yield findings about a schema file that is text: DDL, unless the format says otherwise."""
        try:
            fields = ddl.parse_ddl(text)
        except ddl.DdlError as error:
            yield use.wrong_schema_finding(f"a schema in DDL; {error}")
            return
        if wrong := "; ".join([*ddl.ddl_field_problems(fields), *self.unfit_schema_parts(fields)]):
            yield use.wrong_schema_finding(f"a schema that payloads can be decoded into; {wrong}")

    def unfit_schema_parts(self, fields: Sequence[ddl.DdlField]) -> Iterable[str]:
        """Yield the parts of a DDL schema that its payloads cannot hold."""
        return ()

    def schema_advice(self, fields: Sequence[ddl.DdlField]) -> Iterable[str]:
        """Yield what is valid in a schema and yet lets payloads pass that nobody means."""
        return ()

    def fields(self, schema: FilePath) -> tuple[ddl.DdlField, ...] | None:
        """Return the fields of a record from a schema file that passed the checks; None if the format cannot list them.

        Raises
        ------
        ValueError
            The file is not a schema of this format.
        """
        return ddl.parse_ddl(schema.read_text(encoding="utf-8")) if self.suffix == ".ddl" else None

    def any_field_set_condition(self, schema: FilePath) -> str | None:
        """Return a condition that is false for a good record with none of the schema's fields; None if there is no such record.

        Raises
        ------
        ValueError
            As :meth:`fields`.
        """
        fields = self.fields(schema) or ()
        if not all(each.nullable for each in fields):
            return None
        return " OR ".join(f"`{each.name}` IS NOT NULL" for each in fields if each.name[0] != "_") or None

    @abstractmethod
    def launch_settings(self) -> launch.Format:
        """Return it for the launch document."""
