"""Plans of an imported job: as it runs today, and as the plan would choose."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap

from millrace.advisor.existing.import_cutover import load_yaml_times_as_text
from millrace.cli.shared.console import figure_columns, plain_table, print_rich, word_columns
from millrace.config import ConfigurationError, load
from millrace.config.document.edit_yaml_text import EditError, remove_key, set_value
from millrace.config.units import format_duration, parse_duration
from millrace.sizing import Plan, plan, total_cost

_PINS = {"version", "worker", "max_workers", "min_executors", "architecture"}
"""Keys of a job that the plan would choose or compute itself."""

_WAITS = ("min_partitions", "min_records_per_batch", "max_delay")
"""Keys of a query's ``kafka`` that the plan would compute or leave out."""

_FITTED = {"records_per_batch", "trigger", "latency", *_WAITS}
"""Keys whose values depend on each other."""

_LONGEST_LATENCY = timedelta(days=1)

_WIDE = 1_000_000
"""Line width in characters, so large that offsets of many partitions stay on one line."""


def environment_yaml(made: Mapping[str, Any]) -> str:
    """Return the text of an environment."""

    def put_offsets_on_one_line(node: Any, key: str = "") -> Any:
        """Put offsets on one line, so that a later import finds and replaces them."""
        if isinstance(node, Mapping):
            made = CommentedMap((each, put_offsets_on_one_line(below, each)) for each, below in node.items())
            if key == "start_offsets":
                made.fa.set_flow_style()
            return made
        return node

    yaml = YAML()
    yaml.width = _WIDE
    stream = io.StringIO()
    yaml.dump(put_offsets_on_one_line(made), stream)
    return stream.getvalue()


def plan_of_environment_text(name: str, text: str, root: Path) -> Plan:
    """Return the plan of an environment's text, before that is written to its file.

    Raises
    ------
    ConfigurationError
        The text is invalid, for example because its schema does not exist; the error names the file of the environment.
    """
    file = root.resolve() / "environments" / f"{name}.yaml"
    return plan(load(file, root, {file: text}))


def text_and_plans_with_fitted_sla(
    name: str, text: str, root: Path, *, latency_is_given: bool
) -> tuple[str, dict[str, Plan], list[str]]:
    """Fit the SLA to the trigger and the limit of today, which may be longer or larger than any default allows.

    Parameters
    ----------
    text
        The environment file, without open lines.
    latency_is_given
        Whether the user gave the SLA: it is kept then.

    Returns
    -------
    tuple
        The text; its plans, with its pins and without; a note for each value that was changed.

    Raises
    ------
    ConfigurationError
        The environment is invalid for another reason, or whatever the SLA.
    """
    try:
        return (
            text,
            _plans_with_and_without_pins(name, text, plan_of_environment_text(name, text, root), root),
            [],
        )
    except ConfigurationError as error:
        first = error
    if not any(each.key.rpartition(".")[2] in _FITTED for each in first.problems):
        raise first
    for fitted, note in _relaxed_sla_texts_with_notes(text, first, latency_is_given=latency_is_given):
        try:
            pinned = plan_of_environment_text(name, fitted, root)
        except ConfigurationError:
            continue
        return fitted, _plans_with_and_without_pins(name, fitted, pinned, root), [note]
    raise first


def _relaxed_sla_texts_with_notes(
    text: str, refused: ConfigurationError, *, latency_is_given: bool
) -> Iterator[tuple[str, str]]:
    """Yield texts with a longer SLA, without waits for records, without limits and without triggers, each with its note."""
    [(job, settings)] = load_yaml_times_as_text(text)["jobs"].items()
    latency: timedelta = parse_duration(str(settings.get("latency", "60s")))
    why = "; ".join(each.allowed for each in refused.problems)
    left: list[str] = []
    try:
        for key in ("", "kafka", "records_per_batch", "trigger"):
            pins = [
                (("jobs", job, "queries", query, *path), shown)
                for query, keys in settings["queries"].items()
                for path, shown in _pins_below_key(keys, key).items()
            ]
            for path, shown in pins:
                left.append(shown)
                text = remove_key(text, path)
            note = f"today's {' and '.join(left)} is left to the plan, which refuses it: {why}"
            if pins:
                yield text, note
            may_fit = not latency_is_given and (not key or (pins and key == "kafka"))
            longer = latency
            while may_fit and longer < _LONGEST_LATENCY:
                longer *= 2
                fitted = f"latency is {format_duration(longer)}, as today's trigger and limit need it: --latency gives another"
                yield (
                    set_value(text, ("jobs", job, "latency"), format_duration(longer)),
                    f"{note}; {fitted}" if left else fitted,
                )
    except EditError:  # a form that people gave it: the plan's own words tell what to change
        return


def _pins_below_key(query: Mapping[str, Any], key: str) -> dict[tuple[str, ...], str]:
    """Return the pins of a query below one of its keys, and what they are; of ``kafka`` other keys may remain."""
    if key not in query:
        return {}
    if key != "kafka":
        return {(key,): f"{key} {query[key]}"}
    waits = {each: f"{key}.{each} {value}" for each, value in query[key].items() if each in _WAITS}
    if waits and len(waits) == len(query[key]):
        return {(key,): " and ".join(waits.values())}
    return {(key, each): shown for each, shown in waits.items()}


def _plans_with_and_without_pins(name: str, text: str, pinned: Plan, root: Path) -> dict[str, Plan]:
    """Return the plan of an environment with its pins, and the one without them."""
    free = load_yaml_times_as_text(text)
    for job in free["jobs"].values():
        for key in _PINS & set(job):
            del job[key]
        for query in job["queries"].values():
            for pins, key in (
                (query, "trigger"),
                (query, "records_per_batch"),
                *((query.get("kafka", {}), each) for each in _WAITS),
            ):
                pins.pop(key, None)
    return {"today": pinned, "computed": plan_of_environment_text(name, environment_yaml(free), root)}


def sizes_by_title(plan: Plan) -> dict[str, Any]:
    """Return the sizes of a plan, by their titles."""
    [job] = plan.jobs.values()
    query = next(iter(job.queries.values()))
    return {
        "worker": job.worker,
        "workers": job.max_workers.value,
        "trigger, s": query.trigger_seconds.value,
        "records of a batch": None if query.records_per_batch is None else query.records_per_batch.value,
        "usd a month, all of it": round(total_cost(plan).value, 2),
    }


def print_side_by_side(plans: Mapping[str, Plan]) -> None:
    """Print the sizes of plans, each in a column."""
    columns = {which: sizes_by_title(each) for which, each in plans.items()}
    rows = zip(*(each.items() for each in columns.values()), strict=True)
    cells = (
        (row[0][0], *(f"{v:,}" if isinstance(v, int | float) else str(v or "-") for _, v in row))
        for row in rows
    )
    print_rich(plain_table(*word_columns(""), *figure_columns(*columns), rows=cells))
