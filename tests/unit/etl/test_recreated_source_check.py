"""Ids of topics and streams are stored, compared and adopted beside the checkpoint."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from botocore.exceptions import ClientError

from millrace.etl.launch.sources import KinesisSource
from millrace.etl.record.batch_accounts import EventReporter
from millrace.etl.record.errors import LossError, NoAnswerError, StartError
from millrace.etl.sources.kinesis import connector_stream
from millrace.etl.sources.recreated_source_check import LegIdentity, StreamIdentities

FLIGHTS = {"cluster": "c1", "topic flights": "t1"}
STREAM = KinesisSource("clicks", "shop-clicks", "eu-west-1", "earliest", 1000, 1.0, 86400)


class Place:
    """A file beside a checkpoint, what a source answers, and what was told."""

    def __init__(self, text: str | None = None) -> None:
        self.text = text
        self.answer: Callable[[], dict[str, str]] = lambda: dict(FLIGHTS)
        self.asked = 0
        self._said = io.StringIO()

    def origins(
        self, *, begun: bool, topic: str | None = "flights", name: str = "flights"
    ) -> StreamIdentities:
        streams = {name: ("iceberg lake.flights", topic)}
        report = EventReporter("job", self._said)
        return StreamIdentities(
            "land", (LegIdentity("main", self.ask, streams),), self.load, self.save, "RESET", report, begun
        )

    def ask(self) -> dict[str, str]:
        self.asked += 1
        return self.answer()

    def load(self) -> str | None:
        return self.text

    def save(self, text: str) -> None:
        self.text = text

    def held(self) -> dict[str, Any]:
        return dict(json.loads(self.text or "{}"))

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._said.getvalue().splitlines()]


def begun_with(**ids_: str) -> Place:
    place = Place()
    place.answer = lambda: {**FLIGHTS, **ids_}
    place.origins(begun=False).check_before_first_batch()
    return place


def silent() -> dict[str, str]:
    raise NoAnswerError("TimeoutException: no broker")


def test_a_new_checkpoint_keeps_the_ids_with_its_first_batch_and_says_nothing() -> None:
    place = Place()
    origins = place.origins(begun=False)
    origins.check_at_start()
    assert (place.asked, place.text) == (0, None)
    origins.check_before_first_batch()
    assert place.held() == {
        "version": 1,
        "checkpoint": {"cluster of main": "c1", "topic flights of main": "t1"},
        "streams": {"flights": {"into": "iceberg lake.flights", "ids": FLIGHTS}},
    }
    assert place.events() == []


def test_a_checkpoint_of_before_adopts_what_is_there_once() -> None:
    place = Place()
    for _ in range(2):
        origins = place.origins(begun=True)
        origins.check_at_start()
        origins.check_before_first_batch()
    (told,) = place.events()
    assert (told["event"], told["query"]) == ("adopted_sources", "land")
    assert told["ids"] == {"cluster of main": "c1", "topic flights of main": "t1"}


@pytest.mark.parametrize(
    ("what", "old", "new"), [("topic flights of main", "t1", "t2"), ("cluster of main", "c1", "c2")]
)
def test_another_of_the_same_name_is_refused_with_both_ids(what: str, old: str, new: str) -> None:
    place = Place()
    place.origins(begun=False).check_before_first_batch()
    before = place.text
    place.answer = lambda: {**FLIGHTS, what.removesuffix(" of main"): new}
    with pytest.raises(
        StartError, match=f"{what} was deleted and created again.*: its id was {old} and is now {new}"
    ) as refused:
        place.origins(begun=True).check_at_start()
    assert "give the stream another name" in str(refused.value)
    assert str(refused.value).endswith("; then RESET")
    assert place.text == before


def test_a_reset_alone_is_no_way_out_and_another_name_or_table_is() -> None:
    place = begun_with()
    place.answer = lambda: {**FLIGHTS, "topic flights": "t2"}
    with pytest.raises(StartError, match="stream flights: topic flights was deleted and created again"):
        place.origins(begun=False).check_at_start()
    again = place.origins(begun=False, name="flights-2")
    again.check_at_start()
    again.check_before_first_batch()
    assert place.held()["checkpoint"]["topic flights of main"] == "t2"
    assert {name: held["ids"]["topic flights"] for name, held in place.held()["streams"].items()} == {
        "flights": "t1",
        "flights-2": "t2",
    }
    # Back to the old name: its records are still there.
    with pytest.raises(StartError, match="stream flights: topic flights was deleted and created again"):
        place.origins(begun=True).check_at_start()


def test_a_connection_of_another_name_to_another_cluster_is_another_source_of_the_stream() -> None:
    """Its checkpoint is refused by the manifest; a new one would leave its records out."""
    place = begun_with()
    place.answer = lambda: {**FLIGHTS, "cluster": "c2"}
    origins = place.origins(begun=False)
    origins.legs = (LegIdentity("other", place.ask, {"flights": ("iceberg lake.flights", "flights")}),)
    with pytest.raises(StartError, match="stream flights: cluster was deleted and created again"):
        origins.check_at_start()


def test_a_stream_is_not_held_to_the_topics_of_others() -> None:
    place = begun_with(**{"topic gifts": "g1"})
    place.answer = lambda: {**FLIGHTS, "topic gifts": "g2"}
    origins = place.origins(begun=False)
    origins.check_at_start()
    origins.check_before_first_batch()


def test_new_topics_of_a_pattern_are_adopted_and_others_of_the_same_name_end_the_query() -> None:
    place = Place()
    origins = place.origins(begun=False, topic=None)
    origins()
    assert place.asked == 0, "nothing was written yet, so nothing can be compared"
    origins.check_before_first_batch()
    place.answer = lambda: {**FLIGHTS, "topic gates": "g1"}
    origins()
    assert place.held()["streams"]["flights"]["ids"]["topic gates"] == "g1"
    assert [told["ids"] for told in place.events()] == [{"topic gates of main": "g1"}]
    place.answer = lambda: {**FLIGHTS, "topic gates": "g2"}
    with pytest.raises(LossError, match="topic gates of main was deleted and created again"):
        origins()


def test_who_does_not_answer_at_the_start_is_asked_before_anything_is_written() -> None:
    place = begun_with()
    place.answer = silent
    origins = place.origins(begun=True)
    origins.check_at_start()
    assert [told["event"] for told in place.events()] == ["unchecked"]
    with pytest.raises(NoAnswerError):
        origins.check_before_first_batch()
    place.answer = lambda: {**FLIGHTS, "topic flights": "t2"}
    with pytest.raises(LossError, match="topic flights of main was deleted and created again"):
        origins.check_before_first_batch()
    place.answer = lambda: dict(FLIGHTS)
    origins.check_before_first_batch()


def test_ids_that_nobody_tells_are_unknown_and_adopted_when_they_are_told() -> None:
    """Brokers before 2.8, which are upgraded."""
    place = Place()
    place.answer = lambda: {"cluster": "c1"}
    place.origins(begun=False).check_before_first_batch()
    place.answer = lambda: dict(FLIGHTS)
    origins = place.origins(begun=True)
    origins.check_at_start()
    origins.check_before_first_batch()
    place.answer = lambda: {"cluster": "c1"}
    origins()
    assert place.held()["checkpoint"]["topic flights of main"] == "t1"


@pytest.mark.parametrize("text", ['{"version": 2}', "{", "[]", '{"version": 1, "checkpoint": {}}'])
def test_a_file_that_cannot_be_read_is_no_leave_to_go_on(text: str) -> None:
    with pytest.raises(StartError, match="Restore it, or delete it"):
        Place(text).origins(begun=True).check_at_start()


class Kinesis:
    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def describe_stream_summary(self, StreamName: str) -> Any:
        assert StreamName == "shop-clicks"
        if isinstance(self._answer, Exception):
            raise self._answer
        return {"StreamDescriptionSummary": {"StreamCreationTimestamp": self._answer}}


def refusal(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "no"}}, "DescribeStreamSummary")


def test_a_stream_is_known_by_the_second_it_was_made_in() -> None:
    made = datetime(2026, 11, 20, 9, 0, 0, 5000, tzinfo=timezone(timedelta(hours=1)))
    assert connector_stream.stream_creation_time_as_id(STREAM, None, client=Kinesis(made)) == {
        "stream shop-clicks": "2026-11-20T08:00:00+00:00"
    }


def test_a_role_that_may_not_ask_knows_nothing_and_any_other_refusal_is_no_answer() -> None:
    assert (
        connector_stream.stream_creation_time_as_id(
            STREAM, None, client=Kinesis(refusal("AccessDeniedException"))
        )
        == {}
    )
    with pytest.raises(NoAnswerError, match="stream shop-clicks"):
        connector_stream.stream_creation_time_as_id(
            STREAM, None, client=Kinesis(refusal("LimitExceededException"))
        )


def test_a_source_that_cannot_be_made_again_while_it_is_read_is_asked_at_the_start_alone() -> None:
    place, other = Place(), Place()
    legs = (LegIdentity("main", place.ask, {}), LegIdentity("other", other.ask, {}, while_running=False))
    origins = StreamIdentities(
        "land", legs, place.load, place.save, "RESET", EventReporter("job", io.StringIO()), False
    )
    origins.check_before_first_batch()
    origins()
    assert (place.asked, other.asked) == (2, 1)
