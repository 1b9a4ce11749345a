"""``millrace import``: writes an environment file for a running job, and the steps of the cut-over."""

from __future__ import annotations

import io
import json
import re
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap

from millrace.cli.shared.console import figures, plain_table, show, words
from millrace.cli.shared.options import AsJson
from millrace.config import ConfigurationError, find_root, load
from millrace.config.base import SLUG, SLUG_SAID
from millrace.config.problems import wrong_option
from millrace.config.units import parse_start
from millrace.sizing import Plan, total

if TYPE_CHECKING:
    from millrace.advisor.application_history import History, Query
    from millrace.advisor.job_import import RunningJob

_AHEAD = timedelta(minutes=30)
"""Default time until the new job's first record, for reading and deploying the file; the job starts no earlier."""

_PINS = {"version", "worker", "max_workers", "min_executors", "architecture"}
"""Keys of a job that the plan would choose or compute itself."""


_WIDE = 1_000_000
"""Line width in characters, so large that offsets of many partitions stay on one line."""


def import_command(
    source: Annotated[
        str, typer.Argument(metavar="glue:NAME|emr:APP/RUN", help="The running job; it is only read.")
    ],
    name: Annotated[
        str, typer.Option("--name", help="Name of the environment; the file is environments/NAME.yaml.")
    ],
    schema: Annotated[
        str,
        typer.Option(
            "--schema",
            metavar="FILE",
            help="Schema file of its records, such as pipelines/orders/schemas/order.ddl.",
        ),
    ],
    project: Annotated[
        str,
        typer.Option("--project", help="Name of the project; the names of deployed resources begin with it."),
    ] = "imported",
    logs: Annotated[
        str | None,
        typer.Option(
            "--logs",
            metavar="PATH",
            help="Event logs of the job; they give its rate, speed, trigger and limit.",
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option("--rate", min=0.001, help="Records per second. Default: from the logs."),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", min=1, help="Partitions of the Kafka topic. Default: from the logs."),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster",
            metavar="ARN",
            help="ARN of the MSK cluster; needed for IAM login only. Default: found by its brokers.",
        ),
    ] = None,
    record_size: Annotated[str, typer.Option("--record-size", help="Mean size of a record.")] = "1KiB",
    start: Annotated[
        str | None,
        typer.Option(
            "--start",
            metavar="TIME",
            help="Arrival time in ISO 8601 from which the new job processes records. Default: in 30 minutes.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write an environment file for a running Glue or EMR Serverless job, with its current settings pinned.

    Streams, topics, VPC and role keep their owners. Shows the current sizes beside those that the plan would compute, then the
    steps of a cut-over without lost or duplicate records. Nothing is deployed, started or stopped.

    If the file already exists for the same job, updates only the start position of the new job.

    [bold]Examples[/bold]

      millrace import glue:orders --name orders --schema pipelines/orders/schemas/order.ddl --rate 500

      millrace import emr:00f1abcd/00f2abcd --name orders --schema pipelines/orders/schemas/order.ddl --logs s3://our-logs/emr
    """
    from millrace.advisor.event_log_reader import read
    from millrace.advisor.event_logs import find
    from millrace.advisor.import_cutover import cut_over, job_comment
    from millrace.advisor.job_import import environment
    from millrace.advisor.log_simulation import twin

    root = find_root()
    if not re.fullmatch(SLUG, name):  # before it becomes a part of a path
        raise wrong_option("--name", name, SLUG_SAID)
    target = root / "environments" / f"{name}.yaml"
    earlier = _earlier(target, source, name, root)
    if start is not None and start in ("earliest", "latest"):
        raise wrong_option("--start", start, "a time with its zone, such as 2026-01-31T00:00:00Z")
    moment = _moment(start)
    found = _running(source)
    history = read(find(logs)[0]) if logs is not None else None
    query = _query_of(history, found) if history is not None else None
    fitted = twin(history, query) if history is not None and query is not None else None
    offsets = _ended(query) if query is not None else None
    made = environment(
        found,
        project=project,
        schema=schema,
        start=moment,
        rate=rate,
        record_size=record_size,
        twin=fitted,
        offsets=offsets,
        partitions=partitions,
        cluster=cluster,
    )
    steps = cut_over(found, made, name, exact=bool(offsets))
    shown = str(target.relative_to(root))
    if earlier is not None:
        _begin_again(target, earlier, made, shown, root, steps, as_json=as_json)
        return
    text = f"{job_comment(source)}\n" + "".join(f"# {each}\n" for each in found.notes) + _yaml(made)
    plans = _checked(name, text, root)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
    if as_json:
        document = {
            "file": shown,
            "environment": made,
            "notes": found.notes,
            "plan": {which: _sizes(each) for which, each in plans.items()},
            "cut_over": steps,
        }
        typer.echo(json.dumps(document, indent=2, ensure_ascii=False))
        return
    typer.echo(f"wrote {shown}")
    for each in found.notes:
        typer.echo(f"note: {each}")
    _side_by_side(plans)
    _tell(steps)


def _tell(steps: list[str]) -> None:
    typer.echo("\nsteps of the cut-over:")
    for number, step in enumerate(steps, 1):
        typer.echo(f"{number}. {step}")


def _earlier(target: Path, source: str, name: str, root: Path) -> str | None:
    """Return the text of the file of an earlier import of the same job; None if there is no file.

    Raises
    ------
    ConfigurationError
        The file was not imported from this job.
    """
    from millrace.advisor.import_cutover import describes_job

    try:
        text = target.read_bytes().decode()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        text = ""
    if not describes_job(text, source):
        shown = target.relative_to(root)
        raise wrong_option(
            "--name", name, f"an unused name: {shown} exists and was not imported from {source}"
        )
    return text


def _begin_again(
    target: Path,
    text: str,
    made: Mapping[str, Any],
    shown: str,
    root: Path,
    steps: list[str],
    *,
    as_json: bool,
) -> None:
    """Update the start position in the file of an earlier import."""
    from millrace.advisor.import_cutover import TakeoverError, set_start_position

    try:
        text, begins = set_start_position(text, made)
    except TakeoverError as error:
        raise wrong_option("--name", target.stem, f"{error} ({shown})") from None
    _planned(target.stem, text, root)
    said = {"query": ".".join(begins.path), "key": begins.key, "before": begins.before, "after": begins.after}
    document = json.dumps({"file": shown, "begins": said, "cut_over": steps}, indent=2, ensure_ascii=False)
    target.write_bytes(text.encode())
    if as_json:
        typer.echo(document)
        return
    before = "nothing" if begins.before is None else begins.before
    typer.echo(
        f"{shown}: {'.'.join(begins.path)}.{begins.key}: {before} → {begins.after}; nothing else was changed"
    )
    _tell(steps)


def _moment(start: str | None) -> str:
    if start is None:
        ahead = datetime.now(UTC) + _AHEAD
        return ahead.replace(second=0, microsecond=0).isoformat().replace("+00:00", "Z")
    try:
        return parse_start(start)
    except ValueError as error:
        raise wrong_option("--start", start, str(error)) from None


def _running(source: str) -> RunningJob:
    import boto3
    from botocore.exceptions import BotoCoreError

    from millrace.advisor.job_import import emr, glue

    kind, _, rest = source.partition(":")
    application, _, run = rest.partition("/")
    try:
        session: Any = boto3.Session()
        region = session.region_name or ""
        if kind == "glue" and rest:
            return glue(session.client, rest, region)
        if kind == "emr" and application and run:
            return emr(session.client, application, run, region)
    except BotoCoreError as error:
        raise wrong_option("SOURCE", source, f"an account that can be reached ({error})") from error
    raise wrong_option("SOURCE", source, "glue:NAME or emr:APPLICATION/RUN")


def _query_of(history: History, found: RunningJob) -> Query | None:
    """Return the query that reads the source, found by the source's own name."""
    name = (found.said.name or "").rpartition("/")[2]
    for query in reversed(history.queries):
        if any(name in each.description for batch in query.batches[-1:] for each in batch.sources):
            return query
    return history.queries[-1] if len(history.queries) == 1 else None


def _ended(query: Query) -> dict[int, int]:
    """Return the offsets at the end of the last Kafka batch, by partition."""
    if not query.batches:
        return {}
    [*sources] = query.batches[-1].sources
    if len(sources) != 1 or sources[0].end is None:
        return {}
    return {int(key.rpartition(":")[2]): at for key, at in sources[0].end.items()}


def _yaml(made: Mapping[str, Any]) -> str:
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


def _planned(name: str, text: str, root: Path) -> Plan:
    """Load and plan a file's text before it is written.

    Raises
    ------
    ConfigurationError
        The text is invalid, for example because its schema does not exist; the error names the file that was not written.
    """
    from millrace.sizing import plan

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder).resolve() / f"{name}.yaml"
        file.write_text(text, encoding="utf-8")
        try:
            return plan(load(str(file), root))
        except ConfigurationError as error:
            shown = f"environments/{name}.yaml (not written)"
            raise ConfigurationError(
                replace(each, file=shown if each.file == str(file) else each.file) for each in error.problems
            ) from None


def _checked(name: str, text: str, root: Path) -> dict[str, Plan]:
    """Return the plans of the file with its pins and without them."""
    pinned = _planned(name, text, root)
    free = YAML(typ="safe", pure=True).load(text)
    for job in free["jobs"].values():
        for key in _PINS & set(job):
            del job[key]
        for query in job["queries"].values():
            query.pop("trigger", None)
            query.pop("records_per_batch", None)
    return {"today": pinned, "computed": _planned(name, _yaml(free), root)}


def _sizes(plan: Plan) -> dict[str, Any]:
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
    sizes = {which: _sizes(each) for which, each in plans.items()}
    table = plain_table(*words(""), *figures(*sizes))
    for key in next(iter(sizes.values())):
        table.add_row(key, *(_cell(each[key]) for each in sizes.values()))
    show(table)


def _cell(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int | float) else str(value or "-")
