"""What a program says of its trigger and limit, and what is told where it cannot be read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from millrace.advisor.job_import import environment
from millrace.advisor.job_program import read, unsupported_settings
from tests.unit.advisor.intervals import INTERVALS
from tests.unit.advisor.test_job_import import CLUSTER, SCHEMA, _kafka

INSTEAD = "the event log tells it, or the plan computes one"


def program(trigger: str, limit: str = "30000") -> str:
    return (
        f's.readStream.format("kafka").option("subscribe", "orders").option("maxOffsetsPerTrigger", {limit})'
        f".load().writeStream.trigger(processingTime={trigger}).start()"
    )


@pytest.mark.parametrize(("text", "milliseconds"), INTERVALS.items())
def test_a_trigger_is_read_as_spark_reads_it(text: str, milliseconds: int | None) -> None:
    said = read(program(repr(text)), {})
    assert said.trigger == (None if milliseconds is None else milliseconds / 1000)
    assert bool(unsupported_settings(said)) == (milliseconds in (None, 0))


def test_what_cannot_be_read_is_told() -> None:
    def notes(*given: str) -> tuple[str, ...]:
        return unsupported_settings(read(program(*given), {"window": "1 minute"}))

    assert notes("'100 ms'") == (f"its trigger 100 ms is none that Spark takes: {INSTEAD}",)
    assert notes("'0 seconds'") == (
        f"with its trigger 0 seconds a batch follows the other at once: {INSTEAD}",
    )
    assert notes("window()", "most()") == (
        f"its trigger (processingTime) is not named in plain words: {INSTEAD}",
        f"its limit (maxOffsetsPerTrigger) is not named in plain words: {INSTEAD}",
    )
    assert notes("args['window']", "'many'") == (f"its limit many is no number: {INSTEAD}",)
    assert notes("args['window']") == ()


@pytest.mark.parametrize(
    ("given", "written"),
    [("1 DAY", "1d"), ("2 weeks", "14d"), ("1 minute 30 seconds", "90s"), ("250 milliseconds", "250ms")],
)
def test_a_trigger_is_written_as_the_file_takes_it(given: str, written: str) -> None:
    servers = '.option("kafka.bootstrap.servers", "b-1:9092").load()'
    said = read(program(repr(given)).replace(".load()", servers), {})
    made = environment(
        replace(_kafka(), said=said), project="p", schema=SCHEMA, start="2026-12-01T08:00:00Z", rate=1.0,
        record_size="1KiB", twin=None, offsets=None, partitions=1, cluster=CLUSTER,
    )  # fmt: skip
    [job] = made["jobs"].values()
    [query] = job["queries"].values()
    assert query["trigger"] == written


DOUBLED = "a0 = 'xxxxxxxx'\n" + "".join(f"a{n + 1} = f'{{a{n}}}{{a{n}}}'\n" for n in range(60))


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(
            DOUBLED + "s.readStream.format('kafka').option('subscribe', a60)", id="names that double"
        ),
        pytest.param("f'" + "{a}" * 20_000 + "'", id="many parts"),
        pytest.param("x = " + "-" * 200_000 + "1", id="nested operators"),
        pytest.param("x = " + "(" * 10_000 + ")" * 10_000, id="nested brackets"),
        pytest.param("x = " + "a." * 200_000 + "b", id="a long chain"),
        pytest.param("x = " + "not " * 100_000 + "b", id="nots"),
        pytest.param("x = f'{x:{y:{z:{a}}}}'", id="nested f-strings"),
        pytest.param("x = 0x" + "f" * 900_000, id="a huge number"),
        pytest.param("x = 'a'\0", id="a NUL"),
        pytest.param("#" * 2_000_000, id="a long program"),
        pytest.param("s.option('maxOffsetsPerTrigger', 0x" + "f" * 100_000 + ")", id="a huge option"),
    ],
)
def test_no_program_exhausts_the_reading(program):
    import tracemalloc

    tracemalloc.start()
    found = read(program, {})
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.name is None
    assert most < 500 << 20
