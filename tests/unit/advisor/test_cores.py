"""More and fewer cores, in what each service counts: workers, executors or cores; and as what it is set to now."""

from __future__ import annotations

from dataclasses import replace

import pytest

from millrace.advisor.advise import advise
from millrace.advisor.history import Executor, History
from millrace.advisor.subject import Subject
from tests.unit.advisor.made import START, batch, history, job, stage

SCALES = {"spark.dynamicAllocation.enabled": "true"}
MAX, MIN = "spark.dynamicAllocation.maxExecutors", "spark.dynamicAllocation.minExecutors"


def full(number, begun):
    """Back to back on 12 cores, and half of what comes waits."""
    at = stage(begun + 0.03, [1.85] * 12, [500] * 12)
    return batch(number, begun, [job(number, [at])], 6000, left=3000 * (number + 1))


def light(number, begun):
    """Twelve tasks that two cores would carry."""
    at = stage(begun + 0.05, [0.1 + 0.002 * (number % 3)] * 12, [500] * 12)
    return batch(number, begun, [job(number, [at])], 6000)


def on(engine: str, make, executors: int, **properties: str) -> History:
    made = replace(history(make), engine=engine, properties=properties)
    return replace(made, executors=tuple(Executor(str(n), 4, START, None, 0) for n in range(executors)))


@pytest.mark.parametrize(
    ("engine", "properties", "arguments", "fewer", "more"),
    [
        pytest.param(
            "glue", {}, {"--number-of-workers": "4"},
            ("--number-of-workers", 4, 2), ("--number-of-workers", 4, 7), id="glue",
        ),
        pytest.param(
            "glue", {}, {}, ("--number-of-workers", 4, 2), ("--number-of-workers", 4, 7), id="glue, a log alone",
        ),
        pytest.param(
            "glue", {}, {"--number-of-workers": "6", "--enable-auto-scaling": "true"},
            ("--number-of-workers", 6, 2), ("--number-of-workers", 6, 7), id="glue that scales and reached its most",
        ),
        pytest.param(
            "glue", {}, {"--number-of-workers": "20", "--enable-auto-scaling": "true"},
            ("--number-of-workers", 20, 2), None, id="glue that may have more than it takes",
        ),
        pytest.param("emr", {}, {MAX: "3"}, (f"--conf {MAX}", 3, 1), (f"--conf {MAX}", 3, 6), id="emr"),
        pytest.param(
            "emr", {MAX: "infinity"}, {}, (f"--conf {MAX}", 3, 1), (f"--conf {MIN}", None, 6), id="emr without a bound",
        ),
        pytest.param(
            "emr", {"spark.dynamicAllocation.enabled": "false"}, {"spark.executor.instances": "3"},
            ("--conf spark.executor.instances", 3, 1), ("--conf spark.executor.instances", 3, 6), id="emr that does not scale",
        ),
        pytest.param(
            "spark", {"spark.master": "yarn"}, {},
            ("--conf spark.executor.instances", 3, 1), ("--conf spark.executor.instances", 3, 6), id="yarn",
        ),
        pytest.param(
            "spark", {"spark.master": "k8s://x", **SCALES, MAX: "9"}, {},
            (f"--conf {MAX}", 9, 1), (f"--conf {MIN}", None, 6), id="kubernetes that scales",
        ),
        pytest.param(
            "spark", {"spark.master": "spark://x", "spark.cores.max": "14"}, {},
            ("--conf spark.cores.max", 14, 4), ("--conf spark.cores.max", 14, 23), id="a cluster of spark's own",
        ),
    ],
)  # fmt: skip
def test_cores_are_said_as_their_service_counts_them(engine, properties, arguments, fewer, more):
    subject = Subject("job orders", 1000.0, arguments)
    [finding] = advise(on(engine, light, 3, **properties), subject).findings
    change = finding.change
    assert finding.kind == "idle-cores"
    assert finding.words.startswith("12 cores")
    assert change is not None
    assert (change.key, change.old, change.new) == fewer
    [finding] = advise(on(engine, full, 3, **properties), subject).findings
    found = [(each.key, each.old, each.new) for each in finding.changes]
    assert found == [*([] if more is None else [more]), ("maxOffsetsPerTrigger", 6000, found[-1][2])]


def test_threads_of_one_machine_are_its_master():
    made = replace(on("sandbox", full, 1), executors=(Executor("driver", 12, START, None, 0),))
    [finding] = advise(replace(made, properties={"spark.master": "local[12]"})).findings
    change = finding.changes[0]
    assert (change.key, change.old, change.new) == ("--master", "local[12]", "local[23]")
