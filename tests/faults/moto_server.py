"""AWS services simulated by moto in one server outside the drivers, with the DynamoDB table of a sink."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from moto.server import ThreadedMotoServer

from millrace.sandbox.programs.localstack import LocalStack
from tests.kinesalite import REGION


@contextmanager
def moto() -> Iterator[LocalStack]:
    """Start the server; it stands where a LocalStack would."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield LocalStack(f"http://{host}:{port}", REGION, None)
    finally:
        server.stop()


def make_table(dynamodb: Any, name: str) -> Any:
    """Make a table as the DynamoDB sink wants it, by boto3's client or its resource; what that returns."""
    keys = {"_id": "HASH", "_source": "RANGE"}
    return dynamodb.create_table(
        TableName=name,
        AttributeDefinitions=[{"AttributeName": k, "AttributeType": "S"} for k in keys],
        KeySchema=[{"AttributeName": k, "KeyType": kind} for k, kind in keys.items()],
        BillingMode="PAY_PER_REQUEST",
    )


def items(dynamodb: Any, name: str, column: str) -> Iterator[str]:
    """Read a column of a table, whatever its type, as text."""
    for page in dynamodb.get_paginator("scan").paginate(TableName=name):
        for item in page["Items"]:
            (value,) = item[column].values()
            yield str(value)
