"""Redaction of Spark's event logs, plans and web pages: the core's patterns joined with those of the job's settings."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from ..services import jvm_name_cache

OURS = {
    # Names of settings and options, and texts; Spark's default is secret, password, token and access key.
    "spark.redaction.regex": (
        "(?i:secret|pass(?:word|wd|phrase)|pwd|token|credential|jaas[.]config"
        "|(?:access|private|api|account|session|shared)[._-]?key)"
    ),
    # For options of a plan also URLs, as in Spark's default.
    "spark.sql.redaction.options.regex": "(?i:url)",
}


def redaction_settings(configured: Mapping[str, str]) -> dict[str, str]:
    """Return both patterns; a configured one is added to the core's and never replaces it.

    Examples
    --------
    >>> redaction_settings({"spark.sql.redaction.options.regex": "path"})["spark.sql.redaction.options.regex"]
    '(?i:url)|(?:path)'
    """
    return {
        name: f"{ours}|(?:{configured[name]})" if configured.get(name) else ours
        for name, ours in OURS.items()
    }


def redacting_session() -> SparkSession:
    """Return the job's session, which redacts secrets from its first event on.

    The patterns are set here and not at submission: they contain characters that a shell might interpret.
    """
    SparkContext._ensure_initialized()  # starts the JVM, which knows the submitted settings
    settings = redaction_settings(dict(SparkConf().getAll()))
    builder = SparkSession.builder.config(map=settings)  # type: ignore[arg-type]  # a dict of texts alone
    return jvm_name_cache.session_with_cached_jvm_names(builder.getOrCreate())
