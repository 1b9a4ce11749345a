"""``millrace notebook``: writes a notebook to try a job's sources, in Glue Studio or Jupyter."""

from __future__ import annotations

import dataclasses
import inspect
import json
import pprint
from pathlib import Path
from typing import Annotated, Any

import typer

from millrace.cli.shared.console import reporting_write_errors_as_wrong_option
from millrace.cli.shared.options import (
    EnvironmentName,
    JobName,
    load_environment_with_job,
    parse_name_value_option,
)
from millrace.config import Environment, Names, find_root
from millrace.config.model import GlueJob
from millrace.etl.launch.settings import (
    DeriveSettings,
    DirectSettings,
    JobSettings,
    LandSettings,
    SecretLogin,
    SourceRouteSettings,
)
from millrace.etl.launch.sources import KafkaSource, KinesisSource
from millrace.infra.engines.glue import join_for_glue_conf
from millrace.infra.launch.job_spark_settings import spark_settings
from millrace.infra.launch.launch_settings import job_settings
from millrace.sizing import plan

_GLUE_VERSION, _WORKER = "5.1", "G.1X"
"""Glue version and worker of a session for a job on EMR Serverless, because notebooks run on Glue."""

_IDLE_MINUTES = 30
_UNKNOWN_ACCOUNT = "000000000000"

_MSK_LOOKUP = '''
import boto3

def brokers(cluster, key):
    """Addresses of an MSK cluster, as the session's own role may ask for them."""
    kafka = boto3.client("kafka", region_name={region!r})
    found = kafka.list_clusters_v2(ClusterNameFilter=cluster)["ClusterInfoList"]
    (arn,) = [one["ClusterArn"] for one in found if one["ClusterName"] == cluster]
    return kafka.get_bootstrap_brokers(ClusterArn=arn)[key]
'''

_SIGN_IN = """
import json

import boto3

{function}
# Read where the notebook runs: no cell holds it.
SECRET = {secret!r}
held = boto3.client("secretsmanager", region_name=SECRET.split(":")[3]).get_secret_value(SecretId=SECRET)
OPTIONS.update(options_with_secret({kind!r}, json.loads(held["SecretString"])))
"""


def notebook(
    env: EnvironmentName,
    job: JobName,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File to write. Default: JOB-ENV.ipynb in this folder."),
    ] = None,
    bind: Annotated[
        list[str] | None,
        typer.Option(
            "--bind",
            metavar="NAME=VALUE",
            help="A value that is known only where the notebook runs, such as kafka.main.bootstrap=HOST:PORT (see "
            "docs/launch-document.md). Repeatable.",
        ),
    ] = None,
) -> None:
    """Write a Jupyter notebook for a job: Glue session settings, its sources, and a sample of records.

    [bold]Examples[/bold]

      millrace notebook --env dev departures

      millrace notebook --env dev flights --bind kafka.main.bootstrap=10.0.0.7:9098
    """
    environment = load_environment_with_job(env, job)
    document = build_notebook(environment, job, parse_name_value_option("--bind", bind, "NAME=VALUE"))
    target = output or Path(f"{job}-{environment.name}.ipynb")
    with reporting_write_errors_as_wrong_option("--output", target):
        target.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    typer.echo(f"wrote {target}")


def build_notebook(environment: Environment, job: str, binds: dict[str, str]) -> dict[str, Any]:
    """Return a notebook (format 4.5) for one job.

    Parameters
    ----------
    binds
        Names and values of ``--bind``, as the core's entry script takes them.

    Returns
    -------
    dict
        JSON: magics, a source cell for each land query with exactly the options that the core
        passes to the connector, and a cell that shows a sample.
    """
    numbers = plan(environment).jobs[job]
    names = Names(environment, environment.account or _UNKNOWN_ACCOUNT)
    settings = job_settings(environment, numbers, names)
    cells = [
        _markdown_cell(
            f"# {environment.name}: {job}\n\n"
            f"Reads the sources of this job as the job does, and writes nowhere: checkpoints and tables stay "
            f"as they are. Written by `millrace notebook`; run it again after a change of the environment."
        ),
        _code_cell(_session_magics_text(environment, job, numbers.worker, numbers.max_workers.value)),
        _code_cell(_configure_magic_text(environment, job, names)),
        _code_cell(
            "import time\n\nfrom pyspark.sql import SparkSession\nfrom pyspark.sql import functions as F\n\n"
            "spark = SparkSession.builder.getOrCreate()\n"
            'spark.conf.set("spark.sql.session.timeZone", "UTC")\n'
            "SAMPLE_SECONDS, SAMPLE_ROWS = 90, 20"
        ),
    ]
    for query in settings.queries:
        cells.append(_markdown_cell(f"## Query `{query.name}`"))
        if isinstance(query, DeriveSettings):
            cells += _derive_query_cells(query, settings.catalog)
            continue
        for route in query.routes:
            if route.name is not None:
                cells.append(_markdown_cell(f"### Route `{route.name}`"))
            cells += _land_query_cells(query, route, settings, environment, binds)
    return {
        "cells": [cell | {"id": f"cell-{number}"} for number, cell in enumerate(cells)],
        "metadata": {
            "kernelspec": {"display_name": "Glue PySpark", "language": "python", "name": "glue_pyspark"},
            "language_info": {"name": "Python_Glue_Session", "file_extension": ".py"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _session_magics_text(environment: Environment, job: str, worker: str, workers: int) -> str:
    section = environment.jobs[job]
    glue = isinstance(section, GlueJob)
    return "\n".join(
        (
            "%streaming",
            f"%region {environment.region}",
            f"%glue_version {section.version if glue else _GLUE_VERSION}",
            f"%worker_type {worker if glue else _WORKER}",
            f"%number_of_workers {workers}",
            f"%idle_timeout {_IDLE_MINUTES}",
        )
    )


def _configure_magic_text(environment: Environment, job: str, names: Names) -> str:
    arguments = {
        "--datalake-formats": "iceberg",
        "--enable-spark-ui": "true",
        "--spark-event-logs-path": f"s3://{names.bucket('event-logs')}/notebooks/{job}/",
        "--enable-spark-ui-legacy-path": "true",
        "--enable-metrics": "true",
    }
    conf = _spark_conf_text(environment, job, names)
    return "%%configure\n" + json.dumps(arguments | ({"--conf": conf} if conf else {}), indent=2)


def _spark_conf_text(environment: Environment, job: str, names: Names) -> str:
    # The job's own settings if the session runs on the job's engine; else those of the catalog.
    settings = spark_settings(environment, environment.jobs[job], plan(environment).jobs[job], names)
    if not isinstance(environment.jobs[job], GlueJob):
        prefixes = ("spark.sql.", "spark.serializer", "spark.speculation")
        settings = {
            key: value
            for key, value in settings.items()
            if key.startswith(prefixes) and not any(character.isspace() for character in value)
        }
    return join_for_glue_conf(settings)


def _land_query_cells(
    query: LandSettings | DirectSettings,
    route: SourceRouteSettings,
    settings: JobSettings,
    environment: Environment,
    binds: dict[str, str],
) -> list[dict[str, Any]]:
    from millrace.etl.engines.glue_kinesis_connector import Glue
    from millrace.etl.sources.kafka import connection, login, topic_stream

    source = route.source
    prelude = signed_in = ""
    if isinstance(source, KinesisSource):
        format_, options, payload = (
            Glue.KINESIS_FORMAT,
            Glue().kinesis_options(source, binds.get("kinesis.endpoint")),
            "data",
        )
    else:
        assert isinstance(source, KafkaSource)
        if route.origin is not None:
            source = dataclasses.replace(source, topic=route.origin, reading=None)
        cluster = connection.apply_bind_options(
            source.connection, settings.connections[source.connection], binds
        )
        known, secret = cluster.bootstrap_servers, cluster.authentication
        if isinstance(secret, SecretLogin):
            signed_in = _SIGN_IN.format(
                function=inspect.getsource(login.options_with_secret), kind=secret.kind, secret=secret.secret
            )
        shown = dataclasses.replace(
            cluster,
            bootstrap_servers=known or "set below",
            authentication="none" if signed_in else cluster.authentication,
        )
        options = topic_stream.stream_options(source, shown, partitions=query.repartition)
        format_, payload = "kafka", "value"
        if known is None:
            prelude = _MSK_LOOKUP.format(region=environment.region).lstrip() + "\n\n"
            key = connection.BROKERS[connection.authentication_kind(cluster)]
            prelude += f"SERVERS = brokers({cluster.cluster!r}, {key!r})\n"
    lines = prelude + f"OPTIONS = {pprint.pformat(options, sort_dicts=True)}\n"
    if prelude:
        lines += 'OPTIONS["kafka.bootstrap.servers"] = SERVERS\n'
    lines += signed_in
    lines += (
        f'records = spark.readStream.format("{format_}").options(**OPTIONS).load()\nrecords.printSchema()'
    )
    schema = _schema_file_without_comments(route.schema)
    name = query.name if route.name is None else f"{query.name}-{route.name}"
    view = f"sample_{name.replace('-', '_')}"
    sample = (
        f'SCHEMA = """{schema}"""\n'
        f'text = F.col("{payload}").cast("string")\n'
        'decoded = records.select(F.from_json(text, SCHEMA + ", _corrupt_record string").alias("record"))\n'
        f'query = decoded.writeStream.format("memory").queryName("{view}").start()\n'
        "deadline = time.monotonic() + SAMPLE_SECONDS\n"
        f'while time.monotonic() < deadline and spark.table("{view}").isEmpty():\n'
        "    query.awaitTermination(1)\n"
        "query.stop()\n"
        f'sample = spark.table("{view}").limit(SAMPLE_ROWS)\n'
        'good = sample.where("record._corrupt_record is null").select("record.*")\n'
        'good.drop("_corrupt_record").show(truncate=False)\n'
        'sample.where("record._corrupt_record is not null").select("record._corrupt_record").show(truncate=False)'
    )
    return [_code_cell(lines), _code_cell(sample)]


def _derive_query_cells(query: DeriveSettings, catalog: str) -> list[dict[str, Any]]:
    table = f"{catalog}.{query.source_table}"
    note = f"Reads `{table}`" + (f" and applies `{query.transform}`." if query.transform else ".")
    return [
        _markdown_cell(note + " The table is there once the query that lands it has run."),
        _code_cell(
            f'if spark.catalog.tableExists("{table}"):\n'
            f'    landed = spark.table("{table}")\n'
            "    landed.limit(SAMPLE_ROWS).show(truncate=False)"
        ),
    ]


def _schema_file_without_comments(path: str) -> str:
    text = (find_root() / path).read_text(encoding="utf-8")
    lines = (line.split("--")[0].strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line)


def _markdown_cell(text: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": text.splitlines(keepends=True)}


def _code_cell(text: str) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {},
        "outputs": [],
        "source": text.splitlines(keepends=True),
    }
