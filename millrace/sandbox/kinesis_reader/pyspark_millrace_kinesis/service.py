"""Calls of the Kinesis API with a fast parser: botocore's own takes most of the time of a read.

orjson parses the answers, which are JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any

import orjson

from millrace.etl.services import aws, bundled_boto3
from millrace.etl.services.backoff import Backoff
from millrace.etl.sources.kinesis.closed_shards import Shard

_TARGET = "Kinesis_20131202"
_CONTENT = "application/x-amz-json-1.1"

EXPIRED, GONE = "ExpiredIteratorException", "ResourceNotFoundException"
"""Error codes of GetRecords and GetShardIterator (Kinesis API reference)."""


@dataclass
class KinesisService:
    """API of one stream, whose calls wait while it is throttled or unreachable.

    Parameters
    ----------
    keys
        Access key and secret; None uses boto3's default credentials.
    """

    stream: str
    region: str
    endpoint: str
    keys: tuple[str, str] | None = None
    _http: Any = field(default=None, repr=False)
    _keys: Any = field(default=None, repr=False)

    def shards(self) -> list[Shard]:
        """Return all shards, open and closed."""
        return self._listed()[0]

    def now(self) -> datetime:
        """Return the time of the service's clock, in whole seconds."""
        return self._listed()[1]

    def iterator(self, shard: str, kind: str, place: str) -> str:
        """Return an iterator at a position of a shard.

        Parameters
        ----------
        kind, place
            As in an entry of the offset log: ``TRIM_HORIZON``, ``AT_TIMESTAMP`` with milliseconds since 1970, or
            ``AT_SEQUENCE_NUMBER`` and ``AFTER_SEQUENCE_NUMBER`` with a number.
        """
        asked: dict[str, Any] = {"StreamName": self.stream, "ShardId": shard, "ShardIteratorType": kind}
        if kind == "AT_TIMESTAMP":
            asked["Timestamp"] = int(place) / 1000
        elif place:
            asked["StartingSequenceNumber"] = place
        return str(self._call("GetShardIterator", asked)["ShardIterator"])

    def records(self, iterator: str, limit: int) -> Any:
        """Read from an iterator, as ``GetRecords`` answers; data are text in Base64, times seconds since 1970."""
        return self._call("GetRecords", {"ShardIterator": iterator, "Limit": limit})

    def close(self) -> None:
        """Close its connections."""
        if self._http is not None:
            self._http.close()
            self._http = None

    def _listed(self) -> tuple[list[Shard], datetime]:
        found: list[Shard] = []
        asked: dict[str, Any] = {"StreamName": self.stream}
        while True:
            answer, headers = self._answer("ListShards", asked)
            for shard in answer["Shards"]:
                parents = (shard.get("ParentShardId"), shard.get("AdjacentParentShardId"))
                closed = shard["SequenceNumberRange"].get("EndingSequenceNumber") is not None
                found.append(Shard(shard["ShardId"], tuple(filter(None, parents)), closed))
            if answer.get("NextToken") is None:
                told = headers.get("date")
                return found, datetime.now(UTC) if told is None else parsedate_to_datetime(told)
            asked = {"NextToken": answer["NextToken"]}

    def _call(self, action: str, asked: Mapping[str, Any]) -> Any:
        return self._answer(action, asked)[0]

    def _answer(self, action: str, asked: Mapping[str, Any]) -> tuple[Any, Mapping[str, str]]:
        return aws.call_until_answered(
            partial(self._once, action, asked), Backoff(f"Kinesis stream {self.stream}, {action}")
        )

    def _once(self, action: str, asked: Mapping[str, Any]) -> tuple[Any, Mapping[str, str]]:
        self._open()
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest
        from botocore.exceptions import ClientError

        headers = {"X-Amz-Target": f"{_TARGET}.{action}", "Content-Type": _CONTENT}
        request = AWSRequest("POST", f"{self.endpoint.rstrip('/')}/", headers, json.dumps(asked))
        SigV4Auth(self._keys.get_frozen_credentials(), "kinesis", self.region).add_auth(request)
        response = self._http.send(request.prepare())
        if response.status_code == 200:
            return orjson.loads(response.content), response.headers
        try:
            told = json.loads(response.content)
        except ValueError:
            told = {}
        code = str(told.get("__type", "")).rpartition("#")[2]
        message = (
            told.get("message") or told.get("Message") or response.content[:200].decode(errors="replace")
        )
        error = {"Code": code, "Message": message}
        raise ClientError(
            {"Error": error, "ResponseMetadata": {"HTTPStatusCode": response.status_code}},  # type: ignore[typeddict-item]
            action,
        )

    def _open(self) -> None:
        if self._http is not None:
            return
        boto3 = bundled_boto3.boto3(f"to read stream {self.stream}")
        from botocore.credentials import Credentials
        from botocore.httpsession import URLLib3Session

        self._keys = Credentials(*self.keys) if self.keys else boto3.session.Session().get_credentials()
        self._http = URLLib3Session(timeout=30)
