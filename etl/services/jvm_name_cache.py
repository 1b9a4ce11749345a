"""Cache of JVM names in a session, so that PySpark does not look them up at each use."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

NAMES = (
    # Used by every function, column and error of PySpark.
    *(
        "functions",
        "PythonUtils",
        "PythonSQLUtils",
        "PythonRDD",
        "SerDeUtil",
        "SimplePythonFunction",
        "SparkSession",
    ),
    *("py4j.reflection.TypeUtil", "java.util.HashMap", "org.apache.spark.util.Utils"),
    # Used by each batch.
    *("org.apache.hadoop.fs.Path", "org.apache.commons.io.IOUtils", "org.apache.iceberg.spark.Spark3Util"),
    *("org.apache.spark.sql.types.StructType", "org.apache.spark.sql.Observation"),
)
"""Classes as ``spark._jvm`` names them, part by part."""

SPARK_4_NAMES = (
    *("org.apache.spark.sql.functions", "org.apache.spark.sql.classic.SparkSession"),
    "org.apache.spark.sql.catalyst.trees.PySparkCurrentOrigin",
)
"""Classes that PySpark 4 looks up by their full names."""


def session_with_cached_jvm_names(spark: SparkSession) -> SparkSession:
    """Return a session in which the names were looked up once; later uses find them as attributes.

    At each use py4j asks the JVM for the meaning of a name, part by part. The JVM searches every jar for a class
    ``org``, then ``org.apache``, or for ``functions`` in each imported package: about 0.7 ms for each
    ``F.col`` with 250 jars, on a loaded machine.
    """
    jvm: Any = spark._jvm
    for name in NAMES:
        at = jvm
        for part in name.split("."):
            at.__dict__[part] = getattr(at, part)
            at = at.__dict__[part]
    if int(spark.version.partition(".")[0]) >= 4:
        jvm.__dict__.update({name: getattr(jvm, name) for name in SPARK_4_NAMES})
    return spark
