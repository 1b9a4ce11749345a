"""The design that the plan chooses: no number of shards that one may pin is cheaper."""

from __future__ import annotations

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from millrace.config import Environment
from millrace.config.document.problems import ConfigurationError
from millrace.sizing import plan, total
from tests.unit.sizing.drawn_environments import milliseconds


@st.composite
def streams(draw: st.DrawFn) -> tuple[dict[str, object], dict[str, object]]:
    """A provisioned stream, and the job that lands it."""
    traffic = {
        "records_per_second": draw(st.integers(100, 20_000)),
        "record_size": draw(st.sampled_from(["100B", "400B", "900B", "2KiB"])),
        "basis": "measured",
    }
    stream = {"kind": "kinesis", "retention": draw(st.sampled_from(["24h", "48h"])), "traffic": traffic}
    rate = {
        "records_per_second_per_core": draw(st.integers(400, 8_000)),
        "batch_overhead": draw(milliseconds(0.3, 4)),
        "basis": "measured",
    }
    query = {"kind": "land", "source": "clicks", "table": "landed", "schema": "pipelines/a.ddl"}
    engine, latency = draw(st.sampled_from(["glue", "emr"])), draw(milliseconds(10, 300))
    return stream, {"engine": engine, "latency": latency, "rate": rate, "queries": {"land": query}}


def usd(stream: dict[str, object], job: dict[str, object]) -> tuple[float, int] | None:
    """Dollars a month and shards; None if it cannot be planned, or only for a catch-up of more than a day."""
    document = {"name": "built", "project": "built", "streams": {"clicks": stream}, "jobs": {"clicks": job}}
    try:
        found = plan(Environment.model_validate(document))
    except ConfigurationError:
        return None
    again = [query.catch_up_seconds for each in found.jobs.values() for query in each.queries.values()]
    if any(each is not None and each.value > 86_400 for each in again):
        return None
    return total(found).value, found.streams["clicks"].expected_partitions.value


@settings(max_examples=25, phases=(Phase.explicit, Phase.generate))
@given(streams())
def test_no_shards_that_are_pinned_are_cheaper(drawn: tuple[dict[str, object], dict[str, object]]) -> None:
    stream, job = drawn
    found = usd(stream, job)
    if found is None:
        return
    cheapest, shards = found
    for number in {*range(1, 25), *range(max(1, shards - 8), shards + 8), shards // 2, 2 * shards} - {0}:
        other = usd({**stream, "shards": number}, job)
        assert other is None or other[0] >= cheapest - 0.01, f"{number} shards are cheaper than {shards}"
