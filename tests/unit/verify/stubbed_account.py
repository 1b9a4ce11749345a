"""An account of stubbed clients: botocore holds each question and each answer against the service's own model."""

from __future__ import annotations

import io
import json
import urllib.request
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import boto3
from botocore.exceptions import ClientError
from botocore.stub import Stubber

from millrace.config import Environment, Names, load
from millrace.verify.account.check_input_and_answer import ClaimContext

ROOT = Path(__file__).parents[3]
ACCOUNT = "111122223333"
TODAY = date(2026, 11, 23)
NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)


class Refused(Exception):  # noqa: N818 - an answer, not an error of ours
    """Stands for an error code in the place of an answer."""


Answers = Mapping[str, Mapping[str, Any]]
"""By service and operation of botocore, the answer to each call of it; a list answers calls one after the other."""


@dataclass
class Stubs:
    """Answers each call by its operation, as often as it is asked."""

    answers: Answers
    asked: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)

    def client(self, service: str) -> Any:
        make: Any = boto3.client
        keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
        client = make(service, region_name="us-east-1", **keys)
        stubber = Stubber(client)

        def call(operation: str, params: dict[str, Any]) -> Any:
            self.asked.append((service, operation, params))
            answer = self.answers.get(service, {}).get(operation, Refused("AccessDeniedException"))
            if callable(answer):
                answer = answer(params)
            if isinstance(answer, Refused):
                told = {"Error": {"Code": str(answer), "Message": f"of {ACCOUNT}"}}
                shape = client.meta.service_model.operation_model(operation)
                raise client.exceptions.from_code(str(answer))(told, shape.name)
            # Both sides by the service's model, as Stubber does before it answers.
            stubber._validate_operation_response(operation, answer)
            return answer

        client._make_api_call = call
        return client


def question(
    answers: Answers,
    environment: str | Environment = "dev",
    *,
    policies: Mapping[str, Mapping[str, Any]] | None = None,
    services: tuple[str, ...] = (),
    pages: Mapping[str, bytes] | None = None,
) -> ClaimContext:
    """Ask an account that answers so."""
    given = load(environment, root=ROOT) if isinstance(environment, str) else environment
    stubs = Stubs(answers)

    def fetch(request: urllib.request.Request) -> AbstractContextManager[Any]:
        body = (pages or {}).get(request.full_url)
        if body is None:
            raise OSError(f"nobody answers {request.full_url}")
        return nullcontext(io.BytesIO(body))

    return ClaimContext(
        Names(given, ACCOUNT),
        stubs.client,
        services,
        policies or {},
        stubs.client("pricing"),
        TODAY,
        fetch,
    )


def stack(**outputs: str) -> dict[str, Any]:
    """``DescribeStacks`` of a stack with outputs."""
    result = [{"OutputKey": key, "OutputValue": value} for key, value in outputs.items()]
    return {
        "Stacks": [
            {"StackName": "s", "CreationTime": NOW, "StackStatus": "CREATE_COMPLETE", "Outputs": result}
        ]
    }


def resources(*found: tuple[str, str]) -> dict[str, Any]:
    """``ListStackResources`` of types and physical ids."""
    return {
        "StackResourceSummaries": [
            {
                "LogicalResourceId": "x",
                "ResourceType": kind,
                "PhysicalResourceId": name,
                "LastUpdatedTimestamp": NOW,
                "ResourceStatus": "CREATE_COMPLETE",
            }
            for kind, name in found
        ]
    }


def absent(_: Mapping[str, Any]) -> Any:
    """``DescribeStacks`` of a stack that is not there."""
    told = {"Error": {"Code": "ValidationError", "Message": "Stack with id s does not exist"}}
    raise ClientError(told, "DescribeStacks")  # type: ignore[arg-type]  # botocore's own shape


def table(summary: Mapping[str, str]) -> dict[str, Any]:
    """``glue.get_table`` and ``s3.get_object`` of a table whose newest snapshot says so."""
    metadata = {
        "current-snapshot-id": 2,
        "snapshots": [{"snapshot-id": 1, "summary": {}}, {"snapshot-id": 2, "summary": dict(summary)}],
    }
    return {
        "glue": {
            "GetTable": {"Table": {"Name": "t", "Parameters": {"metadata_location": "s3://lake/t/1.json"}}}
        },
        "s3": {"GetObject": lambda _: {"Body": io.BytesIO(json.dumps(metadata).encode())}},
    }
