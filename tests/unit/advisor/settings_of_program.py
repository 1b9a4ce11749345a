"""Settings of a program's streams, with a Data Catalog that does not ask AWS."""

from __future__ import annotations

from collections.abc import Mapping

from millrace.advisor.existing.stream_candidates_of_program import (
    NO_ANSWERS,
    ImportedStreamSettings,
    LookUpRefusedError,
    StreamAnswers,
)
from millrace.advisor.existing.stream_choice import read_stream_settings_of_program
from millrace.advisor.programs.library_functions import LaunchArguments

ARN = "arn:aws:kinesis:us-east-1:123456789012:stream"
LOGIN_ARN = "arn:aws:secretsmanager:us-east-1:123456789012:secret:AmazonMSK_x-AbCdEf"
NO_ARGUMENTS = LaunchArguments()


class Catalog:
    """Two tables and a connection; others are refused."""

    def table_parameters(self, database: str, name: str) -> Mapping[str, str]:
        tables = {
            "orders": {"typeOfData": "kinesis", "streamARN": f"{ARN}/orders", "location": "orders"},
            "events": {"typeOfData": "kafka", "topicName": "events", "connectionName": "msk"},
            "files": {"classification": "parquet", "location": "s3://b/files"},
        }
        if name not in tables:
            raise LookUpRefusedError(f"table {database}.{name} of the Data Catalog (AccessDenied)")
        return tables[name]

    def connection_properties(self, name: str) -> Mapping[str, str]:
        if name != "msk":
            raise LookUpRefusedError(f"Glue connection {name} (AccessDenied)")
        return {
            "KAFKA_BOOTSTRAP_SERVERS": "b-1:9096",
            "KAFKA_SASL_MECHANISM": "SCRAM-SHA-512",
            "KAFKA_SASL_SCRAM_SECRETS_ARN": LOGIN_ARN,
        }


def settings_of_program(
    text: str, launch: LaunchArguments = NO_ARGUMENTS, answers: StreamAnswers = NO_ANSWERS
) -> ImportedStreamSettings:
    return read_stream_settings_of_program(text, launch, answers, Catalog())
