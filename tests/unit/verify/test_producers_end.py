"""Producers of a verification end in time or are stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

import pytest
from botocore.exceptions import ClientError

from millrace.lifecycle.aws_error_messages import AwsError, ThrottledError
from millrace.sandbox.kill_and_restart_jobs import wait_for_condition
from millrace.sandbox.payloads.records_from_nycflights import RecordToSend
from millrace.sandbox.records.ledger import Ledger
from millrace.sandbox.records.producer import BackgroundThread
from millrace.verify.environment_copy import VerificationSettings
from millrace.verify.scenario import StreamTraffic
from tests.unit.verify.conftest import Make


class Throttled:
    """Kinesis, which takes no record of a whole call however often boto3 tries."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.ended = threading.Event()

    def send(self, _: Iterable[RecordToSend], **__: Callable[[int], None]) -> None:
        self.ended.set()
        code = "ProvisionedThroughputExceededException"
        raise ClientError({"Error": {"Code": code, "Message": "Rate exceeded"}}, "PutRecords")


def test_sending_that_has_ended_is_waited_for_no_longer_though_it_was_throttled(make: Make) -> None:
    producer = Throttled()
    [(kind, payloads)] = make("minimal").sources.items()
    traffic = StreamTraffic(kind, payloads, producer, VerificationSettings())
    sending = BackgroundThread(traffic.send_until_stopped, "to-kinesis")
    assert producer.ended.wait(10)
    with pytest.raises(AwsError, match="AWS is throttling PutRecords"):
        sending.stop()
    looks: list[int] = []

    def look() -> bool:
        looks.append(1)
        sending.raise_error_of_work()
        return False

    with pytest.raises(AwsError, match="AWS is throttling PutRecords") as ended:
        wait_for_condition(look, 60, "records", poll_seconds=0.01)
    assert (len(looks), isinstance(ended.value, ThrottledError)) == (1, False)
