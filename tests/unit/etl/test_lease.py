"""The lease has one holder at a time, with S3's conditional writes (moto's server)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders
from moto.s3.responses import S3Response
from moto.server import ThreadedMotoServer

from millrace.etl.job import lease
from millrace.etl.record.errors import StartError
from millrace.sizing.prices_and_limits import service_limits

pytestmark = pytest.mark.faults

ROOT = Path(__file__).parents[3]
HOLD = """
import os, sys, time
from millrace.etl.job import lease
if len(sys.argv) > 3:
    lease.RENEW_SECONDS = float(sys.argv[3])
held = lease.lease_of_checkpoints(sys.argv[1], sys.argv[2], (os.getpid(),), lambda holder: print("waiting", flush=True))
try:
    held.acquire()
except lease.StartError as error:
    sys.exit(f"refused: {error}")
print("held", flush=True)
while held.loss_reason() is None:
    time.sleep(0.02)
print("lost", held.loss_reason(), flush=True)
"""


@pytest.fixture(scope="module")
def s3() -> Iterator[Any]:
    one_at_a_time, put_object = threading.Lock(), S3Response.put_object

    def put_alone(response: S3Response) -> Any:
        with one_at_a_time:
            return put_object(response)

    with pytest.MonkeyPatch.context() as patch:
        # S3 checks a condition and writes in one step; moto's threads may all check before one of them writes.
        patch.setattr(S3Response, "put_object", put_alone)
        server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
        server.start()
        host, port = server.get_host_and_port()
        for key, value in {
            "AWS_ENDPOINT_URL_S3": f"http://{host}:{port}",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
        }.items():
            patch.setenv(key, value)
        client: Any = boto3.client("s3", region_name="us-east-1")
        client.create_bucket(Bucket="checkpoints")
        yield client
        server.stop()


@pytest.fixture
def place(s3: Any, request: pytest.FixtureRequest) -> str:
    return f"s3://checkpoints/{request.node.name}"


def own(place: str, run: str = "run", told: list[Any] | None = None) -> lease.Lease:
    result = lease.lease_of_checkpoints(place, run, (os.getpid(),), (told if told is not None else []).append)
    assert result is not None
    return result


def holding(place: str, run: str, *renew_seconds: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, place, run, *renew_seconds],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "LIVE_SECONDS", 1.5)
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.3)
    monkeypatch.setattr(lease, "MARGIN_SECONDS", 0.3)
    monkeypatch.setattr(lease, "LOOK_SECONDS", 0.1)


def record(s3: Any, place: str) -> dict[str, Any]:
    body = s3.get_object(Bucket="checkpoints", Key=f"{place.rpartition('/')[2]}/_millrace/lease.json")["Body"]
    return dict(json.loads(body.read()))


def test_a_second_run_is_refused_again_and_again_while_the_first_lives(
    s3: Any, place: str, quick: None
) -> None:
    first = own(place, "first")
    first.acquire()
    try:
        for _ in range(5):
            with pytest.raises(StartError, match=r"is held by run first .*millrace stop JOB --env ENV"):
                own(place, "second").acquire()
        assert first.loss_reason() is None
    finally:
        first.release()


def test_of_many_that_begin_at_once_one_gets_it(place: str) -> None:
    """Each in a thread: S3 decides."""
    got: list[Any] = []

    def attempt(number: int) -> None:
        one = own(place, f"run-{number}")
        try:
            one.acquire()
        except StartError:
            return
        got.append(one)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lease, "RENEW_SECONDS", 0.2)
        patch.setattr(lease, "LOOK_SECONDS", 0.1)
        threads = [threading.Thread(target=attempt, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(got) == 1
    got[0].release()


def test_a_lease_that_was_given_back_is_taken_at_once(s3: Any, place: str) -> None:
    told: list[Any] = []
    for number in (1, 2, 3):
        one = own(place, "run", told)
        one.acquire()
        assert (record(s3, place)["generation"], record(s3, place)["released"]) == (number, False)
        one.release()
        assert record(s3, place)["released"] is True
        assert one.loss_reason() == "it was given back"
    assert told == []


def test_a_holder_that_was_killed_here_is_known_to_be_dead(s3: Any, place: str) -> None:
    told: list[Any] = []
    first = holding(place, "first")
    first.send_signal(signal.SIGKILL)
    # Not yet waited for: a zombie writes nothing.
    one = own(place, "second", told)
    one.acquire()
    assert told == []
    assert record(s3, place)["generation"] == 2
    one.release()
    first.communicate()


@pytest.mark.slow
def test_a_holder_that_was_killed_elsewhere_is_waited_for(
    s3: Any, place: str, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = holding(place, "first")
    first.kill()
    first.communicate()
    monkeypatch.setattr(lease, "_machine_id", lambda: "another boot")
    # Longer than a slow machine takes to come to the first look: an older lease is not waited for.
    monkeypatch.setattr(lease, "LIVE_SECONDS", 8.0)
    told: list[Any] = []
    one = own(place, "second", told)
    one.acquire()
    assert [(each["holder"], each["most_seconds"]) for each in told] == [("first", 8.0)]
    one.release()


def test_a_lease_that_nobody_renewed_for_long_is_taken_without_a_wait(
    s3: Any, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By S3's own clock, which has gone on since the holder's end."""
    first = own(place, "first")
    first.acquire()
    monkeypatch.setattr(lease, "_machine_id", lambda: "another boot")
    monkeypatch.setattr(lease, "LIVE_SECONDS", 0.5)
    time.sleep(2.6)  # an object's age is counted in whole seconds
    told: list[Any] = []
    second = own(place, "second", told)
    second.acquire()
    assert told == []
    assert record(s3, place)["run"] == "second"


def test_a_holder_that_stood_still_stops_when_another_has_taken_over(
    s3: Any, place: str, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = holding(place, "first", "1")
    first.send_signal(signal.SIGSTOP)
    monkeypatch.setattr(lease, "_machine_id", lambda: "another boot")
    one = own(place, "second")
    one.acquire()
    assert record(s3, place)["run"] == "second"
    # The first one's lease had 30 s to live when it was stopped: its own renewal tells it.
    first.send_signal(signal.SIGCONT)
    said = first.communicate(timeout=60)[0]
    assert said == "lost another run has taken it\n"
    assert one.loss_reason() is None
    one.release()
    assert record(s3, place)["run"] == "second"


def test_a_lease_that_cannot_be_renewed_is_given_up_before_another_may_take_it(
    s3: Any, place: str, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = own(place)
    one.acquire()
    one._client.meta.events.register("before-send.s3", lambda **_: _unavailable())
    begun = time.monotonic()
    while one.loss_reason() is None:
        assert time.monotonic() - begun < 30
        time.sleep(0.02)
    assert "it could not be renewed for" in str(one.loss_reason())
    one.release()
    assert record(s3, place)["released"] is False


def test_it_is_given_up_by_the_margin_before_another_may_take_it(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = own(place)
    one.acquire()
    renewed = one._renewed
    for seconds, held in ((24.9, True), (25.1, False)):
        monkeypatch.setattr(lease, "_monotonic_seconds", lambda seconds=seconds: renewed + seconds)
        assert (one.loss_reason() is None) is held
    assert lease.LIVE_SECONDS - lease.MARGIN_SECONDS == 25


def _unavailable() -> Any:
    class Raw:
        def stream(self, *_: Any, **__: Any) -> Iterator[bytes]:
            yield b"<Error><Code>SlowDown</Code></Error>"

    return AWSResponse("http://nowhere", 503, HTTPHeaders(), Raw())


def test_the_bill_counts_a_write_for_each_renewal() -> None:
    assert service_limits()["usage.lease_seconds"] == lease.RENEW_SECONDS


def test_a_bucket_that_is_not_there_is_told(s3: Any) -> None:
    with pytest.raises(StartError, match=r"the lease s3://nowhere/x/_millrace/lease.json: .*NoSuchBucket"):
        own("s3a://nowhere/x").acquire()


def test_a_file_system_that_cannot_exclude_is_refused() -> None:
    with pytest.raises(
        StartError, match="hdfs://host/x: the value must be an s3:// or s3a:// URL or a local folder"
    ):
        own("hdfs://host/x")


def test_a_folder_of_this_machine_has_none(tmp_path: Path) -> None:
    for place in (str(tmp_path), tmp_path.as_uri()):
        assert lease.lease_of_checkpoints(place, "run", (), lambda _: None) is None


@pytest.mark.parametrize("cut", [0, 40])
def test_a_damaged_lease_is_waited_for_like_that_of_a_run_that_was_killed(
    s3: Any, quick: None, monkeypatch: pytest.MonkeyPatch, cut: int
) -> None:
    # Longer than a machine that stands still between the write and the first look: the object's age counts.
    monkeypatch.setattr(lease, "LIVE_SECONDS", 4.0)
    place = f"s3://checkpoints/damaged-{cut}"
    first = own(place, "first")
    first.acquire()
    first.release()
    key = f"damaged-{cut}/_millrace/lease.json"
    s3.put_object(Bucket="checkpoints", Key=key, Body=json.dumps(record(s3, place)).encode()[:cut])
    told: list[Any] = []
    second = own(place, "second", told)
    second.acquire()
    assert len(told) == 1
    assert record(s3, place)["run"] == "second"
    second.release()
