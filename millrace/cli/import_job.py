"""``millrace import``: a job that runs already, written down as an environment, and how to change over to it."""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millrace.cli.lifecycle import AsJson
from millrace.config import ConfigurationError, find_root, load
from millrace.config.problems import Problem
from millrace.config.units import parse_start

if TYPE_CHECKING:
    from millrace.advisor.adopt import Running
    from millrace.advisor.history import History, Query
    from millrace.advisor.twin import QueryTwin
    from millrace.sizing import Plan

_AHEAD = timedelta(minutes=30)
"""From now until the new job's first record: time to read what was written, and to deploy it; it starts no earlier."""

_PINS = {"version", "worker", "max_workers", "min_executors", "architecture"}
"""Of a job, what the plan would choose or compute by itself."""


_IDENTIFY = "in Spark SQL ALTER TABLE old ADD COLUMNS (_id STRING), then UPDATE old SET _id = to_json(struct(KEY, ...))"


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("import", rich_help_panel="Decide")(import_command)


def import_command(
    source: Annotated[
        str, typer.Argument(metavar="glue:NAME|emr:APP/RUN", help="A job that runs; only read.")
    ],
    name: Annotated[
        str, typer.Option("--name", help="The environment's: environments/NAME.yaml is written.")
    ],
    schema: Annotated[
        str,
        typer.Option(
            "--schema", metavar="FILE", help="Of its records, as pipelines/orders/schemas/order.ddl."
        ),
    ],
    project: Annotated[
        str, typer.Option("--project", help="What names of deployed things begin with.")
    ] = "imported",
    logs: Annotated[
        str | None,
        typer.Option(
            "--logs", metavar="PATH", help="Its event logs: rate, speed, trigger and limit come from there."
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option("--rate", min=0.001, help="Records per second; left out, what the logs show."),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", min=1, help="Of a Kafka topic; left out, what the logs show."),
    ] = None,
    record_size: Annotated[str, typer.Option("--record-size", help="Mean size of a record.")] = "1KiB",
    start: Annotated[
        str | None,
        typer.Option(
            "--start",
            metavar="TIME",
            help="The first record of the new job, in ISO 8601; left out, in half an hour.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write the environment file of a job that runs already: what runs today pinned, what exists referenced.

    Streams, topics, VPC and role stay whose they are. Beside what runs stands what the plan would compute; below it, how
    to change over so that no record is lost and none is there twice. Nothing is deployed, started or stopped.

    [bold]Examples[/bold]

      millrace import glue:orders --name orders --schema pipelines/orders/schemas/order.ddl --rate 500

      millrace import emr:00f1abcd/00f2abcd --name orders --schema pipelines/orders/schemas/order.ddl --logs s3://our-logs/emr
    """
    from millrace.advisor.adopt import environment

    root = find_root()
    target = root / "environments" / f"{name}.yaml"
    if target.exists():
        raise _wrong("--name", name, f"a name that is free: {target.relative_to(root)} exists")
    if start is not None and start in ("earliest", "latest"):
        raise _wrong("--start", start, "a moment with its zone, such as 2026-01-31T00:00:00Z")
    moment = _moment(start)
    found = _running(source)
    history = _history(logs) if logs is not None else None
    query = _query_of(history, found) if history is not None else None
    twin = _twin(history, query) if history is not None and query is not None else None
    offsets = _ended(query) if query is not None else None
    made = environment(
        found,
        project=project,
        schema=schema,
        start=moment,
        rate=rate,
        record_size=record_size,
        twin=twin,
        offsets=offsets,
        partitions=partitions,
    )
    head = (
        f"# What runs today as {source}, written down by `millrace import`: every number of it is pinned.\n"
    )
    text = head + "".join(f"# {each}\n" for each in found.notes) + _yaml(made)
    plans = _checked(name, text, root)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
    steps = cut_over(found, made, exact=bool(offsets))
    if as_json:
        document = {
            "file": str(target.relative_to(root)),
            "environment": made,
            "notes": found.notes,
            "plan": {which: _sizes(each) for which, each in plans.items()},
            "cut_over": steps,
        }
        typer.echo(json.dumps(document, indent=2, ensure_ascii=False))
        return
    typer.echo(f"written: {target.relative_to(root)}")
    for each in found.notes:
        typer.echo(f"note: {each}")
    _side_by_side(plans)
    typer.echo("\nhow to change over:")
    for number, step in enumerate(steps, 1):
        typer.echo(f"{number}. {step}")


def _moment(start: str | None) -> str:
    if start is None:
        ahead = datetime.now(UTC) + _AHEAD
        return ahead.replace(second=0, microsecond=0).isoformat().replace("+00:00", "Z")
    try:
        return parse_start(start)
    except ValueError as error:
        raise _wrong("--start", start, str(error)) from None


def _running(source: str) -> Running:
    import boto3
    from botocore.exceptions import BotoCoreError

    from millrace.advisor.adopt import emr, glue

    kind, _, rest = source.partition(":")
    application, _, run = rest.partition("/")
    try:
        session = boto3.Session()

        def client(service: str) -> Any:
            make: Any = session.client
            return make(service)

        region = session.region_name or ""
        if kind == "glue" and rest:
            return glue(client, rest, region)
        if kind == "emr" and application and run:
            return emr(client, application, run, region)
    except BotoCoreError as error:
        raise _wrong("SOURCE", source, f"an account that can be reached ({error})") from error
    raise _wrong("SOURCE", source, "glue:NAME or emr:APPLICATION/RUN")


def _history(place: str) -> History:
    from millrace.advisor.logs import find
    from millrace.advisor.reading import read

    return read(find(place)[0])


def _query_of(history: History, found: Running) -> Query | None:
    """The query that reads the source, by what the source calls itself."""
    name = (found.said.name or "").rpartition("/")[2]
    for query in reversed(history.queries):
        if any(name in each.description for batch in query.batches[-1:] for each in batch.sources):
            return query
    return history.queries[-1] if len(history.queries) == 1 else None


def _twin(history: History, query: Query) -> QueryTwin | None:
    from millrace.advisor.twin import twin

    return twin(history, query)


def _ended(query: Query) -> dict[int, int]:
    """Kafka: where its last batch ended, by partition."""
    if not query.batches:
        return {}
    [*sources] = query.batches[-1].sources
    if len(sources) != 1 or sources[0].taken is None:
        return {}
    return {int(key.rpartition(":")[2]): int(at) for key, at in sources[0].end.items()}


def _yaml(made: Mapping[str, Any]) -> str:
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.width = 200
    stream = io.StringIO()
    yaml.dump(dict(made), stream)
    return stream.getvalue()


def _checked(name: str, text: str, root: Path) -> dict[str, Plan]:
    """Load and plan it as it is, and without its pins.

    Raises
    ------
    ConfigurationError
        As it is it cannot be, such as with a schema that is not there: with the file that would have been written.
    """
    from dataclasses import replace

    from ruamel.yaml import YAML

    from millrace.sizing import plan

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder).resolve() / f"{name}.yaml"
        try:
            file.write_text(text, encoding="utf-8")
            pinned = plan(load(str(file), root))
        except ConfigurationError as error:
            shown = f"environments/{name}.yaml (not written)"
            raise ConfigurationError(
                replace(each, file=shown if each.file == str(file) else each.file) for each in error.problems
            ) from None
        free = YAML(typ="safe", pure=True).load(text)
        for job in free["jobs"].values():
            for key in _PINS & set(job):
                del job[key]
            for query in job["queries"].values():
                query.pop("trigger", None)
                query.pop("records_per_batch", None)
        file.write_text(_yaml(free), encoding="utf-8")
        return {"today": pinned, "computed": plan(load(str(file), root))}


def _sizes(plan: Plan) -> dict[str, Any]:
    from millrace.sizing import total

    [job] = plan.jobs.values()
    [query] = job.queries.values()
    return {
        "worker": job.worker,
        "workers": job.max_workers.value,
        "trigger, s": query.trigger_seconds.value,
        "records of a batch": None if query.records_per_batch is None else query.records_per_batch.value,
        "usd a month, all of it": round(total(plan).value, 2),
    }


def _side_by_side(plans: Mapping[str, Plan]) -> None:
    from rich.table import Table

    from millrace.cli.console import show

    sizes = {which: _sizes(each) for which, each in plans.items()}
    table = Table(box=None, pad_edge=False, padding=(0, 2))
    table.add_column("", no_wrap=True)
    for which in sizes:
        table.add_column(which, justify="right", no_wrap=True)
    for key in next(iter(sizes.values())):
        table.add_row(key, *(_cell(each[key]) for each in sizes.values()))
    show(table)


def _cell(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int | float) else str(value or "-")


def cut_over(found: Running, made: Mapping[str, Any], *, exact: bool) -> list[str]:
    """Return the steps from the old job to the new one.

    With offsets of a Kafka topic the change is exact: the new job begins where the old one ended. Otherwise records are
    divided by when they arrived, or, where the old rows do not tell, by their business key.
    """
    name = next(iter(made["jobs"]))
    query = next(iter(made["jobs"][name]["queries"].values()))
    old = found.where
    deploy = (
        f"write the transforms, test them in the sandbox, then deploy the environment with {name} stopped"
    )
    if exact:
        return [
            deploy,
            f"stop {old} after a batch, not in the middle of one, and read its event log once more: `millrace import` with --logs "
            "gives the offsets at which its last batch ended (kafka.start_offsets). Where the log is older than the stop, do "
            "this again: what came between would be read twice",
            f"start {name}: it begins at these offsets, so no record is lost and none is read twice",
            "compare: `millrace audit`, and the row counts of both outputs around the change",
            f"keep {old} stopped, not deleted, until retention has passed",
        ]
    moment = query["start"]
    return [
        f"{deploy}; of a derive query that replaces by a business key, the table comes later, see below",
        f"let {old} run on past {moment} by more than its slowest batch, its backlog and the disorder of its producers' times, "
        f"then stop it: all that arrived before {moment} is then in its output",
        f"start {name} at {moment} or later, before or after the stop, but not earlier: a start that lies ahead is none, Kinesis "
        f"refuses it and of a topic the latest records would be read. It lands what arrived from {moment} on, however late it starts",
        f"what {old} wrote of records that arrived at {moment} or later, {name} has, too. Where its rows tell when they arrived: "
        f"delete those from {moment} on, and where times are the producers' own, take only _arrived_at >= {moment} from {name}",
        f"where they do not, they carry no identity. With {old} stopped, give them the one that a sink with state.key compares: "
        f"{_IDENTIFY}, in the order of state.key; then deploy a derive query with state.key into that table (storage.database names its database): it puts its "
        "rows in their place. Without _id every one of them would be there twice",
        f"compare one hour before and one after {moment} by business key: each key once",
        f"keep {old} stopped, not deleted, until retention has passed",
    ]


def _wrong(option: str, value: str, allowed: str) -> ConfigurationError:
    return ConfigurationError([Problem("command line", 0, option, value, allowed)])
