"""Topics that a verification creates where no stack does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from millrace.config.kafka.clusters import TIME_LIMITS
from millrace.sandbox.kill_and_restart_jobs import DrillError
from millrace.verify.removals import removal


class Brokers:
    """An admin client of brokers that refuse topics with settings."""

    def __init__(self, code: int) -> None:
        self.code = code
        self.asked: list[Mapping[str, str]] = []

    def poll(self, _: float) -> None: ...

    def list_topics(self, timeout: float) -> Any:
        del timeout
        return SimpleNamespace(topics={})

    def create_topics(self, topics: Sequence[Any], **_: Any) -> dict[str, Future[None]]:
        (topic,) = topics
        self.asked.append(dict(topic.config))
        made = Future[None]()
        if topic.config:
            made.set_exception(KafkaException(KafkaError(self.code, "Unknown topic config name")))
        else:
            made.set_result(None)
        return {topic.topic: made}


def test_brokers_that_know_no_limits_of_time_get_a_topic_without(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(KafkaError.INVALID_CONFIG)
    monkeypatch.setattr(removal, "AdminClient", lambda _: brokers)
    removal.create_topic_if_missing({"bootstrap.servers": "x"}, "own", 2, 1.0)
    assert brokers.asked == [TIME_LIMITS, {}]


def test_any_other_refusal_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    monkeypatch.setattr(removal, "AdminClient", lambda _: brokers)
    with pytest.raises(DrillError, match="topic own could not be created"):
        removal.create_topic_if_missing({"bootstrap.servers": "x"}, "own", 2, 1.0)
    assert brokers.asked == [TIME_LIMITS]
