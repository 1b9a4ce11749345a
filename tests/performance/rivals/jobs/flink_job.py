"""Kafka into Iceberg with PyFlink."""

import json
import sys
from pathlib import Path

from pyflink.common import Configuration  # type: ignore[import-not-found]
from pyflink.table import EnvironmentSettings, TableEnvironment  # type: ignore[import-not-found]

given = json.loads(sys.argv[1])
checkpoints = Path(given["home"]) / "checkpoints"
configuration = Configuration()
configuration.set_string("parallelism.default", "2")
configuration.set_string("execution.checkpointing.interval", f"{1000 * given['seconds']:.0f} ms")
configuration.set_string("execution.checkpointing.dir", checkpoints.as_uri())
configuration.set_string(
    "execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION"
)
complete = [path.parent for path in checkpoints.glob("*/chk-*/_metadata")]
if complete:
    last = max(complete, key=lambda path: path.stat().st_mtime)
    configuration.set_string("execution.state-recovery.path", last.as_uri())
settings = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration).build()
tables = TableEnvironment.create(settings)
tables.execute_sql(f"""
    CREATE CATALOG lake WITH (
        'type' = 'iceberg', 'catalog-impl' = 'org.apache.iceberg.jdbc.JdbcCatalog', 'uri' = '{given["jdbc"]}',
        'jdbc.schema-version' = 'V1', 'jdbc.init-catalog-tables' = 'false', 'warehouse' = '{given["warehouse"]}',
        'cache-enabled' = 'false')
""")
kinds = {"timestamp": "TIMESTAMP_LTZ(6)"}
columns = ", ".join(f"`{name}` {kinds.get(kind, kind)}" for name, kind in given["columns"].items())
tables.execute_sql(f"""
    CREATE TABLE records ({columns}) WITH (
        'connector' = 'kafka', 'topic' = '{given["topic"]}', 'properties.bootstrap.servers' = '{given["bootstrap"]}',
        'properties.group.id' = 'flink', 'scan.startup.mode' = 'earliest-offset', 'format' = 'json',
        'json.timestamp-format.standard' = 'ISO-8601', 'json.ignore-parse-errors' = 'true')
""")
tables.execute_sql(f"INSERT INTO lake.{given['table']} SELECT * FROM records WHERE id IS NOT NULL").wait()  # noqa: S608
