"""Clients of AWS services: boto3 clients, classification of their errors, and calls at a start that only AWS can answer.

``etl`` uses the standard library and PySpark only; boto3 is the exception if a service has no connector on
both engines. It is imported at its use, so a job without such a service runs without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from ..record.errors import SinkError, StartError
from . import bundled_boto3_if_missing
from .backoff import START_SECONDS, Backoff

BUSY = frozenset(
    {
        "InternalFailure",
        "InternalServerError",
        "KMSThrottlingException",
        "LimitExceededException",
        "ProvisionedThroughputExceededException",
        "ReplicatedWriteConflictException",
        "RequestLimitExceeded",
        "ServiceUnavailable",
        "ServiceUnavailableException",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
        "TransactionConflictException",
    }
)
"""Error codes after which the same request may succeed (error pages of DynamoDB's and Kinesis' API references)."""

Answer = TypeVar("Answer")


def make_client(
    service: str, region: str | None, endpoint: str | None, timeouts: tuple[float, float] = (10, 30)
) -> Any:
    """Make a client that tries once: waits and retries are in this code, with its own limits.

    Parameters
    ----------
    service
        Such as ``dynamodb``.
    region, endpoint
        Region and endpoint; None for the region's own endpoint.
    timeouts
        Connect and read timeouts in seconds.

    Raises
    ------
    StartError
        boto3 is missing.
    """
    boto3 = bundled_boto3_if_missing.import_boto3(f"to reach {service}")
    from botocore.config import Config

    # A client of its own session: boto3's default session is not safe if several tasks create clients at once.
    session: Any = boto3.session.Session(region_name=region)
    return session.client(
        service,
        endpoint_url=endpoint,
        config=Config(
            retries={"total_max_attempts": 1}, connect_timeout=timeouts[0], read_timeout=timeouts[1]
        ),
    )


def error_code(error: Any) -> str:
    """Return the error code of a botocore ``ClientError``."""
    return str(error.response.get("Error", {}).get("Code", ""))


class UnknownOutcomeError(Exception):
    """Unknown outcome of a request: there was no answer, or the service failed."""


class RetryableError(Exception):
    """A request that may succeed if it is repeated: the service is busy or unreachable."""


def call_and_classify_errors(call: Callable[[], Answer], *, once: bool = False) -> Answer:
    """Call a service, and distinguish errors that may be temporary.

    Parameters
    ----------
    call
        Makes one request.
    once
        True if the request must not be carried out twice.

    Raises
    ------
    RetryableError
        It may succeed later; with ``once`` it was certainly not carried out.
    UnknownOutcomeError
        With ``once``: it is unknown whether it was carried out.
    botocore.exceptions.ClientError
        The service refuses the request itself.
    """
    from botocore.exceptions import ClientError, HTTPClientError
    from botocore.exceptions import ConnectionError as Unreachable

    try:
        return call()
    except ClientError as error:
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        if error_code(error) not in BUSY and status < 500:
            raise
        raise (UnknownOutcomeError if once and status >= 500 else RetryableError)(str(error)) from error
    except Unreachable as error:
        # The connection failed.
        raise RetryableError(str(error)) from error
    except HTTPClientError as error:
        raise (UnknownOutcomeError if once else RetryableError)(str(error)) from error


def call_until_answered(call: Callable[[], Answer], backoff: Backoff, *, once: bool = False) -> Answer:
    """Call a service until it answers, within the limits of a back-off.

    Parameters
    ----------
    call, once
        As in :func:`call_and_classify_errors`.
    backoff
        Waits between the calls.

    Raises
    ------
    SinkError
        The service stays busy or unreachable for longer than the patience.
    UnknownOutcomeError, botocore.exceptions.ClientError
        As in :func:`call_and_classify_errors`.
    """
    while True:
        try:
            return call_and_classify_errors(call, once=once)
        except RetryableError as error:
            backoff.wait(str(error))


def call_at_start(what: str, client: Any, ask: Callable[[Any], Answer]) -> Answer:
    """Call a service at the start, such as to check a sink's target, then close the client; None if it stays open.

    Raises
    ------
    StartError
        The service refuses, or cannot be reached.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        return call_until_answered(lambda: ask(client), Backoff("at the start", patience=START_SECONDS))
    except (BotoCoreError, ClientError, SinkError) as error:
        raise StartError(f"{what}: {error}") from error
    finally:
        if client is not None:
            client.close()


@contextmanager
def errors_as_start_error(what: str) -> Iterator[None]:
    """Convert errors of AWS or of the connection to an error of the start.

    Parameters
    ----------
    what
        Subject of the call: the beginning of the message.

    Raises
    ------
    StartError
        No permission, no credentials, no region, no answer, or no boto3.
    """
    bundled_boto3_if_missing.import_boto3("to ask AWS")
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise StartError(f"{what}: {error}") from error


def sts_endpoint(region: str) -> str:
    """Return the STS endpoint of a region.

    The global endpoint, the default of older SDKs, cannot be reached from a VPC that has only
    interface endpoints.

    Examples
    --------
    >>> sts_endpoint("eu-west-1")
    'https://sts.eu-west-1.amazonaws.com'
    """
    return f"https://sts.{region}.{endpoint_domain(region)}"


def endpoint_domain(region: str) -> str:
    """Return the domain of a region's endpoints.

    Examples
    --------
    >>> endpoint_domain("cn-north-1")
    'amazonaws.com.cn'
    """
    return "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
