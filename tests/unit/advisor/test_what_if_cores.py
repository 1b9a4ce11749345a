"""What-if changes of cores are stated in the service's unit: workers, executors or cores."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from millrace.advisor.advise import advise
from millrace.advisor.findings.advised_job_keys_and_cost import AdvisedJob, advised_environment_job
from millrace.advisor.forecasts.what_if import twin_of_application
from millrace.advisor.logs.application_history_model import Executor, History
from millrace.advisor.logs.event_log_to_history import read_history
from millrace.advisor.logs.event_logs import find_event_logs
from millrace.config import load
from millrace.sizing import plan
from tests.unit.advisor.event_log_writer import write
from tests.unit.advisor.healthy_query_history import START, batch, history, job, stage

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
    return replace(made, executors=tuple(Executor(str(n), 4, START, None) for n in range(executors)))


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
    subject = AdvisedJob("job orders", 1000.0, arguments)
    [finding] = advise(on(engine, light, 3, **properties), subject).findings
    change = finding.best_change
    assert finding.kind == "idle-cores"
    assert finding.words.startswith("12 cores")
    assert change is not None
    assert (change.key, change.old, change.new) == fewer
    [finding] = advise(on(engine, full, 3, **properties), subject).findings
    found = [(each.key, each.old, each.new) for each in finding.changes]
    assert found == [*([] if more is None else [more]), ("maxOffsetsPerTrigger", 6000, found[-1][2])]


def test_threads_of_one_machine_are_its_master():
    made = replace(on("local", full, 1), executors=(Executor("driver", 12, START, None),))
    [finding] = advise(replace(made, properties={"spark.master": "local[12]"})).findings
    change = finding.changes[0]
    assert (change.key, change.old, change.new) == ("--master", "local[12]", "local[23]")


def waves(number, begun):
    """Four tasks in two waves: the driver tells each end when the slot has its next task for two milliseconds."""
    at = stage(begun + 0.03, [0.9] * 4, [250] * 4, number, launched=[0, 0, 0.898, 0.898])
    return batch(number, begun, [job(number, [at])], left=500 * (number + 1))


def rest_of(tmp_path: Path, *gone: bytes) -> History:
    """The log as a service leaves it that deleted the first part; without events of some kinds."""
    lines = write(history(waves), tmp_path / "whole").read_bytes().splitlines(keepends=True)
    folder = tmp_path / "eventlog_v2_app"
    folder.mkdir()
    kept = [line for line in lines[4:] if not any(each in line for each in gone)]
    (folder / "events_2_app").write_bytes(b"".join(kept))
    return read_history(find_event_logs(str(folder))[0])


def test_of_a_log_whose_begin_is_gone_tasks_tell_the_cores(tmp_path):
    made = rest_of(tmp_path)
    assert (made.engine, made.cores, made.unread, made.lost) == ("spark", 2, 0, True)
    [executor] = made.executors
    assert (executor.id, executor.cores, executor.counted) == ("1", 2, True)
    advice = advise(made, AdvisedJob("Glue job orders", None, {"--number-of-workers": "2"}, "glue"))
    assert advice.history.engine == "glue"
    [finding] = advice.findings
    assert (finding.kind, finding.changes[0].key) == ("at-capacity", "--number-of-workers")
    assert (finding.changes[0].old, finding.changes[0].new) == (2, 3)
    assert "the log does not tell the cores of 1 of 1 executors" in " ".join(advice.notes)
    assert list(twin_of_application(made).queries) == ["orders"]


def test_without_any_task_nothing_is_said_of_cores(tmp_path):
    advice = advise(
        rest_of(tmp_path, b"SparkListenerTaskEnd"), AdvisedJob("Glue job orders", None, {}, "glue")
    )
    [finding] = advice.findings
    assert [each.key for each in finding.changes] == ["maxOffsetsPerTrigger"]
    assert "cores are not judged" in " ".join(advice.notes)
    environment = load("prod", root=Path(__file__).parents[3])
    subject = advised_environment_job(environment, plan(environment), "flights")
    assert subject.engine == environment.jobs["flights"].engine
    assert subject.changes_for(None, advice.history, "cores", 0, 1) == ()


def test_an_executor_that_came_again_is_there(tmp_path):
    log = write(history(), tmp_path / "local-1")
    lines = log.read_bytes().splitlines(keepends=True)
    removed = b'{"Event":"SparkListenerExecutorRemoved","Timestamp":1800000003000,"Executor ID":"%s"}\n'
    log.write_bytes(b"".join([*lines[:4], removed % b"9", removed % b"1", lines[1], *lines[4:]]))
    [executor] = read_history(find_event_logs(str(log))[0]).executors
    assert (executor.removed, executor.counted, executor.cores) == (None, False, 2)
    log.write_bytes(b"".join([*lines, removed % b"1"]))
    made = read_history(find_event_logs(str(log))[0])
    assert (made.executors[0].removed, made.unread) == (1_800_000_003.0, 0)
