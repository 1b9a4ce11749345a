"""DynamoDB: an existing table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from millrace.config.aws.iam_statements import Grant, allow
from millrace.config.base import KeyArn
from millrace.config.sinks.base import SinkConfig, SinkContext
from millrace.etl.launch import sinks as launch


class DynamoDbSink(SinkConfig):
    """A DynamoDB table of this account, keyed by identity: ``_id``, and ``_source`` if each record is a row."""

    in_python = True
    is_public = True
    gateways = ("dynamodb",)
    paid_by_write = "DynamoDB write requests"
    not_in_sandbox = "LocalStack fetches its DynamoDB from the internet at the first call"

    kind: Literal["dynamodb"]
    table: str = Field(
        pattern=r"^[A-Za-z0-9_.-]{3,255}$",
        description="Name of the table, which must exist.",
        examples=["clicks"],
    )
    table_key: KeyArn | None = Field(
        default=None,
        description="Customer managed key of the table; left out, AWS's own key.",
        examples=["arn:aws:kms:us-east-1:111122223333:key/1234abcd"],
    )

    def manual_erasure_steps(self, where: str, context: SinkContext) -> str:
        """Return PartiQL and a delete by key, because deletes need the complete key."""
        return (
            f"""aws dynamodb execute-statement --statement 'SELECT "_id", "_source" FROM "{self.table}" WHERE {where}', and """  # noqa: S608 - for a person to read
            f"aws dynamodb delete-item --table-name {self.table} --key … for each; backups and the table's stream keep them"
        )

    def launch_settings(self, context: SinkContext) -> launch.DynamoDbSinkSettings:
        """Return the table and its region."""
        return launch.DynamoDbSinkSettings(self.table, context.names.environment.region)

    def grants(self, context: SinkContext) -> Iterator[Grant]:
        """Allow writing items, deleting them if rows delete, and use of the table's key."""
        table = [context.names.arn("dynamodb", f"table/{self.table}")]
        yield allow(
            "WriteItems", ["dynamodb:BatchWriteItem", "dynamodb:DescribeTable", "dynamodb:PutItem"], table
        )
        if context.deletes:
            yield allow("DeleteItems", ["dynamodb:DeleteItem"], table)
        if self.table_key is not None:
            yield allow("UseItemKeys", ["kms:Decrypt", "kms:GenerateDataKey"], [self.table_key])
