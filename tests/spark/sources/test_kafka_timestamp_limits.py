"""Topics that Millrace creates refuse records with timestamps far from now."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import KafkaError, Producer

from millrace.sandbox.programs.kafka_broker import KafkaBroker
from millrace.verify.removals.removal import create_topic_if_missing

pytestmark = pytest.mark.slow


def sent(broker: KafkaBroker, topic: str, at: int) -> KafkaError | None:
    answers: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    producer.produce(topic, b"{}", timestamp=at, on_delivery=lambda error, _: answers.append(error))
    assert producer.flush(30) == 0
    return answers[0]


@pytest.mark.parametrize("maker", ["sandbox", "verify"])
def test_brokers_turn_away_what_no_producer_can_mean(broker: KafkaBroker, maker: str) -> None:
    topic = f"of-{maker}"
    if maker == "sandbox":
        broker.create_topic(topic, 1)
    else:
        create_topic_if_missing({"bootstrap.servers": broker.bootstrap}, topic, 1, 30.0)
    now = round(time.time() * 1000)
    for at in (now, now - 400 * 86_400_000, now + 1_800_000, 1):
        assert sent(broker, topic, at) is None
    for at in (2**63 - 1, now * 1000, now + 2 * 86_400_000):
        error = sent(broker, topic, at)
        assert error is not None
        assert error.code() == KafkaError.INVALID_TIMESTAMP
