"""Simulated Kafka brokers of another owner, in the place of their admin client."""

from __future__ import annotations

from concurrent.futures import Future
from typing import ClassVar


class Brokers:
    """A cluster's topics, as its admin client tells and deletes them."""

    topics: ClassVar[dict[str, object]] = {}

    def __init__(self, settings: dict[str, object]) -> None:
        assert settings["bootstrap.servers"] == "theirs:9092"

    def poll(self, _: float) -> None: ...

    def list_topics(self, timeout: float) -> Brokers:
        assert timeout > 0
        return self

    def delete_topics(self, names: list[str], operation_timeout: float) -> dict[str, Future[None]]:
        assert operation_timeout > 0
        done: Future[None] = Future()
        done.set_result(None)
        for name in names:
            del self.topics[name]
        return dict.fromkeys(names, done)
