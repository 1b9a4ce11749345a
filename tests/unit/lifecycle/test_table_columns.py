"""Columns of deployed tables, from moto's Glue Data Catalog and from the sandbox's catalog."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import boto3
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DecimalType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from millrace.lifecycle.account.catalog_columns import ddl_columns_by_table, table_names_in_settings
from millrace.sandbox import operate_running_sandbox


def test_columns_are_those_of_the_catalog_without_what_iceberg_keeps_for_old_rows(moto: str) -> None:
    make: Any = boto3.client
    glue = make(
        "glue", endpoint_url=moto, region_name="us-east-1", aws_access_key_id="t", aws_secret_access_key="t"
    )
    glue.create_database(DatabaseInput={"Name": "shop"})
    held = [
        {"Name": "_id", "Type": "string", "Parameters": {"iceberg.field.current": "true"}},
        {"Name": "old", "Type": "int", "Parameters": {"iceberg.field.current": "false"}},
        {"Name": "seat", "Type": "struct<row:int,letter:string>"},
    ]
    glue.create_table(
        DatabaseName="shop", TableInput={"Name": "clicks", "StorageDescriptor": {"Columns": held}}
    )
    assert ddl_columns_by_table(glue, ["shop.clicks", "shop.none", "nowhere.none"]) == {
        "shop.clicks": "`_id` string, `seat` struct<row:int,letter:string>"
    }
    glue.close()


def test_the_sandbox_has_the_same_names_of_types(tmp_path: Path) -> None:
    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("shop")
    seat = StructType(NestedField(10, "row", LongType()), NestedField(11, "price", DecimalType(12, 2)))
    catalog.create_table(
        "shop.clicks",
        Schema(
            NestedField(1, "at", TimestamptzType()),
            NestedField(2, "seats", ListType(20, seat)),
            NestedField(3, "tags", MapType(30, StringType(), 31, StringType())),
        ),
    )
    result = operate_running_sandbox.ddl_columns_of_local_tables(catalog, ["shop.clicks", "shop.none"])
    catalog.close()
    assert result == {
        "shop.clicks": "`at` timestamp, `seats` array<struct<row:bigint,price:decimal(12,2)>>, "
        "`tags` map<string,string>"
    }


def test_all_tables_of_the_lake_that_a_job_names() -> None:
    settings = {
        "queries": [
            {"kind": "land", "table": "shop.landed", "source": {"topic": "t"}},
            {
                "kind": "derive",
                "source_table": "shop.landed",
                "enrich": [{"table": "theirs.pages"}],
                "sink": {"kind": "jdbc", "table": "public.clicks"},
                "dead_letters": "shop.letters",
                "state": {"join": {"source_table": "shop.other"}},
            },
            {"kind": "direct", "routes": [{"sink": {"kind": "iceberg", "table": "shop.out"}}]},
        ]
    }
    assert table_names_in_settings([settings, settings]) == [
        "shop.landed", "shop.letters", "shop.other", "shop.out", "theirs.pages",
    ]  # fmt: skip
