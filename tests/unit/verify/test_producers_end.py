"""Producers of a verification end in time or are stopped."""

from __future__ import annotations

import random
import threading

import pytest
from botocore.exceptions import ClientError

from millrace.lifecycle.aws_error_messages import AwsError, ThrottledError
from millrace.sandbox.kill_and_restart_jobs import wait_for_condition
from millrace.sandbox.records.producer import BackgroundThread, KinesisProducer
from millrace.sandbox.records.traffic import TrafficFeed, TrafficShape, send_feed
from millrace.sandbox.schemas.traffic_values import RecordGenerator
from tests.unit.verify.conftest import Make


class Throttled:
    """Kinesis, which takes no record of a whole call however often boto3 tries."""

    def __init__(self) -> None:
        self.asked = threading.Event()

    def put_records(self, **_: object) -> None:
        self.asked.set()
        code = "ProvisionedThroughputExceededException"
        raise ClientError({"Error": {"Code": code, "Message": "Rate exceeded"}}, "PutRecords")


def test_sending_that_has_ended_is_waited_for_no_longer_though_it_was_throttled(make: Make) -> None:
    client, choose = Throttled(), random.Random(1)
    [payloads] = make("minimal").sources.values()
    generator = RecordGenerator(payloads.schema, choose)
    feed = TrafficFeed(generator.record, payloads, TrafficShape(per_second=100), choose)
    producer = KinesisProducer(client, "clicks", batch=1)
    sending = BackgroundThread(lambda stop: send_feed(feed, producer, stop=stop), "to-kinesis")
    assert client.asked.wait(10)
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
