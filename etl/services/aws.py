"""Clients of AWS services: boto3's, whose errors are told apart here, and questions that only AWS can answer at a start.

``etl`` uses the standard library and PySpark only; boto3 is the exception where a service has no connector on
both engines. It is imported where it is used, so that a job without such a sink runs without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from ..record.errors import SinkError, StartError
from . import bundled_boto3
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


def client(
    service: str, region: str | None, endpoint: str | None, timeouts: tuple[float, float] = (10, 30)
) -> Any:
    """Make a client that tries once: waiting is ours, with limits of ours.

    Parameters
    ----------
    service
        Such as ``dynamodb``.
    region, endpoint
        Where it is; None for the region's own endpoint.
    timeouts
        To connect and to read, in seconds.

    Raises
    ------
    StartError
        There is no boto3.
    """
    boto3 = bundled_boto3.boto3(f"to reach {service}")
    from botocore.config import Config

    # A client of its own session: boto3's default one is not safe where several tasks make theirs at once.
    session: Any = boto3.session.Session(region_name=region)
    return session.client(
        service,
        endpoint_url=endpoint,
        config=Config(
            retries={"total_max_attempts": 1}, connect_timeout=timeouts[0], read_timeout=timeouts[1]
        ),
    )


def code_of(error: Any) -> str:
    """The error code of a botocore ``ClientError``."""
    return str(error.response.get("Error", {}).get("Code", ""))


class UnknownOutcomeError(Exception):
    """A request may have been carried out or not: its answer did not come, or was that the service failed."""


def start_backoff() -> Backoff:
    """Waits of a job's start, which nothing was written before."""
    return Backoff("at the start", patience=START_SECONDS)


class BusyError(Exception):
    """A request that may succeed if it comes again: the service is busy or away."""


def call_once(call: Callable[[], Answer], *, once: bool = False) -> Answer:
    """Call a service, and tell apart what may succeed later.

    Parameters
    ----------
    call
        One request.
    once
        Whether the request must not be carried out twice.

    Raises
    ------
    BusyError
        It may succeed later; with ``once``, it surely was not carried out.
    UnknownOutcomeError
        With ``once``: nobody knows whether it was carried out.
    botocore.exceptions.ClientError
        It refuses the request itself.
    """
    from botocore.exceptions import ClientError, HTTPClientError
    from botocore.exceptions import ConnectionError as Unreachable

    try:
        return call()
    except ClientError as error:
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        if code_of(error) not in BUSY and status < 500:
            raise
        raise (UnknownOutcomeError if once and status >= 500 else BusyError)(str(error)) from error
    except Unreachable as error:
        # Not even connected.
        raise BusyError(str(error)) from error
    except HTTPClientError as error:
        raise (UnknownOutcomeError if once else BusyError)(str(error)) from error


def call_until_answered(call: Callable[[], Answer], backoff: Backoff, *, once: bool = False) -> Answer:
    """Call a service until it answers, within the limits of a back-off.

    Parameters
    ----------
    call, once
        As for :func:`call_once`.
    backoff
        What waits.

    Raises
    ------
    SinkError
        It stays busy, or away, for longer than the patience.
    UnknownOutcomeError, botocore.exceptions.ClientError
        As :func:`call_once`.
    """
    while True:
        try:
            return call_once(call, once=once)
        except BusyError as error:
            backoff.wait(str(error))


def ask_at_start(what: str, client: Any, ask: Callable[[Any], Answer]) -> Answer:
    """Ask a service at the start, such as whether what is written to is there, then close the client; None for one that stays.

    Raises
    ------
    StartError
        It refuses, or cannot be asked.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        return call_until_answered(lambda: ask(client), start_backoff())
    except (BotoCoreError, ClientError, SinkError) as error:
        raise StartError(f"{what}: {error}") from error
    finally:
        if client is not None:
            client.close()


def refusal_error(what: str, error: Exception) -> SinkError:
    """The error of a service that will not work, whatever the rows: no such table, or no permission."""
    return SinkError(f"{what}: {error}")


@contextmanager
def as_start_error(what: str) -> Iterator[None]:
    """Turn what AWS, or the way there, answers instead into an error of the start.

    Parameters
    ----------
    what
        Is asked about: the beginning of the message.

    Raises
    ------
    StartError
        No permission, no credentials, no region, no answer; or there is no boto3.
    """
    bundled_boto3.boto3("to ask AWS")
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise StartError(f"{what}: {error}") from error


def sts_endpoint(region: str) -> str:
    """Return where a region's own STS answers.

    The global one, which older SDKs take by themselves, cannot be reached from a VPC that has only
    interface endpoints.

    Examples
    --------
    >>> sts_endpoint("eu-west-1")
    'https://sts.eu-west-1.amazonaws.com'
    """
    return f"https://sts.{region}.{domain(region)}"


def domain(region: str) -> str:
    """Return the domain of a region's endpoints.

    Examples
    --------
    >>> domain("cn-north-1")
    'amazonaws.com.cn'
    """
    return "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
