"""Transforms of an imported job, to be finished: a function for each query of its program, with the program's own lines beside it."""

from __future__ import annotations

import ast
import re
import textwrap
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from millrace.advisor.programs.program_streams import FORMAT, SINK, ProgramSource, Query
from millrace.config.document.plain_text_secrets import censor, is_secret_key

if TYPE_CHECKING:
    from millrace.advisor.existing.read_job_to_import import RunningJob

MODULE = "imported"
"""Name of the module in the job's folder below ``pipelines/``."""

_LONGEST = 400
"""Lines of a function that are quoted; the rest stays where it is."""


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
    """

    name: str
    line: int
    sink: str
    text: str
    reads: tuple[int, ...] = (0,)


PRINTS = frozenset({"console", "memory", "noop"})
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
    formats = query.options.get(FORMAT, ())
    if len(formats) == 1 and isinstance(formats[0].value, str):
        return formats[0].value
    return "table" if not formats and "table" in query.options else ""


def queries_to_derive(
    queries: Sequence[Query], streams: Sequence[Sequence[ProgramSource]], program: str
) -> tuple[ProgramQuery, ...]:
    """Return the queries that become derive queries.

    These are all but those that print, and but one that writes the rows of a stream as they are, into a table.
    """
    remaining = [
        (each, tuple(n for n, one in enumerate(streams) if not each.sources or set(one) & set(each.sources)))
        for each in queries
        if SINK in each.options or sink_format(each) not in PRINTS
    ]
    several = {n for n, times in Counter(reads for _, reads in remaining).items() if times > 1}
    found: dict[str, ProgramQuery] = {}
    for query, reads in remaining:
        node, sink = query.function, sink_format(query)
        alone = len(reads) == 1 and reads not in several
        if alone and sink in _TABLES and SINK not in query.options and not query.shaped:
            continue
        named = None if node is None or isinstance(node, ast.Lambda) else node.name
        name = (
            re.sub(r"[^a-z0-9]+", "_", _snake_case(named or f"{sink or 'query'}_{query.line}")).strip("_")
            or "write"
        )
        if name in found and found[name].reads != reads:  # the same lines for another stream
            name = f"{name}_{reads[0] + 1}"
        text = (
            "" if node is None else _program_lines_text(program, node.lineno, node.end_lineno or node.lineno)
        )
        line = query.line if node is None else node.lineno
        found.setdefault(name, ProgramQuery(name, line, sink, text, reads))
    return tuple(found.values())


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _program_lines_text(program: str, first: int, last: int) -> str:
    lines = program.split("\n")[first - 1 : min(last, first + _LONGEST - 1)]
    shown = ("(this line may hold a secret)" if _may_hold_secret(each) else each for each in lines)
    return textwrap.dedent("\n".join(shown))


def _may_hold_secret(line: str) -> bool:
    words = re.findall(r"[\w.-]+", line)
    return censor(("line",), line) != line or any(is_secret_key(each) for each in words)


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
        f"derive-{each.name.replace('_', '-')}"[:40].rstrip("-"): {
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
        sink = f", which writes {each.sink}" if each.sink else ""
        parts.append(
            f"\n\ndef {each.name}(rows: DataFrame) -> DataFrame:\n"
            f'    """Line {each.line} of the program{sink}: return the rows to write; the query\'s sink writes them."""\n'
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
