"""Spark settings of a job: the table catalog, the session, and what each engine wants."""

from __future__ import annotations

from infra.errors import InfrastructureError
from infra.settings import CATALOG, sources
from millrace.config.model import EmrJob, Environment, GlueJob, Job, KinesisStream
from millrace.config.names import Names
from millrace.config.queries import DeriveQuery
from millrace.sizing.model import JobPlan

_ICEBERG = "org.apache.iceberg"
_MIB = 1024 * 1024

_EMR_ICEBERG_JAR = "/usr/share/aws/iceberg/lib/iceberg-spark3-runtime.jar"
_EMR_KINESIS_JAR = "/usr/share/aws/kinesis/spark-sql-kinesis/lib/spark-streaming-sql-kinesis-connector.jar"
"""Jars that a release ships without putting them on the class path (EMR Serverless user guide)."""

_OVERHEAD_SHARE = 0.10
_OVERHEAD_LEAST_MIB = 384
"""Memory that Spark asks for beside the heap: 10 %, at least 384 MiB, out of the worker's memory."""


def warehouse(names: Names) -> str:
    """Return the prefix under which the catalog keeps its tables."""
    return f"s3://{names.bucket('lake')}/warehouse"


def database_location(names: Names) -> str:
    """Return the prefix of the environment's database; tables lie directly below it."""
    return f"{warehouse(names)}/{names.database}.db"


def spark_settings(environment: Environment, job: Job, plan: JobPlan, names: Names) -> dict[str, str]:
    """Write a job's Spark settings; the file's own ``spark`` entries come last.

    Parameters
    ----------
    environment, job, names
        The environment, the job's section of it, and the deployed names.
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
    settings = _session(plan) | _catalog(names)
    if isinstance(job, EmrJob):
        settings |= _emr(job, plan, reads_kinesis=_reads_kinesis(environment, job))
    else:
        settings |= _glue()
    if any(isinstance(query, DeriveQuery) and query.state is not None for query in job.queries.values()):
        settings |= _state()
    settings |= _of_sinks(job, settings["spark.sql.extensions"])
    settings |= job.spark
    if isinstance(job, GlueJob):
        for name, value in settings.items():
            if any(character.isspace() for character in name + value):
                raise InfrastructureError(
                    f"jobs.{plan.name}.spark.{name}: {value!r} holds a blank, and Glue takes its Spark "
                    "settings as one line divided by blanks; write the value without"
                )
    return dict(sorted(settings.items()))


def glue_conf(settings: dict[str, str]) -> str:
    """Chain settings the way Glue's ``--conf`` wants them: ``a=1 --conf b=2``."""
    return " --conf ".join(f"{name}={value}" for name, value in settings.items())


def heap_mib(memory_bytes: int) -> int:
    """Return the heap that fits in a worker beside its overhead, in MiB.

    Parameters
    ----------
    memory_bytes
        Memory of the worker.

    Returns
    -------
    int
        The largest heap ``h`` with ``h + max(384, 0.1·h)`` within the worker.
    """
    total = memory_bytes // _MIB
    heap = int(total / (1 + _OVERHEAD_SHARE))
    return min(heap, total - _OVERHEAD_LEAST_MIB)


def _session(plan: JobPlan) -> dict[str, str]:
    return {
        # Without it each batch with a shuffle has as many tasks and files as the engine's default, 200 on EMR Serverless.
        # A checkpoint with state keeps the number of its first start (Spark structured streaming guide, "Recovery
        # semantics after changes in a streaming query").
        "spark.sql.shuffle.partitions": str(plan.cores.value),
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        # A second copy of a task would read a Kinesis shard twice at once.
        "spark.speculation": "false",
        # A task is tried four times, a failed batch by the core as often as the job says (batch_retries), a
        # failed run by the job's state machine (restarts_per_hour).
        "spark.task.maxFailures": "4",
        "spark.sql.session.timeZone": "UTC",
        # Adaptive execution replaces an empty side by nothing, and with it the node that counts
        # the batch: the accounts of an empty batch would be lost.
        "spark.sql.adaptive.optimizer.excludedRules": (
            "org.apache.spark.sql.execution.adaptive.AQEPropagateEmptyRelation"
        ),
        "spark.sql.extensions": f"{_ICEBERG}.spark.extensions.IcebergSparkSessionExtensions",
    }


def _catalog(names: Names) -> dict[str, str]:
    prefix = f"spark.sql.catalog.{CATALOG}"
    return {
        prefix: f"{_ICEBERG}.spark.SparkCatalog",
        f"{prefix}.catalog-impl": f"{_ICEBERG}.aws.glue.GlueCatalog",
        f"{prefix}.io-impl": f"{_ICEBERG}.aws.s3.S3FileIO",
        f"{prefix}.warehouse": warehouse(names),
        # Without it the SDK looks for AWS_REGION, which no document says that an engine sets.
        f"{prefix}.client.region": names.environment.region,
        # A cached table hides, from the session of a micro-batch, what another session committed.
        f"{prefix}.cache-enabled": "false",
    }


def data_lake_formats(job: Job) -> str:
    """Return what Glue puts on the class path (``--datalake-formats``)."""
    return ",".join(dict.fromkeys(["iceberg", *(each for sink in job.sinks for each in sink.lake_formats)]))


def _of_sinks(job: Job, extensions: str) -> dict[str, str]:
    found = {name: value for sink in job.sinks for name, value in sink.spark.items()}
    names = dict.fromkeys([extensions, *(each for sink in job.sinks for each in sink.spark_extensions)])
    return found | {"spark.sql.extensions": ",".join(names)}


def _glue() -> dict[str, str]:
    # Glue writes the event log of an endless job to --spark-event-logs-path; rolled files keep
    # each piece small enough to be uploaded and read while the job runs.
    return {
        "spark.eventLog.rolling.enabled": "true",
        "spark.eventLog.rolling.maxFileSize": "64m",
    }


def _state() -> dict[str, str]:
    prefix = "spark.sql.streaming.stateStore"
    return {
        # On the worker's disk instead of the heap, and of each batch only the changes on S3 (Spark
        # structured streaming guide, "RocksDB state store implementation").
        f"{prefix}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        f"{prefix}.rocksdb.changelogCheckpointing.enabled": "true",
    }


def _emr(job: EmrJob, plan: JobPlan, *, reads_kinesis: bool) -> dict[str, str]:
    # EMR Serverless rolls event logs by itself, and Spark's own settings for it break the upload
    # on emr-7 releases: none of spark.eventLog.* is set here.
    heap = f"{heap_mib(plan.memory_gib * 1024**3)}m"
    disk = f"{plan.disk_gib}g"
    scaling = plan.scaling
    assert scaling.allocation_ratio is not None, f"{plan.name}: no dynamic allocation in the plan"
    assert scaling.idle_timeout_seconds is not None, plan.name
    assert scaling.shuffle_timeout_seconds is not None, plan.name
    return {
        # The images of emr-7 have Python 3.9, too, and documents disagree on which one Spark takes. The names are those
        # of "Using custom images" and "Using Python libraries" of the EMR Serverless user guide.
        "spark.pyspark.python": job.python,
        "spark.pyspark.driver.python": job.python,
        "spark.emr-serverless.driverEnv.PYSPARK_PYTHON": job.python,
        "spark.emr-serverless.driverEnv.PYSPARK_DRIVER_PYTHON": job.python,
        "spark.executorEnv.PYSPARK_PYTHON": job.python,
        "spark.jars": ",".join([_EMR_ICEBERG_JAR] + [_EMR_KINESIS_JAR] * reads_kinesis),
        "spark.driver.cores": str(plan.vcpu),
        "spark.driver.memory": heap,
        "spark.emr-serverless.driver.disk": disk,
        "spark.executor.cores": str(plan.vcpu),
        "spark.executor.memory": heap,
        "spark.emr-serverless.executor.disk": disk,
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.minExecutors": str(scaling.min_executors.value),
        # A start finds the backlog of its stop: begin with all executors, and give back what idles.
        "spark.dynamicAllocation.initialExecutors": str(scaling.initial_executors.value),
        "spark.dynamicAllocation.maxExecutors": str(plan.executors.value),
        "spark.dynamicAllocation.executorAllocationRatio": f"{scaling.allocation_ratio.value:g}",
        "spark.dynamicAllocation.executorIdleTimeout": f"{scaling.idle_timeout_seconds.value}s",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.timeout": f"{scaling.shuffle_timeout_seconds.value}s",
    }


def _reads_kinesis(environment: Environment, job: Job) -> bool:
    return any(isinstance(stream, KinesisStream) for stream in sources(environment, job).values())
