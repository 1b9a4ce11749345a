"""Rehearsal of a job's start: its changes of the deployed tables, tried on empty copies.

At a job's start the core checks the columns of its decoders and transforms, which only Spark can compute, against its
tables (:mod:`etl.record.schema_evolution`). The rehearsal does this before anything is drained: with the same code, in a
process of its own, on a catalog of empty tables with the deployed columns. It uses no source, no data, and no sink beside
the lake.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from millrace.config import Environment, find_root
from millrace.config.engines.versions import LINES, SparkLine
from millrace.etl.formats.decoding import decoder_per_topic
from millrace.etl.job.build_queries import open_query_for_measurement
from millrace.etl.launch.settings import DeriveSettings, DirectSettings, LandSettings, parse_job_settings
from millrace.etl.queries import land, required_spark_settings
from millrace.etl.queries.query_and_repair_setup import (
    batch_transform_and_schema,
    existing_landing_table,
    make_enrich_then_transform,
    open_derived_stream,
)
from millrace.etl.record import tables
from millrace.etl.record.batch_accounts import EventReporter
from millrace.etl.record.errors import StartError
from millrace.etl.record.job_run_context import JobRun
from millrace.etl.record.tables import Table
from millrace.sandbox.programs import jars, open_spark_session
from millrace.sandbox.programs.child_processes import SandboxError
from millrace.sandbox.programs.toolchain import (
    ToolchainError,
    installed_spark_line,
    program_variables,
    python_import_path,
    spark_home,
    spark_submit_variables,
)

_SECONDS = 180.0


@dataclass(frozen=True)
class RefusedStart:
    """A query that would not start.

    Attributes
    ----------
    why
        The core's message, with what to do.
    planned_on
        Name of the Spark line that refuses it, where the job's own is not installed; empty otherwise.
    """

    job: str
    query: str
    why: str
    planned_on: str = ""


@dataclass(frozen=True)
class StartRehearsal:
    """Effects of starts.

    Attributes
    ----------
    altered
        Changes by table.
    refused
        Queries whose start would end with status 2.
    unchecked
        Queries that read tables of which nothing is known, with their names.
    """

    altered: Mapping[str, tuple[str, ...]]
    refused: tuple[RefusedStart, ...]
    unchecked: tuple[str, ...] = ()


def rehearse_starts(
    environment: Environment, jobs: Sequence[Mapping[str, Any]], deployed: Mapping[str, str] | None
) -> StartRehearsal:
    """Rehearse the starts of some jobs, each on its own Spark line, or on the default one where that is not installed.

    Parameters
    ----------
    jobs
        Settings of launch documents.
    deployed
        Columns by table (:func:`millrace.lifecycle.account.catalog_columns.ddl_columns_by_table`). A missing table is created. None if no
        account was asked: queries that read tables of others are not checked.

    Raises
    ------
    SandboxError
        Spark does not start on this machine.
    """
    altered: dict[str, tuple[str, ...]] = {}
    refused: list[RefusedStart] = []
    unchecked: dict[str, None] = {}
    own = {each["job"]: environment.jobs[each["job"]].spark_line for each in jobs}
    lines = {job: _installed_line(line).name for job, line in own.items()}
    for line in dict.fromkeys(lines.values() if deployed != {} else ()):
        # All jobs on each line: some read what others land.
        told = _rehearse_starts_on_line(LINES[line], jobs, deployed)
        altered |= {table: tuple(changes) for table, changes in told["altered"].items()}
        unchecked |= dict.fromkeys(told["unchecked"])
        refused += [
            RefusedStart(**each, planned_on="" if line == own[each["job"]].name else line)
            for each in told["refused"]
            if lines[each["job"]] == line
        ]
    return StartRehearsal(altered, tuple(refused), tuple(unchecked))


def _installed_line(line: SparkLine) -> SparkLine:
    try:
        spark_home(line)
    except ToolchainError:
        return installed_spark_line()
    return line


def _rehearse_starts_on_line(
    line: SparkLine, jobs: Sequence[Mapping[str, Any]], deployed: Mapping[str, str] | None
) -> dict[str, Any]:
    asked = json.dumps({"jobs": list(jobs), "deployed": None if deployed is None else dict(deployed)})
    variables = spark_submit_variables(line)
    done = subprocess.run(
        [variables["PYSPARK_PYTHON"], "-m", __name__],
        input=asked,
        cwd=find_root(),
        env={
            **program_variables(),
            **variables,
            "PYTHONPATH": python_import_path(),
            "PYTHONWARNINGS": "ignore",
        },
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    told = [text for text in done.stdout.splitlines() if text.startswith('{"altered"')]
    if done.returncode != 0 or not told:
        raise SandboxError(
            "the start cannot be rehearsed, because the tables could not be "
            f"compared:\n{(done.stderr or done.stdout)[-2000:]}"
        )
    found: dict[str, Any] = json.loads(told[-1])
    return found


def _rehearse_request(spark: SparkSession, request: Mapping[str, Any], scratch: Path) -> dict[str, Any]:
    jobs = [
        replace(parse_job_settings(each), checkpoints=str(scratch / "checkpoints"))
        for each in request["jobs"]
    ]
    for name, ddl in (request["deployed"] or {}).items():
        catalog, database = jobs[0].catalog, name.split(".")[0]
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {catalog}.{database}")
        spark.sql(f"CREATE TABLE {Table.from_name(catalog, name)} ({ddl}) USING iceberg")
    altered: dict[str, list[str]] = {}
    report = EventReporter("rehearsal", io.StringIO())
    report.add_listener(lambda told: _note_altered_table(altered, told))
    refused: list[dict[str, str]] = []
    unchecked: list[str] = []
    # Landing tables of all jobs first: derive queries must see them after their changes.
    queries = [(job, query) for job in jobs for query in job.queries]
    for job, query in sorted(queries, key=lambda pair: isinstance(pair[1], DeriveSettings)):
        run = JobRun(spark, job, {}, report)
        required_spark_settings.prepare_or_refuse_session(spark, job)
        unknown = [
            name for name in _tables_only_read(query) if not Table.from_name(job.catalog, name).exists(spark)
        ]
        if request["deployed"] is None and unknown:
            unchecked.append(
                f"jobs.{job.job}.queries.{query.name} was not checked: it reads {', '.join(unknown)}"
            )
            continue
        try:
            if isinstance(query, DeriveSettings):
                _evolve_derive_query_tables(run, query)
            else:
                _evolve_source_query_tables(run, query)
        except StartError as error:
            refused.append({"job": job.job, "query": query.name, "why": str(error)})
    return {"altered": altered, "refused": refused, "unchecked": unchecked}


def _tables_only_read(query: LandSettings | DirectSettings | DeriveSettings) -> list[str]:
    """Return the tables that a query only reads."""
    if isinstance(query, DirectSettings):
        return [each.table for end in query.routes for each in end.enrich]
    if isinstance(query, LandSettings):
        return []
    joined = query.state.join if query.state is not None else None
    sources = [query.source_table, *([joined.source_table] if joined is not None else [])]
    return [*sources, *(each.table for each in query.enrich)]


def _note_altered_table(altered: dict[str, list[str]], event: Mapping[str, Any]) -> None:
    if event["event"] == "altered":
        altered.setdefault(event["table"].partition(".")[2], []).extend(event["changes"])


def _evolve_source_query_tables(run: JobRun, query: LandSettings | DirectSettings) -> None:
    decoder = decoder_per_topic.query_decoder(run.spark, query.routes)
    landed = run.table(query.table if isinstance(query, LandSettings) else query.dead_letters)
    tables.create_or_evolve_table(
        run.spark, landed, land.landing_table_schema(decoder.schema), report=run.report
    )
    for end in query.routes if isinstance(query, DirectSettings) else ():
        schema = make_enrich_then_transform(run, query.name, end).checked_sink_schema(
            run.spark, landed, end.name
        )
        if end.sink.lake_table is not None:
            tables.create_or_evolve_table(
                run.spark, run.table(end.sink.lake_table), schema, report=run.report
            )


def _evolve_derive_query_tables(run: JobRun, query: DeriveSettings) -> None:
    if query.sink.lake_table is not None:
        open_query_for_measurement(run, query.name, None)
        return
    landing = existing_landing_table(run, query.name, query.source_table)
    compose = make_enrich_then_transform(run, query.name, query)
    rows = open_derived_stream(run, query, compose, landing, None)
    batch_transform_and_schema(run.spark, query, compose, rows, landing)


def main() -> None:
    """Read the request from standard input, and print the result as the last line."""
    asked = json.load(sys.stdin)
    catalog = asked["jobs"][0]["catalog"]
    files = [path for path in jars.jar_files("sandbox") if path.name.startswith("iceberg-")] + jars.jar_files(
        "avro"
    )
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        settings = {
            "spark.master": "local[1]",
            "spark.driver.memory": "1g",
            "spark.local.dir": str(scratch / "tmp"),
            "spark.sql.warehouse.dir": str(scratch / "hive"),
        }
        with open_spark_session.running_spark_session(
            files, settings, warehouse=scratch / "lake", catalog=catalog
        ) as spark:
            found = _rehearse_request(spark, asked, scratch)
    sys.stdout.write(f"{json.dumps(found)}\n")


if __name__ == "__main__":
    main()
