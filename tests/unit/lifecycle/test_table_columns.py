"""Columns of deployed tables, from metadata that PyIceberg wrote: in S3 and the Data Catalog of moto, and in the sandbox."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import boto3
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DecimalType,
    FixedType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from millrace.lifecycle.account.catalog_columns import ddl_columns_by_table, table_names_in_settings
from millrace.lifecycle.aws_error_messages import AwsError
from millrace.sandbox import operate_running_sandbox
from millrace.sandbox.schemas.ddl_and_pyspark_types import parse_ddl

_SEAT = StructType(NestedField(10, "user-agent", LongType()), NestedField(11, "a`b", DecimalType(12, 2)))
_COLUMNS = Schema(
    NestedField(1, "at", TimestamptzType()),
    NestedField(2, "local-time", TimestampType()),
    NestedField(3, "seats", ListType(20, _SEAT)),
    NestedField(4, "tags", MapType(30, StringType(), 31, TimestampType())),
    NestedField(5, "id", UUIDType()),
    NestedField(6, "hash", FixedType(16)),
    NestedField(7, "old", StringType()),
)
_DDL = (
    "`at` timestamp, `local-time` timestamp_ntz, `seats` array<struct<`user-agent`:bigint,`a``b`:decimal(12, 2)>>, "
    "`tags` map<string,timestamp_ntz>, `id` string, `hash` binary"
)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    """A table of every type whose name differs in Spark, and a column that was dropped."""
    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("shop")
    with catalog.create_table("shop.clicks", _COLUMNS).update_schema() as change:
        change.delete_column("old")
    yield catalog
    catalog.close()


@pytest.fixture
def client(moto: str) -> Iterator[Callable[[str], Any]]:
    make: Any = boto3.client
    keys = {"aws_access_key_id": "t", "aws_secret_access_key": "t", "region_name": "us-east-1"}
    with (
        closing(make("glue", endpoint_url=moto, **keys)) as glue,
        closing(make("s3", endpoint_url=moto, **keys)) as s3,
    ):
        glue.create_database(DatabaseInput={"Name": "shop"})
        s3.create_bucket(Bucket="lake")
        yield {"glue": glue, "s3": s3}.__getitem__


def _deploy_table(client: Callable[[str], Any], parameters: dict[str, str]) -> None:
    # The types are those that Iceberg's GlueCatalog writes (IcebergToGlueConverter.toTypeString).
    types = {"at": "timestamp", "local-time": "timestamp", "seats": "array<struct<user-agent:bigint>>"}
    columns = [{"Name": name, "Type": kind} for name, kind in types.items()]
    table = {"Name": "clicks", "Parameters": parameters, "StorageDescriptor": {"Columns": columns}}
    client("glue").create_table(DatabaseName="shop", TableInput=table)


@pytest.mark.parametrize("packed", [False, True])
def test_columns_are_those_of_the_metadata_file(
    packed: bool, client: Callable[[str], Any], catalog: SqlCatalog
) -> None:
    file = Path(catalog.load_table("shop.clicks").metadata_location.removeprefix("file://")).read_bytes()
    key = f"shop.db/clicks/metadata/2{'.gz' * packed}.metadata.json"
    client("s3").put_object(Bucket="lake", Key=key, Body=gzip.compress(file) if packed else file)
    _deploy_table(client, {"table_type": "ICEBERG", "metadata_location": f"s3://lake/{key}"})
    result = ddl_columns_by_table(client, ["shop.clicks", "shop.none", "nowhere.none"])
    assert result == {"shop.clicks": _DDL}
    types = {each.name: each.dataType.simpleString() for each in parse_ddl(result["shop.clicks"])}
    assert (types["at"], types["local-time"]) == ("timestamp", "timestamp_ntz")


def test_metadata_of_the_first_version_may_have_one_schema_only(client: Callable[[str], Any]) -> None:
    schema = {"type": "struct", "fields": [{"id": 1, "name": "at", "required": False, "type": "timestamp"}]}
    client("s3").put_object(Bucket="lake", Key="1.metadata.json", Body=json.dumps({"schema": schema}))
    _deploy_table(client, {"metadata_location": "s3://lake/1.metadata.json"})
    assert ddl_columns_by_table(client, ["shop.clicks"]) == {"shop.clicks": "`at` timestamp_ntz"}


@pytest.mark.parametrize(
    ("parameters", "why"),
    [
        ({"classification": "parquet"}, "it is not an Iceberg table"),
        ({"metadata_location": "s3://lake/none.metadata.json"}, "GetObject was refused: NoSuchKey"),
    ],
)
def test_a_table_without_metadata_is_named(
    parameters: dict[str, str], why: str, client: Callable[[str], Any]
) -> None:
    _deploy_table(client, parameters)
    with pytest.raises(AwsError, match=rf"cannot read table shop\.clicks: {why}"):
        ddl_columns_by_table(client, ["shop.clicks"])


def test_the_sandbox_has_the_same_columns(catalog: SqlCatalog) -> None:
    result = operate_running_sandbox.ddl_columns_of_local_tables(catalog, ["shop.clicks", "shop.none"])
    assert result == {"shop.clicks": _DDL}


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
