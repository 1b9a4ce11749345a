"""What Spark leaves out of event logs, plans and its pages: what is ours, joined with what the job's settings ask for."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from ..services import jvm_name_cache

OURS = {
    # Names of settings and options, and texts; Spark's own default is secret, password, token and access key.
    "spark.redaction.regex": (
        "(?i:secret|pass(?:word|wd|phrase)|pwd|token|credential|jaas[.]config"
        "|(?:access|private|api|account|session|shared)[._-]?key)"
    ),
    # Of options of a plan also URLs, as by Spark's own default.
    "spark.sql.redaction.options.regex": "(?i:url)",
}


def redaction_settings(asked: Mapping[str, str]) -> dict[str, str]:
    """Return both patterns; one that is asked for is added to ours and never takes its place.

    Examples
    --------
    >>> redaction_settings({"spark.sql.redaction.options.regex": "path"})["spark.sql.redaction.options.regex"]
    '(?i:url)|(?:path)'
    """
    return {name: f"{ours}|(?:{asked[name]})" if asked.get(name) else ours for name, ours in OURS.items()}


def redacting_session() -> SparkSession:
    """Return the job's session, which leaves out secrets from its first event on.

    Set here and not where the job is submitted: a pattern is full of marks that a shell on the way might read.
    """
    SparkContext._ensure_initialized()  # the JVM, which knows what was submitted
    asked = dict(SparkConf().getAll())
    builder = SparkSession.builder
    for name, pattern in redaction_settings(asked).items():
        builder = builder.config(name, pattern)
    return jvm_name_cache.cache_jvm_names(builder.getOrCreate())
