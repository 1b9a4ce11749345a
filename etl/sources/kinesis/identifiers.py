"""What tells a Kinesis stream from another of the same name."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Any

from ...record.errors import StartError, UnansweredError
from ...services.lookups import as_start_error
from ..identity_check import Ids
from . import stream

if TYPE_CHECKING:
    from .source import KinesisSource


def of_stream(source: KinesisSource, endpoint: str | None, *, client: Any = None) -> Ids:
    """Ask a stream when it was made: no two of one name were made in the same second.

    Parameters
    ----------
    source
        What is read.
    endpoint
        Another endpoint than the region's own.
    client
        A boto3 ``kinesis`` client; left out, one is made.

    Returns
    -------
    Mapping
        Nothing where the role may not ask (``kinesis:DescribeStreamSummary``), as one of another account may not.

    Raises
    ------
    UnansweredError
        It does not answer, or there is none.
    """
    try:
        with as_start_error(f"stream {source.stream}"):
            found = (client or stream.api_client(source, endpoint)).describe_stream_summary(
                StreamName=source.stream
            )
    except StartError as error:
        response = getattr(error.__cause__, "response", None) or {}
        if response.get("Error", {}).get("Code") == "AccessDeniedException":
            return {}
        raise UnansweredError(str(error)) from error
    made = found["StreamDescriptionSummary"]["StreamCreationTimestamp"].astimezone(UTC)
    return {f"stream {source.stream}": made.replace(microsecond=0).isoformat()}
