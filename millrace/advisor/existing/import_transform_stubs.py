"""Transforms of an imported job, to be finished: a function for each query of its program, with the places of its lines."""

from __future__ import annotations

import ast
import itertools
import keyword
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from millrace.advisor.programs.possible_values import Unknown
from millrace.advisor.programs.program_stream_model import FORMAT, SINK, ProgramSource, Query
from millrace.config.document.placeholders_left_by_import import placeholder_for_question
from millrace.config.document.plain_text_secrets import censor
from millrace.config.document.problems import wrong_option_error

if TYPE_CHECKING:
    from millrace.advisor.existing.read_job_to_import import RunningJob

MODULE = "imported"
"""Name of the module in the job's folder below ``pipelines/``."""

_LONGEST_NAME = 30
"""Characters of a name: with ``derive-`` and a number it is the key of a query."""

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
    places
        Lines of the program that make its rows.
    reads
        Numbers of the streams that it reads, among those that are imported.
    query
        The query in the program.
    """

    name: str
    line: int
    sink: str
    places: str
    reads: tuple[int, ...]
    query: Query

    @property
    def open_sink(self) -> str:
        """The question where the text tells no one format of its sink; empty where it does."""
        formats = sink_formats(self.query)
        if SINK in self.query.options or not (len(formats) > 1 or has_unknown_format(self.query)):
            return ""
        return f"line {self.query.line}: {self.sink}: the text does not tell which sink this is; write it here, such as {{kind: iceberg, table: orders}}"

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


def sink_formats(query: Query) -> tuple[str, ...]:
    """Return the formats that a query's sink may have, one that is not known as its origin in words; none where nothing names one."""
    values = [each.value for each in query.options.get(FORMAT, ()) if each.value is not None]
    texts = [each.origin if isinstance(each, Unknown) else str(each) for each in values]
    named = [re.sub(r"[^\w.,() -]", "", each) for each in texts]
    return tuple(dict.fromkeys(named)) or ("table",) * (
        FORMAT not in query.options and "table" in query.options
    )


def has_unknown_format(query: Query) -> bool:
    """Return whether the text does not tell the format of a query's sink."""
    return any(isinstance(each.value, Unknown) for each in query.options.get(FORMAT, ()))


def keeps_rows(query: Query) -> bool:
    """Return whether a query keeps its rows; others only print them."""
    formats = sink_formats(query)
    return SINK in query.options or not formats or not _PRINTS.issuperset(formats)


def _is_table(query: Query) -> bool:
    """Return whether the landing table can take the place of what a query writes."""
    return not has_unknown_format(query) and _TABLES.issuperset(sink_formats(query))


def queries_to_derive(
    queries: Sequence[Query], streams: Sequence[Sequence[ProgramSource]]
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
    derived: dict[str, ProgramQuery] = {}
    for query, reads in remaining:
        node, sink = query.function, " or ".join(sink_formats(query))
        alone = len(reads) == 1 and reads not in several
        if alone and _is_table(query) and SINK not in query.options and not query.shaped:
            continue
        base = _transform_name(query, sink)
        name = next(
            each for n in itertools.count(1) if (each := f"{base}_{n}" if n > 1 else base) not in derived
        )
        first, last = (query.line, query.line) if node is None else (node.lineno, node.end_lineno)
        places = {str(each): None for each in sorted({*query.lines, query.line})}
        places[f"{first} to {last}" if last != first else f"{first}"] = None
        derived[name] = ProgramQuery(name, first, sink, ", ".join(places), reads, query)
    return tuple(derived.values())


def notes_on_queries(queries: Sequence[Query], derived: Sequence[ProgramQuery]) -> list[str]:
    """Return a note on the queries whose rows are to be derived, on those that only land, and on those that print."""
    counts = Counter(
        f"{each.line}: {each.sink}" if each.sink else str(each.line) for each in derived if not each.open_sink
    )
    most = max((len(each.reads) for each in derived), default=0)
    left = [each for each in queries if all(each is not one.query for one in derived)]
    places_by_note = {
        f"what writes it (line{'s' * (len(counts) > 1)} {{}}) is a derive query of a transform to be finished, and an Iceberg table until "
        "you name its sink": [
            f"{place}, {times} queries" if times > 1 else place for place, times in counts.items()
        ],
        f"line {{}}: it reads {most} streams, and its derive query has the first of them: `state.join` adds another, routes of one land "
        "query put several into one table": [str(each.line) for each in derived if len(each.reads) > 1],
        "line {}: what is written there is a derive query of a transform to be finished, whose sink is open": [
            str(each.line) for each in derived if each.open_sink
        ],
        "line {}: what it prints, and keeps nowhere, is left out": [
            str(each.line) for each in left if not keeps_rows(each)
        ],
        "line {}: the landing table, an Iceberg table with the schema's fields, takes the place of what it writes; a derive query can have "
        "other columns and another sink": [
            f"{each.line}: {' or '.join(formats)}"
            for each in left
            if keeps_rows(each) and (formats := sink_formats(each))
        ],
    }
    return [
        note.format(", ".join(dict.fromkeys(places))) for note, places in places_by_note.items() if places
    ]


def _transform_name(query: Query, sink: str) -> str:
    """Return a name from the function of a query, else from its table, else from its line; another query may have the same."""
    table = _only_text(query, "table").rpartition(".")[2].strip("`")
    named = table if query.function is None or isinstance(query.function, ast.Lambda) else query.function.name
    name = re.sub(r"[^a-z0-9]+", "_", _snake_case(named or f"{sink or 'query'}_{query.line}")).strip("_")
    if not name.isidentifier() or keyword.iskeyword(name):
        name = re.sub(r"\W+", "_", f"{sink or 'write'}_{name}").rstrip("_")
    return name[:_LONGEST_NAME].rstrip("_")


def _snake_case(name: str) -> str:
    """Return a name in small letters, its words divided by underscores."""
    return re.sub("(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _only_text(query: Query, option: str) -> str:
    """Return the value of an option of a query's writer; empty where it has none, or several."""
    values = query.options.get(option, ())
    return values[0].value if len(values) == 1 and isinstance(values[0].value, str) else ""


def _folder_of_environment(name: str) -> str:
    """Return the folder below ``pipelines/`` for a file: one job may be imported as several, and runs of one application may be several jobs."""
    return name.replace("-", "_")


def derive_query_sections(written: Sequence[ProgramQuery], env: str, landed: Sequence[str]) -> dict[str, Any]:
    """Return a derive query for each, which writes an Iceberg table until its sink is chosen.

    Parameters
    ----------
    env
        Name of the environment.
    landed
        Landing tables of the streams.
    """
    module = f"pipelines.{_folder_of_environment(env)}.{MODULE}"
    return {
        f"derive-{each.name.replace('_', '-')}": {
            "kind": "derive",
            "source": landed[each.reads[0]],
            "transform": f"{module}:{each.name}",
            "sink": placeholder_for_question(each.open_sink)
            if each.open_sink
            else {
                "kind": "iceberg",
                "table": f"{landed[each.reads[0]].removesuffix('_landed')}_{each.name}",
            },
        }
        for each in written
    }


def transforms_module_text(where: str, written: Sequence[ProgramQuery]) -> str:
    """Return the module with their transforms."""
    head = (
        f'"""Transforms of {where}, to be finished: each names the lines of its program."""\n\n'
        "from __future__ import annotations\n\nfrom pyspark.sql import DataFrame\n\n\n"
        "def _unfinished(rows: DataFrame, line: int) -> DataFrame:\n"
        '    raise NotImplementedError(f"line {line} of the program is not written as a transform yet")\n'
    )
    functions = (
        f"\n\ndef {each.name}(rows: DataFrame) -> DataFrame:\n"
        f'    """{each.origin}: return the rows to write; the query\'s sink writes them."""\n'
        f"    # The program makes them in line {each.places}.\n"
        f"    return _unfinished(rows, {each.line})\n"
        for each in written
    )
    return "".join((head, *functions))


def write_transforms(root: Path, running: RunningJob, env: str) -> Path | None:
    """Write the transforms to be finished below a project's root.

    Returns
    -------
    Path or None
        The new file; None without transforms, or where the file of an earlier import of the same job or run is there.

    Raises
    ------
    ConfigurationError
        There is the file of another job or run, whose program may be another.
    """
    file = root / "pipelines" / _folder_of_environment(env) / f"{MODULE}.py"
    text = transforms_module_text(running.where, running.program.written)
    if not running.program.written:
        return None
    if file.exists():
        shown = file.relative_to(root)
        if file.read_text(encoding="utf-8").partition("\n")[0] == text.partition("\n")[0]:
            return None
        raise wrong_option_error(
            "--name",
            env,
            f"a name without {shown}, which may be of another program: move it away, or give another name",
        )
    file.parent.mkdir(parents=True, exist_ok=True)
    for folder in (file.parent.parent, file.parent):
        (folder / "__init__.py").touch()
    file.write_text(text, encoding="utf-8")
    return file


def remove_transforms(file: Path) -> None:
    """Remove what :func:`write_transforms` wrote."""
    file.unlink()
    package = file.with_name("__init__.py")
    if [*file.parent.iterdir()] == [package] and not package.stat().st_size:
        package.unlink()
        file.parent.rmdir()
