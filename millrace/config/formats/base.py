"""What every payload format says of itself: its keys, and what checks, planning, deployment and documents ask it."""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, ClassVar

from millrace.config.base import Model
from millrace.config.formats import ddl
from millrace.config.problems import Finding, Path

if TYPE_CHECKING:
    from millrace.config.model import Job
    from millrace.config.queries import Payload


@dataclass(frozen=True)
class Reading:
    """A row of the table in ``docs/formats.md``: its schema file, what decodes it, and what is a record besides or never."""

    schema: str
    by: str
    good: str
    never: str


@dataclass(frozen=True)
class FormatUse:
    """Where a file asks for a format.

    Attributes
    ----------
    path
        Of the query or route in the file.
    query
        It, with the name of its schema file.
    schema
        That file.
    job
        The query's.
    root
        The project.
    """

    path: Path
    query: Payload
    schema: FilePath
    job: Job
    root: FilePath

    def wrong_schema(self, allowed: str) -> Finding:
        """Tell what the schema file should be."""
        return Finding((*self.path, "schema"), self.query.schema_, allowed)


class FormatConfig(Model, ABC):
    """A kind of payload.

    Attributes
    ----------
    reading
        What it takes for a record, for the documentation.
    suffix
        Of its schema file.
    in_python
        Whether records pass through Python, which takes memory beside the heap.
    in_firehose
        Whether Amazon Data Firehose can write it to a table too.
    jars
        Groups of jars that decode it and no engine has on its class path, each with the reason in words.
    decoding
        CPU time of decoding a record, as a multiple of what JSON takes: 1 over the rates that
        ``python -m tests.performance.formats`` prints (100,000 flights, three rounds, 2026-11-23), at the slow end.
    payloads
        ``module:function`` that makes records of a format and a schema file, for test traffic
        (:class:`millrace.sandbox.payloads.Payloads`); None where nothing does.
    """

    reading: ClassVar[Reading]
    suffix: ClassVar[str] = ".ddl"
    in_python: ClassVar[bool] = False
    in_firehose: ClassVar[bool] = False
    jars: ClassVar[Mapping[str, str]] = {}
    decoding: ClassVar[float] = 1.0
    payloads: ClassVar[str | None] = None

    kind: str

    def check(self, use: FormatUse) -> Iterable[Finding]:
        """Find what its keys alone do not tell."""
        return ()

    def check_schema(self, use: FormatUse) -> Iterator[Finding]:
        """Find what of the schema file, which is there, does not fit."""
        try:
            text = use.schema.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            yield use.wrong_schema(f"a file in UTF-8: {error.reason} at byte {error.start}")
            return
        yield from self.check_text(use, text)

    def check_text(self, use: FormatUse, text: str) -> Iterable[Finding]:
        """The same of a schema file that is text: DDL, unless the format says otherwise."""
        try:
            fields = ddl.parse(text)
        except ddl.DdlError as error:
            yield use.wrong_schema(f"a schema in DDL; {error}")
            return
        if wrong := "; ".join([*ddl.problems(fields), *self.misfits(fields)]):
            yield use.wrong_schema(f"a schema that payloads can be decoded into; {wrong}")

    def misfits(self, fields: Sequence[ddl.Field]) -> Iterable[str]:
        """Say what of a schema in DDL its payloads cannot hold."""
        return ()

    def fields(self, schema: FilePath) -> tuple[ddl.Field, ...] | None:
        """Fields of a record, as a schema file that was found good has them; None where the format cannot tell.

        Raises
        ------
        ValueError
            Not such a file.
        """
        return ddl.parse(schema.read_text(encoding="utf-8")) if self.suffix == ".ddl" else None

    def settings(self) -> str | dict[str, Any]:
        """Write it for the launch document: the fields of its class in ``etl.formats``, a name alone where it has but that."""
        written = self.model_dump()
        return self.kind if written.keys() == {"kind"} else written
