"""Fault rounds: each runs one story of a stream and a job, and compares the result with the ledger."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.faults import bad_record_examples, odd_record_rounds, round_scenarios
from tests.faults.kafka_round_setup import KafkaStage
from tests.faults.keyed_round_setup import KeyedStage
from tests.faults.record_sender import DDL
from tests.faults.round_setup import Stage
from tests.faults.routed_round_setup import RoutedStage
from tests.faults.topic_split import SplitStage, split_topic

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


PASSES_OVER = (
    "from millrace.etl.engines.sandbox_kinesis_connector import Sandbox\n"
    "Sandbox.PASSES_OVER_CLOSED_SHARDS = True\n"
)

LIMITED = {"records_per_batch": 2000, "records_per_shard": 2000}

SLOW = {"records_per_shard": 400}
"""A batch takes little, so that a backlog of minutes stands."""


def _under_load(times: int, *steps: round_scenarios.Step, shards: int = 2) -> Round:
    return Round(partial(round_scenarios.under_load, steps=steps, times=times), shards)


ROUNDS: Mapping[str, Round] = {
    "split_under_load": _under_load(3, Stage.split),
    "merge_under_load": _under_load(3, Stage.merge, shards=5),
    "split_and_merge_under_load": _under_load(4, Stage.split, Stage.merge, shards=3),
    "split_in_a_gap": Round(partial(round_scenarios.in_a_gap, step=Stage.split)),
    "merge_in_a_gap": Round(partial(round_scenarios.in_a_gap, step=Stage.merge), shards=5),
    "only_shard_split": _under_load(1, Stage.split, shards=1),
    "all_shards_merged": _under_load(1, Stage.merge),
    "split_while_stopped": Round(partial(round_scenarios.while_stopped, step=Stage.split)),
    "merge_while_stopped": Round(partial(round_scenarios.while_stopped, step=Stage.merge), shards=4),
    "grandchildren_while_killed": Round(round_scenarios.grandchildren_while_killed, shards=1),
    "unread_tail": Round(round_scenarios.unread_tail, settings=SLOW, trigger_seconds=0.1),
    "killed_between_write_and_commit": Round(round_scenarios.killed_between_write_and_commit),
    "killed_while_splitting": Round(round_scenarios.killed_while_splitting),
    "throttled": Round(round_scenarios.throttled),
    "iterators_expire": Round(round_scenarios.iterators_expire),
    "zero_length": Round(odd_record_rounds.zero_length),
    "large": Round(odd_record_rounds.large),
    "contended": Round(round_scenarios.contended, settings={"fetch_seconds": 0.2}),
    "aggregated": Round(odd_record_rounds.aggregated),
    "latest_over_a_stop": Round(round_scenarios.latest_over_a_stop, settings={"start": "latest"}),
    "closed_shards_passed_over": Round(round_scenarios.closed_shards_passed_over, prelude=PASSES_OVER),
    "positions_cut_short": Round(round_scenarios.positions_cut_short),
    "started_at_a_moment": Round(round_scenarios.started_at_a_moment),
    "limits_follow_shards": Round(
        round_scenarios.limits_follow_shards, shards=1, settings=LIMITED, trigger_seconds=0.1
    ),
    "bad_input": Round(odd_record_rounds.bad_input, ddl=bad_record_examples.DDL),
    "bad_input_kafka": Round(odd_record_rounds.bad_input, ddl=bad_record_examples.DDL, kind=KafkaStage),
    "several_sources": Round(round_scenarios.killed_while_splitting, kind=RoutedStage),
    "split_topic": Round(split_topic, kind=SplitStage),
    "latest_of_split_shards": Round(
        partial(round_scenarios.while_stopped, step=Stage.split),
        settings=SLOW,
        trigger_seconds=0.1,
        kind=KeyedStage,
    ),
    "trimmed": Round(round_scenarios.trimmed, refused="LossError"),
}
