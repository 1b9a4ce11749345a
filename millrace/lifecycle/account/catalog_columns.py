"""Columns of the deployed tables, from the Glue Data Catalog."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from millrace.config.sinks import KINDS
from millrace.lifecycle.account.deployed_environment import ignoring_not_found_errors
from millrace.lifecycle.aws_error_messages import translating_aws_errors


def ddl_columns_by_table(glue: Any, tables: Iterable[str]) -> dict[str, str]:
    """Return the columns of those tables that exist.

    Parameters
    ----------
    tables
        ``database.table``, each.

    Returns
    -------
    dict
        By table, the text between the brackets of Spark's ``CREATE TABLE``: the catalog has Hive's types, whose names are
        the same in Spark. Columns that Iceberg keeps for old rows only (``iceberg.field.current`` is false) are
        left out.

    Raises
    ------
    AwsError
        The catalog refuses the request.
    """
    result = {}
    for name in dict.fromkeys(tables):
        database, table = name.split(".")
        with (
            translating_aws_errors(f"cannot read table {name}"),
            ignoring_not_found_errors("EntityNotFoundException"),
        ):
            columns_of_table = glue.get_table(DatabaseName=database, Name=table)["Table"][
                "StorageDescriptor"
            ]["Columns"]
            result[name] = ", ".join(
                f"`{c['Name']}` {c['Type']}"
                for c in columns_of_table
                if str((c.get("Parameters") or {}).get("iceberg.field.current", "true")).lower() == "true"
            )
    return result


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
