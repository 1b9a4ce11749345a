"""How many tasks a stage should have, and what gives it as many: Kafka's reader splits a topic's partitions, no option joins them."""

from __future__ import annotations

import numpy as np
import pytest

from millrace.advisor.findings.ranges import least_for, tasks
from millrace.advisor.forecast import playable
from millrace.advisor.history import Source
from tests.unit.advisor.made import KAFKA, batch, found, job, stage
from tests.unit.advisor.test_command import flights


def of_topic(own: int, count: int, seconds: float, cores: int):
    """Batches whose ``count`` tasks of so many seconds read a topic of ``own`` partitions."""

    def made(number, begun):
        launched = [seconds * (n // cores) for n in range(count)]
        at = stage(begun + 0.05, [seconds] * count, [1200 // count] * count, launched=launched)
        start, end = ({f"orders:{n}": (number + more) * 1200 // own for n in range(own)} for more in (0, 1))
        return batch(number, begun, [job(number, [at])], 1200, source=Source(KAFKA, start, end, end, 1200))

    return made


def told(finding):
    return [(each.kind, each.key, each.old, each.new) for each in finding.changes]


def test_a_topic_with_too_many_partitions_is_joined_after_it_is_read():
    finding = found("too-many-partitions", of_topic(100, 100, 0.02, 2))
    assert told(finding) == [("code", "after the source", None, "coalesce(2)")]
    assert finding.changes[0].where == "query orders of job orders"
    assert playable([finding], ["orders"]) == []


def test_partitions_that_the_reader_split_are_as_many_as_the_topics_again():
    finding = found("too-many-partitions", of_topic(8, 100, 0.02, 2))
    assert told(finding) == [
        ("argument", "minPartitions", 100, 8),
        ("code", "after the source", None, "coalesce(2)"),
    ]
    assert told(found("too-many-partitions", of_topic(1, 100, 0.02, 2))) == [
        ("argument", "minPartitions", 100, 2)
    ]


def test_of_ours_no_key_is_named_that_would_do_nothing():
    [finding] = flights(of_topic(100, 100, 0.02, 2)).findings
    assert [each.kind for each in finding.changes] == ["code"]
    [finding] = flights(of_topic(8, 100, 0.02, 2)).findings
    assert finding.changes[0].key == "jobs.flights.queries.show-departures.kafka.min_partitions"
    assert finding.changes[0].new == 8


@pytest.mark.parametrize(
    ("own", "count", "cores", "change"),
    [
        (3, 3, 2, ("argument", "minPartitions", 3, 6)),  # four would leave each of three whole
        (1, 3, 2, ("argument", "minPartitions", 3, 4)),
        (5, 5, 4, ("code", "after the source", None, "repartition(8)")),  # 10 or 15, never 8, 12 or 16
    ],
)
def test_a_full_last_wave_is_asked_for_in_numbers_that_kafka_can_give(own, count, cores, change):
    finding = found("queued-partitions", of_topic(own, count, 0.6, cores), cores=cores)
    assert told(finding) == [change]


def test_too_few_partitions_are_split_evenly():
    assert told(found("too-few-partitions", of_topic(3, 3, 1.2, 3), cores=4)) == [
        ("argument", "minPartitions", 3, 12)
    ]


def test_ranges_are_split_as_spark_does():
    even, hot = np.array([100.0] * 3), np.array([1000.0, 10.0, 10.0])
    assert [tasks(even, least) for least in (1, 3, 4, 5, 6, 7, 8, 9)] == [3, 3, 3, 6, 6, 6, 9, 9]
    # The hot one takes what the small ones leave: six less two.
    assert [tasks(hot, least) for least in (3, 4, 6)] == [3, 4, 6]
    assert least_for([even] * 9 + [hot], 4, 2, 8) == 6
    assert least_for([even] * 5 + [hot] * 5, 10, 5, 10) is None
