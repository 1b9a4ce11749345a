"""Keep this release's checkpoints and tables: ``python -m tests.golden.make``, once, when a version is released.

Writes ``tests/golden/VERSION.tar.xz``, some tens of kilobytes, which every later version goes on from in
``tests/spark/test_golden_release.py``. One that is there is not replaced: it is what that release has written.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import etl
from etl import session
from tests.golden import release
from tests.spark.batches import Events

JARS = Path(__file__).parents[2] / ".millrace" / "jars" / "sandbox"


def parser() -> argparse.ArgumentParser:
    """The command line."""
    return argparse.ArgumentParser(description=__doc__)


def main() -> int:
    """Land, derive, pack."""
    parser().parse_args()
    archive = release.ARCHIVES / f"{etl.__version__}.tar.xz"
    if archive.exists():
        sys.stderr.write(f"{archive.name} is there: it is what the release of that version has written\n")
        return 2
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", ",".join(map(str, JARS.glob("iceberg-spark-runtime-*.jar"))))
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
    )
    for key, value in session.RUNTIME.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    try:
        with release.place():
            release.open_catalog(spark)
            release.land(spark, 0, release.FIRST, 0)
            release.derive(spark, Events())
            if release.wrong(spark):
                raise AssertionError(f"not what was wanted: {release.wrong(spark)}")
            release.pack(archive)
    finally:
        spark.stop()
    sys.stdout.write(f"{archive.name}: {archive.stat().st_size:,} bytes\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
