"""Contract of all engines: both sides know them, and their properties are consistent."""

from __future__ import annotations

from pkgutil import resolve_name

import pytest

from millrace.config.engines import KINDS
from millrace.config.engines.base import JobBase
from millrace.etl.launch import engine_interface_and_registry as run
from millrace.infra import engines as deployed
from millrace.infra.stacks.job_base import JobStack
from millrace.sizing.prices_and_limits import known_price_names, service_limits


def job(kind: str) -> JobBase:
    return KINDS[kind].model_construct(engine=kind, queries={})


def test_the_core_runs_on_all_of_them_and_here() -> None:
    assert [*KINDS, "sandbox"] == list(run.ENGINES)
    for kind in run.ENGINES:
        assert run.engine_of(kind).KINESIS_FORMAT


@pytest.mark.parametrize("kind", KINDS)
def test_an_engine_is_whole(kind: str) -> None:
    engine = KINDS[kind]
    assert engine.model_fields["engine"].annotation.__args__ == (kind,)
    assert engine.model_fields["version"].default in engine.spark_version_by_engine_version
    assert 0 < service_limits()[engine.heap_share] < 1
    assert issubclass(resolve_name(deployed.deployed_engine(kind).stack), JobStack)


@pytest.mark.parametrize("kind", KINDS)
def test_every_worker_that_is_offered_has_tasks_and_a_price(kind: str) -> None:
    offered = list(KINDS[kind].possible_workers(job(kind), lambda tasks, _: 1.0 * tasks))
    assert len({(each.name, each.architecture) for each in offered}) == len(offered)
    for each in offered:
        assert each.own or each.architecture != job(kind).processor_architecture
        assert each.tasks >= 1
        for bill in each.hourly_bill_items:
            assert set(bill.price) & known_price_names(), bill
            assert bill.why.format(count=2, hours=730)
    other = next(name for name in KINDS if name != kind)
    assert not any(
        each.own for each in KINDS[kind].possible_workers(job(other), lambda tasks, _: 1.0 * tasks)
    )
