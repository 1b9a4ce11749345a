"""Spark's event log has no password of a query under a job's redaction settings."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from millrace.advisor.logs import event_logs

ROOT = Path(__file__).parents[3]
PROGRAM = """
import os, sys
from millrace.etl.job.spark_redaction_settings import redacting_session
folder, jars, *settings = sys.argv[1:]
asked = [
    "spark.master=local[1]", "spark.eventLog.enabled=true", "spark.eventLog.dir=" + folder, "spark.ui.enabled=false",
    "spark.driver.host=127.0.0.1", "spark.driver.bindAddress=127.0.0.1", "spark.jars=" + jars,
    "spark.hadoop.javax.jdo.option.ConnectionPassword=hunter2", "spark.acme.private-key=hunter2",
    "spark.acme.sasl.jaas.config=Module required pin=hunter2;", *settings,
]
os.environ["PYSPARK_SUBMIT_ARGS"] = " ".join(f"--conf '{pair}'" for pair in asked) + " pyspark-shell"
spark = redacting_session()
options = dict(url="jdbc:postgresql://127.0.0.1:1/x?pin=hunter2", driver="org.postgresql.Driver", user="me",
               password="hunter2", dbtable="t")
try:
    spark.range(1).write.format("jdbc").mode("append").options(**options).save()
except Exception as error:
    assert "Connection" in str(error), error
spark.stop()
"""


@pytest.mark.slow
@pytest.mark.parametrize("asked", [{}, {"spark.redaction.regex": "acme-only"}], ids=["ours", "joined"])
def test_no_password_is_in_the_event_log_whatever_the_file_asks_to_leave_out(
    asked: dict[str, str], tmp_path: Path
) -> None:
    settings = [f"{name}={value}" for name, value in asked.items()]
    jars = ",".join(map(str, (ROOT / ".millrace/jars/postgresql").glob("*.jar")))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), jars, *settings, "spark.acme-only=ours-too"],
        cwd=tmp_path,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    [log] = event_logs.find_event_logs(str(tmp_path))
    text = b"\n".join(event_logs.LogLines(log)).decode()
    assert "SparkListenerSQLExecutionStart" in text
    assert "127.0.0.1" in text
    assert "hunter2" not in text
    assert ("ours-too" in text) == (not asked)
