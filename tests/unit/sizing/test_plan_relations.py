"""Relations between plans hold for environments drawn at random."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.run import SLOWLY, examples
from tests.unit.sizing.plain_simulator import PlainQuery, play
from tests.unit.sizing.plan_relations import (
    a_pin_changes_nothing,
    a_steady_state_is_what_each_batch_gives,
    an_easier_environment_is_no_worse,
    cores_that_are_not_sized_would_not_be_chosen,
    no_plan_costs_less_than_its_bound,
    order_and_names_change_nothing,
    pins_below_the_work_are_refused,
    sized,
    the_plain_simulator_agrees,
    two_equal_jobs_cost_twice_one,
)
from tests.unit.sizing.random_environments import documents

pytestmark = pytest.mark.usefixtures("without_remedies")


PHASES = (Phase.explicit, Phase.generate)
"""Examples take too long to be made smaller."""

RELATIONS = [
    (an_easier_environment_is_no_worse, (documents(), st.sampled_from([1.01, 1.3, 2, 8]))),
    (a_pin_changes_nothing, (documents(),)),
    (pins_below_the_work_are_refused, (documents(),)),
    (cores_that_are_not_sized_would_not_be_chosen, (documents(),)),
    (no_plan_costs_less_than_its_bound, (documents(),)),
    (order_and_names_change_nothing, (documents(),)),
    (two_equal_jobs_cost_twice_one, (documents(),)),
    (a_steady_state_is_what_each_batch_gives, (documents(),)),
    (the_plain_simulator_agrees, (documents(rated=True),)),
]


@pytest.mark.parametrize(("relation", "drawn"), RELATIONS, ids=[each.__name__ for each, _ in RELATIONS])
def test_it_holds(relation: Callable[..., None], drawn: tuple[st.SearchStrategy[object], ...]) -> None:
    # That one simulates each draw six times, and each time twice; the test below takes turns.
    most = 6 if relation is a_steady_state_is_what_each_batch_gives else 18
    settings(max_examples=examples(most), phases=PHASES)(given(*drawn)(relation))()


@pytest.mark.slow
@pytest.mark.timeout(7200)  # of all draws; a share of them takes half a minute
@pytest.mark.parametrize(("relation", "drawn"), RELATIONS, ids=[each.__name__ for each, _ in RELATIONS])
def test_it_holds_for_many(
    relation: Callable[..., None], drawn: tuple[st.SearchStrategy[object], ...]
) -> None:
    steady = relation is a_steady_state_is_what_each_batch_gives
    most = 300 if steady else 3000
    # All take an hour, so a relation's day has a share; the first of them are those of the test above, as both draw by one seed.
    share = most // 100 if os.environ.get(SLOWLY) == "today" else most
    settings(max_examples=share, phases=PHASES)(given(*drawn)(relation))()


@pytest.mark.parametrize("overhead", [0.5, 3.0])
@pytest.mark.parametrize("share", [1.5, 1.9, 2.0])
def test_what_is_infeasible_is_kept_by_no_design(overhead: float, share: float) -> None:
    """No shards, workers and trigger of a grid keep an SLA that the plan refuses."""
    sla = round(share * overhead, 3)
    traffic = {"records_per_second": 500, "record_size": "1KiB", "basis": "measured"}
    query = {"kind": "land", "source": "clicks", "table": "landed", "schema": "pipelines/a.ddl"}
    rate = {"records_per_second_per_core": 1000, "batch_overhead": f"{round(overhead * 1000)}ms"}
    job = {"engine": "glue", "latency": f"{round(sla * 1000)}ms", "rate": rate, "queries": {"land": query}}
    streams = {"clicks": {"kind": "kinesis", "traffic": traffic}}
    document = {"name": "built", "project": "built", "streams": streams, "jobs": {"clicks": job}}
    assert sized(document)[1] is None
    for partitions in (1, 2, 3, 8, 64):
        for cores in (1, 2, 8, 64, 512):
            for part in range(1, 40):
                tried = PlainQuery(500.0, overhead, 1e-3, sla, sla * part / 40, cores, partitions, 1e12)
                assert not play({"land": tried}, 200 * overhead)["land"].kept
