"""Columns of the deployed tables, from their Iceberg metadata."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from millrace.config.sinks import KINDS
from millrace.lifecycle.account.deployed_environment import ignoring_not_found_errors, read_s3_object
from millrace.lifecycle.aws_error_messages import AwsError, translating_aws_errors

_SPARK_TYPES = {
    "long": "bigint",
    "timestamp": "timestamp_ntz",
    "timestamptz": "timestamp",
    "uuid": "string",
    "fixed": "binary",
}
"""Spark's names of Iceberg's types whose names differ (Iceberg documentation, "Spark": "Iceberg type to Spark type")."""


def ddl_columns_by_table(client: Callable[[str], Any], tables: Iterable[str]) -> dict[str, str]:
    """Return the columns of those tables that exist.

    They are read from the metadata file that the Glue Data Catalog names. The catalog's own columns are for people only:
    Iceberg writes ``timestamp`` for a time with a zone and for one without, and does not quote names in a struct.

    Parameters
    ----------
    client
        Makes a boto3 client of a service.
    tables
        ``database.table``, each.

    Returns
    -------
    dict
        By table, the text between the brackets of Spark's ``CREATE TABLE``.

    Raises
    ------
    AwsError
        The catalog or S3 refuses the request, or a table is not one of Iceberg.
    """
    result = {}
    for name in dict.fromkeys(tables):
        if (metadata := read_iceberg_metadata(client, name)) is not None:
            schemas = {each["schema-id"]: each for each in metadata.get("schemas", ())}
            # Version 1 of the format may have only this one.
            schema = schemas.get(metadata.get("current-schema-id")) or metadata["schema"]
            result[name] = ddl_fields(schema["fields"])
    return result


def read_iceberg_metadata(client: Callable[[str], Any], name: str) -> dict[str, Any] | None:
    """Read a table's metadata file (Iceberg specification, "Table Metadata"); None if there is no such table.

    Raises
    ------
    AwsError
        As in :func:`ddl_columns_by_table`.
    """
    database, table = name.split(".")
    failure = f"cannot read table {name}"
    with translating_aws_errors(failure), ignoring_not_found_errors("EntityNotFoundException"):
        description = client("glue").get_table(DatabaseName=database, Name=table)["Table"]
        if (location := description.get("Parameters", {}).get("metadata_location")) is None:
            raise AwsError(f"{failure}: it is not an Iceberg table, and a job uses no others")
        file = read_s3_object(client("s3"), location)
        return dict(json.loads(gzip.decompress(file) if location.endswith(".gz.metadata.json") else file))
    return None


def ddl_fields(fields: Iterable[Mapping[str, Any]], between: str = ", ", before_type: str = " ") -> str:
    """Return fields of a schema in Iceberg's JSON (specification, appendix C) as the text in ``CREATE TABLE``."""
    quoted = [(each["name"].replace("`", "``"), _spark_type(each["type"])) for each in fields]
    return between.join(f"`{name}`{before_type}{kind}" for name, kind in quoted)


def _spark_type(kind: Any) -> str:
    if isinstance(kind, str):
        return _SPARK_TYPES.get(kind.partition("[")[0], kind)
    if kind["type"] == "list":
        return f"array<{_spark_type(kind['element'])}>"
    if kind["type"] == "map":
        return f"map<{_spark_type(kind['key'])},{_spark_type(kind['value'])}>"
    return f"struct<{ddl_fields(kind['fields'], ',', ':')}>"


def table_names_in_settings(settings: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return every table that the settings of jobs name: to read, to write, for dead letters and enrichment.

    Parameters
    ----------
    settings
        Of launch documents (``docs/launch-document.md``), one for each job.
    """
    names: set[str] = set()

    def collect_names(node: Any) -> None:
        if isinstance(node, list):
            for each in node:
                collect_names(each)
        elif isinstance(node, dict):
            sink = KINDS.get(str(node.get("kind")))
            outside = sink is not None and not sink.in_catalog
            for key, value in node.items():
                if key in ("table", "source_table", "dead_letters") and isinstance(value, str):
                    names.update(() if outside else (value,))
                else:
                    collect_names(value)

    collect_names([each["queries"] for each in settings])
    return sorted(name for name in names if name.count(".") == 1)
