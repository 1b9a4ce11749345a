"""Transforms of an imported job, to be finished: a function for each query of its program, with the program's own lines beside it."""

from __future__ import annotations

import ast
import itertools
import keyword
import re
import textwrap
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from millrace.advisor.existing.program_lines_without_secrets import lines_without_secrets, snake_case
from millrace.advisor.programs.program_streams import ProgramSource, Query
from millrace.advisor.programs.stream_options import FORMAT, SINK
from millrace.config.document.plain_text_secrets import censor

if TYPE_CHECKING:
    from millrace.advisor.existing.read_job_to_import import RunningJob

MODULE = "imported"
"""Name of the module in the job's folder below ``pipelines/``."""

_LONGEST, _LONGEST_NAME = 400, 30
"""Lines of a function that are quoted, and characters of a name: with ``derive-`` and a number it is the key of a query."""

_PLACES = ("table", "path", "topic", "checkpointlocation")
"""Options that tell apart what queries write."""


class ProgramQuery(NamedTuple):
    """A query of a program, by what writes it.

    Attributes
    ----------
    name
        Of its transform.
    line
        Of the function, or of the query without one.
    sink
        The sink's format, where the program names one.
    text
        The function's lines; empty without one.
    reads
        Numbers of the streams that it reads, among those that are imported.
    query
        The query in the program.
    """

    name: str
    line: int
    sink: str
    text: str
    reads: tuple[int, ...]
    query: Query

    @property
    def origin(self) -> str:
        """Its place in the program and what it writes, for people."""
        place = next(filter(None, (_only_text(self.query, each) for each in _PLACES)), "")
        shown = re.sub(r"[^\w./:@%+=, -]", "?", censor((), place))[:200]
        return (
            f"Line {self.line} of the program"
            + (f" for the query in line {self.query.line}" if self.line != self.query.line else "")
            + (f", which writes {self.sink}" if self.sink else "")
            + (f" ({shown})" if shown else "")
        )


_PRINTS = frozenset({"console", "memory", "noop"})
"""Sinks that keep nothing."""

_TABLES = frozenset(
    {
        "",
        "table",
        "iceberg",
        "delta",
        "hudi",
        "org.apache.hudi",
        "parquet",
        "orc",
        "json",
        "csv",
        "text",
        "avro",
    }
)
"""Sinks whose place the landing table can take."""


def sink_format(query: Query) -> str:
    """Return the format of a query's sink; empty where nothing of it is named, or where it has several values."""
    named = re.sub(r"[^\w.-]", "", _only_text(query, FORMAT))
    return named or ("table" if FORMAT not in query.options and "table" in query.options else "")


def keeps_rows(query: Query) -> bool:
    """Return whether a query keeps its rows; others only print them."""
    return SINK in query.options or sink_format(query) not in _PRINTS


def queries_to_derive(
    queries: Sequence[Query], streams: Sequence[Sequence[ProgramSource]], program: str
) -> tuple[ProgramQuery, ...]:
    """Return the queries that become derive queries.

    These are all but those that print, and but one that writes the rows of a stream as they are, into a table.
    """
    remaining = [
        (each, tuple(n for n, one in enumerate(streams) if not each.sources or set(one) & set(each.sources)))
        for each in queries
        if keeps_rows(each)
    ]
    several = {n for n, times in Counter(reads for _, reads in remaining).items() if times > 1}
    lines = lines_without_secrets(program) if remaining else []
    derived: dict[str, ProgramQuery] = {}
    for query, reads in remaining:
        node, sink = query.function, sink_format(query)
        alone = len(reads) == 1 and reads not in several
        if alone and sink in _TABLES and SINK not in query.options and not query.shaped:
            continue
        base = _transform_name(query, sink)
        name = next(
            each for n in itertools.count(1) if (each := f"{base}_{n}" if n > 1 else base) not in derived
        )
        first, last = (query.line, 0) if node is None else (node.lineno, node.end_lineno or node.lineno)
        text = textwrap.dedent("\n".join(lines[first - 1 : min(last, first + _LONGEST - 1)]))
        derived[name] = ProgramQuery(name, first, sink, text, reads, query)
    return tuple(derived.values())


def notes_on_queries(queries: Sequence[Query], derived: Sequence[ProgramQuery]) -> list[str]:
    """Return a note on the queries whose rows are to be derived, on those that only land, and on those that print."""
    counts = Counter(f"{each.line}: {each.sink}" if each.sink else str(each.line) for each in derived)
    most = max((len(each.reads) for each in derived), default=0)
    left = [each for each in queries if all(each is not one.query for one in derived)]
    places_by_note = {
        f"what writes it (line{'s' * (len(counts) > 1)} {{}}) is a derive query of a transform to be finished, and an Iceberg table until "
        "you name its sink": [
            f"{place}, {times} queries" if times > 1 else place for place, times in counts.items()
        ],
        f"line {{}}: it reads {most} streams, and its derive query has the first of them: `state.join` adds another, routes of one land "
        "query put several into one table": [str(each.line) for each in derived if len(each.reads) > 1],
        "line {}: what it prints, and keeps nowhere, is left out": [
            str(each.line) for each in left if not keeps_rows(each)
        ],
        "line {}: the landing table, an Iceberg table with the schema's fields, takes the place of what it writes; a derive query can have "
        "other columns and another sink": [
            f"{each.line}: {sink_format(each)}" for each in left if keeps_rows(each) and sink_format(each)
        ],
    }
    return [
        note.format(", ".join(dict.fromkeys(places))) for note, places in places_by_note.items() if places
    ]


def _transform_name(query: Query, sink: str) -> str:
    """Return a name from the function of a query, else from its table, else from its line; another query may have the same."""
    table = _only_text(query, "table").rpartition(".")[2].strip("`")
    named = table if query.function is None or isinstance(query.function, ast.Lambda) else query.function.name
    name = re.sub(r"[^a-z0-9]+", "_", snake_case(named or f"{sink or 'query'}_{query.line}")).strip("_")
    if not name.isidentifier() or keyword.iskeyword(name):
        name = f"{sink_format(query) or 'write'}_{name}".rstrip("_")
    return name[:_LONGEST_NAME].rstrip("_")


def _only_text(query: Query, option: str) -> str:
    """Return the value of an option of a query's writer; empty where it has none, or several."""
    values = query.options.get(option, ())
    return values[0].value if len(values) == 1 and isinstance(values[0].value, str) else ""


def pipelines_folder_of_job(name: str) -> str:
    """Return the folder below ``pipelines/`` for a job of the file."""
    return name.replace("-", "_")


def derive_query_sections(written: Sequence[ProgramQuery], job: str, landed: Sequence[str]) -> dict[str, Any]:
    """Return a derive query for each, which writes an Iceberg table until its sink is chosen.

    Parameters
    ----------
    landed
        Landing tables of the streams.
    """
    module = f"pipelines.{pipelines_folder_of_job(job)}.{MODULE}"
    return {
        f"derive-{each.name.replace('_', '-')}": {
            "kind": "derive",
            "source": landed[each.reads[0]],
            "transform": f"{module}:{each.name}",
            "sink": {
                "kind": "iceberg",
                "table": f"{landed[each.reads[0]].removesuffix('_landed')}_{each.name}",
            },
        }
        for each in written
    }


def transforms_module_text(where: str, written: Sequence[ProgramQuery]) -> str:
    """Return the module with their transforms."""
    parts = [
        f'"""Transforms of {where}, to be finished: the lines of its program stand below each."""\n\n'
        "from __future__ import annotations\n\nfrom pyspark.sql import DataFrame\n\n\n"
        "def _unfinished(rows: DataFrame, line: int) -> DataFrame:\n"
        '    raise NotImplementedError(f"line {line} of the program is not written as a transform yet")\n'
    ]
    for each in written:
        parts.append(
            f"\n\ndef {each.name}(rows: DataFrame) -> DataFrame:\n"
            f'    """{each.origin}: return the rows to write; the query\'s sink writes them."""\n'
            f"    return _unfinished(rows, {each.line})\n"
        )
        parts.append("".join(f"#{' ' * bool(line)}{line}\n" for line in each.text.splitlines()))
    return "".join(parts)


def write_transforms(root: Path, running: RunningJob, job: str) -> Path | None:
    """Write the transforms to be finished below a project's root; an existing file stays as it is.

    Returns
    -------
    Path or None
        The new file.
    """
    file = root / "pipelines" / pipelines_folder_of_job(job) / f"{MODULE}.py"
    if not running.program.written or file.exists():
        return None
    file.parent.mkdir(parents=True, exist_ok=True)
    for folder in (file.parent.parent, file.parent):
        (folder / "__init__.py").touch()
    file.write_text(transforms_module_text(running.where, running.program.written), encoding="utf-8")
    return file
