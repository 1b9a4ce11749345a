"""Spark settings of a job: the table catalog, the session, and the engine's own."""

from __future__ import annotations

from millrace.config.aws.resource_names import Names
from millrace.config.model import Environment, Job
from millrace.config.queries import DeriveQuery
from millrace.sizing.plan_model import JobPlan

from .. import engines
from .launch_settings import CATALOG, source_streams_of_job

_ICEBERG = "org.apache.iceberg"

_STATE = {
    # State is on the worker's disk instead of the heap, and each batch writes only its changes to S3 (Spark
    # structured streaming guide, "RocksDB state store implementation").
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
"""Settings of a job with state."""


def database_location(names: Names) -> str:
    """Return the prefix of the environment's database; tables lie directly below it."""
    return f"{names.warehouse_url}/{names.database}.db"


def spark_settings(environment: Environment, job: Job, plan: JobPlan, names: Names) -> dict[str, str]:
    """Write a job's Spark settings; the ``spark`` entries of the environment file override them.

    Parameters
    ----------
    plan
        The job's size, which bounds dynamic allocation on EMR Serverless.

    Returns
    -------
    dict
        Setting to value, sorted by name so that equal input gives an equal document.

    Raises
    ------
    InfrastructureError
        A setting that cannot be passed on, such as one with a blank in Glue's ``--conf``.
    """
    settings = _session_settings(plan) | _catalog_settings(names)
    engine = engines.deployed_engine(job.engine)
    read = source_streams_of_job(environment, job).values()
    jars = (jar for stream in read for jar in stream.engine_jars.get(job.engine, ()))
    settings |= engine.engine_spark_settings(job, plan, jars=tuple(dict.fromkeys(jars)))
    if any(isinstance(query, DeriveQuery) and query.state is not None for query in job.queries.values()):
        settings |= _STATE
    settings |= job.spark
    engine.raise_if_spark_settings_refused(plan.name, settings)
    return dict(sorted(settings.items()))


def _session_settings(plan: JobPlan) -> dict[str, str]:
    return {
        # Without it each batch with a shuffle has as many tasks and files as the engine's default, 200 on EMR Serverless.
        # A checkpoint with state keeps the number of its first start (Spark structured streaming guide, "Recovery
        # semantics after changes in a streaming query").
        "spark.sql.shuffle.partitions": str(plan.cores.value),
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        # A second copy of a task would read a Kinesis shard twice at once.
        "spark.speculation": "false",
        # Each query is a pool (``etl.job.supervise``): its tasks do not wait for all those of another's long batch.
        "spark.scheduler.mode": "FAIR",
        # A task is tried four times; the core repeats a failed batch as often as the job says (batch_retries); the job's
        # state machine restarts a failed run (restarts_per_hour).
        "spark.task.maxFailures": "4",
        # The driver writes the plans of each batch as text, twice, for the user interface and the event log: 60,000 characters
        # each, of which the first hundreds have the tree.
        "spark.sql.maxPlanStringLength": "4000",
        # PySpark 4 tells the JVM the line of each call that makes a column, by four calls more: four fifths of all that make a decoder.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        # A batch of a query has some fifty classes of generated code, and the queries of a job share the cache: with Spark's 100
        # they compile each other's again in every batch, and Java begins to compile them anew.
        "spark.sql.codegen.cache.maxEntries": "500",
        "spark.sql.session.timeZone": "UTC",
        # Adaptive execution removes an empty relation together with the node that counts the batch: the counts of
        # an empty batch would be lost.
        "spark.sql.adaptive.optimizer.excludedRules": (
            "org.apache.spark.sql.execution.adaptive.AQEPropagateEmptyRelation"
        ),
        "spark.sql.extensions": f"{_ICEBERG}.spark.extensions.IcebergSparkSessionExtensions",
    }


def _catalog_settings(names: Names) -> dict[str, str]:
    prefix = f"spark.sql.catalog.{CATALOG}"
    return {
        prefix: f"{_ICEBERG}.spark.SparkCatalog",
        f"{prefix}.catalog-impl": f"{_ICEBERG}.aws.glue.GlueCatalog",
        f"{prefix}.io-impl": f"{_ICEBERG}.aws.s3.S3FileIO",
        f"{prefix}.warehouse": names.warehouse_url,
        # Without it the SDK looks for AWS_REGION; no document says that an engine sets it.
        f"{prefix}.client.region": names.environment.region,
        # A cached table hides other sessions' commits from the session of a micro-batch.
        f"{prefix}.cache-enabled": "false",
    }
