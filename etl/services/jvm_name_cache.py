"""Names of the JVM that a session keeps, so that PySpark does not look them up at each use."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

NAMES = (
    # What every function, column and error of PySpark asks for.
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
    # What each batch of ours asks for.
    *("org.apache.hadoop.fs.Path", "org.apache.commons.io.IOUtils", "org.apache.iceberg.spark.Spark3Util"),
    *("org.apache.spark.sql.types.StructType", "org.apache.spark.sql.Observation"),
)
"""Classes as ``spark._jvm`` names them, part by part."""

SPARK_4_NAMES = (
    *("org.apache.spark.sql.functions", "org.apache.spark.sql.classic.SparkSession"),
    "org.apache.spark.sql.catalyst.trees.PySparkCurrentOrigin",
)
"""Classes that PySpark 4 asks for by their whole names."""


def cache_jvm_names(spark: SparkSession) -> SparkSession:
    """Look the names up once; later uses find them as attributes.

    py4j asks the JVM at each use what a name is, part by part, and the JVM looks through every jar for a class of the name
    ``org``, then ``org.apache``, or of ``functions`` in each imported package: some 0.7 ms for each
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
