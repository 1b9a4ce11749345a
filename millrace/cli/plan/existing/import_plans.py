"""Plans of an imported job: as it runs today, and as the plan would choose."""

from __future__ import annotations

import copy
import io
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap

from millrace.cli.shared.console import figures, plain_table, show, words
from millrace.config import ConfigurationError, load
from millrace.config.units import format_duration, parse_duration
from millrace.sizing import Plan, total

_PINS = {"version", "worker", "max_workers", "min_executors", "architecture"}
"""Keys of a job that the plan would choose or compute itself."""

_FITTED = {"records_per_batch", "trigger", "latency"}
"""Keys whose values depend on each other."""

_LONGEST_LATENCY = timedelta(days=1)

_WIDE = 1_000_000
"""Line width in characters, so large that offsets of many partitions stay on one line."""


def as_yaml(made: Mapping[str, Any]) -> str:
    """Return the text of an environment."""

    def in_a_line(node: Any, key: str = "") -> Any:
        """Put offsets on one line, so that a later import finds and replaces them."""
        if isinstance(node, Mapping):
            made = CommentedMap((each, in_a_line(below, each)) for each, below in node.items())
            if key == "start_offsets":
                made.fa.set_flow_style()
            return made
        return node

    yaml = YAML()
    yaml.width = _WIDE
    stream = io.StringIO()
    yaml.dump(in_a_line(made), stream)
    return stream.getvalue()


def planned(name: str, text: str, root: Path) -> Plan:
    """Load and plan a file's text before it is written.

    Raises
    ------
    ConfigurationError
        The text is invalid, for example because its schema does not exist; the error names the file of the environment.
    """
    from millrace.sizing import plan

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder).resolve() / f"{name}.yaml"
        file.write_text(text, encoding="utf-8")
        try:
            return plan(load(str(file), root))
        except ConfigurationError as error:
            shown = f"environments/{name}.yaml"
            raise ConfigurationError(
                replace(each, file=shown if each.file == str(file) else each.file) for each in error.problems
            ) from None


def fitted_plans(
    name: str, made: Mapping[str, Any], root: Path, *, latency_is_given: bool
) -> tuple[dict[str, Any], dict[str, Plan], list[str]]:
    """Fit the SLA to the trigger and the limit of today, which may be longer or larger than any default allows.

    Parameters
    ----------
    latency_is_given
        Whether the user gave the SLA: it is kept then.

    Returns
    -------
    tuple
        The environment; its plans, with its pins and without; a note for each value that was changed.

    Raises
    ------
    ConfigurationError
        The environment is invalid for another reason, or whatever the SLA.
    """
    try:
        return dict(made), _both(name, made, root), []
    except ConfigurationError as error:
        first = error
    if not any(each.key.rpartition(".")[2] in _FITTED for each in first.problems):
        raise first
    for fitted, note in _ways(made, first, latency_is_given=latency_is_given):
        try:
            return fitted, _both(name, fitted, root), [note]
        except ConfigurationError:
            continue
    raise first


def _ways(
    made: Mapping[str, Any], refused: ConfigurationError, *, latency_is_given: bool
) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield environments with a longer SLA, and then without the limit and without the trigger, each with its note."""
    [job] = made["jobs"]
    latency: timedelta = parse_duration(made["jobs"][job].get("latency", "60s"))
    while not latency_is_given and latency < _LONGEST_LATENCY:
        latency *= 2
        fitted = copy.deepcopy(dict(made))
        fitted["jobs"][job]["latency"] = text = format_duration(latency)
        yield fitted, f"latency is {text}, as today's trigger and limit need it: --latency gives another"
    fitted = copy.deepcopy(dict(made))
    query = next(iter(fitted["jobs"][job]["queries"].values()))
    left = []
    for key in ("records_per_batch", "trigger"):
        if key in query:
            left.append(f"{key} {query.pop(key)}")
            why = "; ".join(each.allowed for each in refused.problems)
            yield (
                copy.deepcopy(fitted),
                f"today's {' and '.join(left)} is left to the plan, which refuses it: {why}",
            )


def _both(name: str, made: Mapping[str, Any], root: Path) -> dict[str, Plan]:
    """Return the plans of an environment with its pins and without them."""
    pinned = planned(name, as_yaml(made), root)
    free = copy.deepcopy(dict(made))
    for job in free["jobs"].values():
        for key in _PINS & set(job):
            del job[key]
        for query in job["queries"].values():
            query.pop("trigger", None)
            query.pop("records_per_batch", None)
    return {"today": pinned, "computed": planned(name, as_yaml(free), root)}


def sizes(plan: Plan) -> dict[str, Any]:
    """Return the sizes of a plan, by their titles."""
    [job] = plan.jobs.values()
    query = next(iter(job.queries.values()))
    return {
        "worker": job.worker,
        "workers": job.max_workers.value,
        "trigger, s": query.trigger_seconds.value,
        "records of a batch": None if query.records_per_batch is None else query.records_per_batch.value,
        "usd a month, all of it": round(total(plan).value, 2),
    }


def side_by_side(plans: Mapping[str, Plan]) -> None:
    """Print the sizes of plans, each in a column."""
    columns = {which: sizes(each) for which, each in plans.items()}
    table = plain_table(*words(""), *figures(*columns))
    for key in next(iter(columns.values())):
        table.add_row(key, *(_cell(each[key]) for each in columns.values()))
    show(table)


def _cell(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int | float) else str(value or "-")
