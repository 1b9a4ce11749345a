"""Questions that only AWS can answer, at a start: a refusal is told in one message."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..record.errors import StartError


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
        No permission, no credentials, no region, no answer.
    """
    try:
        yield
    except _refusals() as error:
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


def _refusals() -> tuple[type[Exception], ...]:
    """Errors of botocore; none where it is not there, so that nobody can have asked."""
    try:
        from botocore.exceptions import BotoCoreError, ClientError
    except ImportError:
        return ()
    return BotoCoreError, ClientError
