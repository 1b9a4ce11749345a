"""Fault rounds: each runs one story of a stream and a job, and compares the result with the ledger."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.faults import bad_records, odd_records, stories
from tests.faults.kafka_stage import KafkaStage
from tests.faults.keyed_stage import KeyedStage
from tests.faults.routed_stage import RoutedStage
from tests.faults.sent_records import DDL
from tests.faults.split import SplitStage, split_topic
from tests.faults.stage import Stage

Story = Callable[[Stage, int], None]


@dataclass(frozen=True)
class Round:
    """A story with its stream.

    Attributes
    ----------
    settings
        Of the land query's source.
    refused
        What the job must say when the story is one that it must refuse.
    prelude
        Python that the entry script begins with.
    kind
        What it reads: a stream, a topic, a topic that is shared out over two jobs, several of both.
    """

    story: Story
    shards: int = 2
    settings: Mapping[str, Any] = field(default_factory=dict)
    trigger_seconds: float = 0.5
    refused: str | None = None
    prelude: str = ""
    ddl: str = DDL
    kind: type[Stage] = Stage


PASSES_OVER = "import millrace.etl.engines.sandbox\nmillrace.etl.engines.sandbox.Sandbox.PASSES_OVER_CLOSED_SHARDS = True\n"

LIMITED = {"records_per_batch": 2000, "records_per_shard": 2000}

SLOW = {"records_per_shard": 400}
"""A batch takes little, so that a backlog of minutes stands."""


def _under_load(times: int, *steps: stories.Step, shards: int = 2) -> Round:
    return Round(partial(stories.under_load, steps=steps, times=times), shards)


ROUNDS: Mapping[str, Round] = {
    "split_under_load": _under_load(3, Stage.split),
    "merge_under_load": _under_load(3, Stage.merge, shards=5),
    "split_and_merge_under_load": _under_load(4, Stage.split, Stage.merge, shards=3),
    "split_in_a_gap": Round(partial(stories.in_a_gap, step=Stage.split)),
    "merge_in_a_gap": Round(partial(stories.in_a_gap, step=Stage.merge), shards=5),
    "only_shard_split": _under_load(1, Stage.split, shards=1),
    "all_shards_merged": _under_load(1, Stage.merge),
    "split_while_stopped": Round(partial(stories.while_stopped, step=Stage.split)),
    "merge_while_stopped": Round(partial(stories.while_stopped, step=Stage.merge), shards=4),
    "grandchildren_while_killed": Round(stories.grandchildren_while_killed, shards=1),
    "unread_tail": Round(stories.unread_tail, settings=SLOW, trigger_seconds=0.1),
    "killed_between_write_and_commit": Round(stories.killed_between_write_and_commit),
    "killed_while_splitting": Round(stories.killed_while_splitting),
    "throttled": Round(stories.throttled),
    "iterators_expire": Round(stories.iterators_expire),
    "zero_length": Round(odd_records.zero_length),
    "large": Round(odd_records.large),
    "contended": Round(stories.contended, settings={"fetch_seconds": 0.2}),
    "aggregated": Round(odd_records.aggregated),
    "latest_over_a_stop": Round(stories.latest_over_a_stop, settings={"start": "latest"}),
    "closed_shards_passed_over": Round(stories.closed_shards_passed_over, prelude=PASSES_OVER),
    "positions_cut_short": Round(stories.positions_cut_short),
    "started_at_a_moment": Round(stories.started_at_a_moment),
    "limits_follow_shards": Round(
        stories.limits_follow_shards, shards=1, settings=LIMITED, trigger_seconds=0.1
    ),
    "bad_input": Round(odd_records.bad_input, ddl=bad_records.DDL),
    "bad_input_kafka": Round(odd_records.bad_input, ddl=bad_records.DDL, kind=KafkaStage),
    "several_sources": Round(stories.killed_while_splitting, kind=RoutedStage),
    "split_topic": Round(split_topic, kind=SplitStage),
    "latest_of_split_shards": Round(
        partial(stories.while_stopped, step=Stage.split), settings=SLOW, trigger_seconds=0.1, kind=KeyedStage
    ),
    "trimmed": Round(stories.trimmed, refused="LossError"),
}
