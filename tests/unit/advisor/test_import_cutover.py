"""A later import of the same job updates its file, and prints the steps of the cut-over."""

from __future__ import annotations

import json
import re
import runpy
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from millrace.advisor.existing.environment_of_imported_job import environment_document
from millrace.advisor.existing.import_cutover import (
    StartPositionError,
    cut_over_steps,
    import_comment,
    is_imported_from,
    load_yaml_times_as_text,
    text_with_start_position,
)
from millrace.advisor.existing.read_job_to_import import RunningJob
from millrace.advisor.existing.stream_candidates_of_program import StreamAnswers
from millrace.advisor.programs.library_functions import LaunchArguments
from millrace.cli import app
from millrace.cli.plan.existing import import_job
from millrace.cli.plan.existing.import_job import _update_earlier_import_file
from millrace.cli.plan.existing.import_plans import environment_yaml
from millrace.config import ConfigurationError, load
from tests.unit.advisor.settings_of_program import NO_ARGUMENTS, settings_of_program
from tests.unit.advisor.test_job_import import EMR, ROOT, SCHEMA

AVRO = "pipelines/operations/schemas/bag_scan.avsc"
PLAIN = "\n".join(line for line in EMR.splitlines() if "security.protocol" not in line)
RUNNING = RunningJob(
    "glue:orders",
    "123456789012",
    "us-east-1",
    {"engine": "glue"},
    settings_of_program(PLAIN, LaunchArguments(("--topic", "orders"))),
)
DERIVE = """\
      mine: # by hand
        kind: derive
        source: orders_landed
        sink: {kind: iceberg, table: orders}
"""


def made(
    offsets: dict[int, int] | None, start: str = "2026-12-01T08:00:00Z", running: RunningJob = RUNNING
) -> dict[str, Any]:
    return environment_document(
        running, env="moved", project="moved", schema=SCHEMA, start=start, rate=800.0, record_size="1KiB",
        twin=None, offsets=offsets, partitions=2,
    )  # fmt: skip


def written(offsets: dict[int, int] | None) -> str:
    return f"{import_comment('glue:orders')}\n{environment_yaml(made(offsets))}{DERIVE}"


def begins(text: str, folder: Path) -> tuple[str, dict[int, int] | None]:
    """Where the query of a file begins, as the environment has it."""
    (folder / "orders.yaml").write_text(text)
    [job] = load(folder / "orders.yaml", root=ROOT).jobs.values()
    assert set(job.queries) == {"land-orders", "mine"}
    query = job.queries["land-orders"]
    return query.start, query.kafka.start_offsets


def test_offsets_of_the_final_log_take_the_place_of_the_first_ones(tmp_path: Path) -> None:
    first = written({0: 50, 1: 70})
    assert begins(first, tmp_path)[1] == {0: 50, 1: 70}
    text, changed = text_with_start_position(first, made({1: 700, 0: 500}))
    assert begins(text, tmp_path)[1] == {0: 500, 1: 700}
    assert (changed.key, changed.before, changed.after) == (
        "kafka.start_offsets",
        {0: 50, 1: 70},
        {0: 500, 1: 700},
    )
    assert text == first.replace("{0: 50, 1: 70}", "{0: 500, 1: 700}")


def test_offsets_take_the_place_of_a_moment_and_not_the_other_way_round(tmp_path: Path) -> None:
    text, changed = text_with_start_position(written(None), made({0: 5, 1: 7}))
    assert begins(text, tmp_path) == ("earliest", {0: 5, 1: 7})
    assert changed.before is None
    with pytest.raises(
        StartPositionError, match=r"--logs is missing: jobs\.orders\.queries\.land-orders has kafka"
    ):
        text_with_start_position(text, made(None))


def test_a_moment_without_quotes_is_told_as_it_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As docs/sources.md writes it; YAML takes it for a date, which JSON has not."""
    begun = written(None).replace("30000", "12000")  # of more, a batch would take too long
    plain = begun.replace("'2026-12-01T08:00:00Z'", "2026-11-23T00:00:00Z")
    assert "start: 2026-11-23T00:00:00Z\n" in plain
    file = tmp_path / "orders.yaml"
    _update_earlier_import_file(
        file,
        plain,
        made(None),
        "environments/orders.yaml",
        ROOT,
        [],
        ["step"],
        latency_is_given=False,
        as_json=True,
    )
    told = json.loads(capsys.readouterr().out)["begins"]
    assert (told["before"], told["after"]) == ("2026-11-23T00:00:00Z", "2026-12-01T08:00:00Z")
    assert file.read_text() == begun


def test_a_query_whose_settings_are_no_mapping_is_told_what_to_write() -> None:
    changed = written({0: 50, 1: 70}).replace("start_offsets: {0: 50, 1: 70}", "5")
    with pytest.raises(
        StartPositionError,
        match=r"the value above start_offsets is not a mapping of keys to values\); write it by hand",
    ):
        text_with_start_position(changed, made({0: 1, 1: 2}))


def test_many_partitions_stay_on_a_line() -> None:
    many = {partition: 10**12 + partition for partition in range(300)}
    text, _ = text_with_start_position(written(many), made({each: at + 1 for each, at in many.items()}))
    assert f"299: {10**12 + 300}}}" in text


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (("land-orders:", "landing:"), "still has the key jobs.orders.queries.land-orders"),
        (("{0: 50, 1: 70}", "\n            0: 50\n            1: 70"), "kafka.start_offsets: {0: 1, 1: 2} cannot be written below jobs"),
    ],
)  # fmt: skip
def test_a_file_that_was_written_over_is_told_what_to_write(changed: tuple[str, str], said: str) -> None:
    with pytest.raises(StartPositionError, match=re.escape(said)):
        text_with_start_position(written({0: 50, 1: 70}).replace(*changed), made({0: 1, 1: 2}))


def test_a_file_is_told_by_its_first_line() -> None:
    assert is_imported_from(f"{import_comment('glue:orders')}\nproject: p\n", "glue:orders")
    assert is_imported_from(import_comment("emr:app/run-1"), "emr:app/run-2")
    assert not is_imported_from(import_comment("glue:orders-2"), "glue:orders")
    assert not is_imported_from("project: p\n", "glue:orders")
    # Glue names a new job "Untitled job", and takes a slash.
    assert is_imported_from(f"{import_comment('glue:Untitled job')}\nproject: p\n", "glue:Untitled job")
    assert not is_imported_from(import_comment("glue:Untitled job"), "glue:Untitled")
    assert not is_imported_from(import_comment("glue:team/a"), "glue:team/b")


def test_a_slash_is_a_part_of_a_glue_job_s_name() -> None:
    jobs = [
        next(iter(made({0: 1}, running=replace(RUNNING, where=where))["jobs"]))
        for where in ("glue:team/a", "glue:team/b", "emr:00f1/00run", "glue:Untitled job")
    ]
    assert jobs == ["team-a", "team-b", "s-00f1", "untitled-job"]


@pytest.mark.parametrize("offsets", [{0: 50, 1: 70}, None])
def test_every_command_of_the_steps_is_one(offsets: dict[int, int] | None) -> None:
    steps = cut_over_steps(RUNNING, made(offsets), "orders", exact=offsets is not None)
    group: Any = typer.main.get_command(app)
    told = [shlex.split(each) for step in steps for each in re.findall(r"`millrace ([^`]+)`", step)]
    for verb, *rest in told:
        command = group.get_command(None, verb)
        known = {option for each in command.params for option in each.opts}
        assert {word for word in rest if word.startswith("--")} <= known
    verbs = [words for words in told if words[0] in ("deploy", "start")]
    # The new job begins a run only where the old one has told where it ended, or the moment has come.
    assert verbs[0] == ["deploy", "--env", "orders", "--stopped"]
    assert verbs[-1] == ["start", "--env", "orders", "orders"]
    if offsets is not None:
        place = {
            text: n
            for n, step in enumerate(steps)
            for text in ("stop glue:orders", "start --env")
            if text in step
        }
        assert place["stop glue:orders"] < place["start --env"]
        assert verbs[1] == ["deploy", "--env", "orders"]


@pytest.mark.parametrize("name", ["a/b", "../zz", "A", "x", ""])
def test_a_name_is_looked_at_before_it_is_a_path(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "environments").mkdir()
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["import", "glue:orders", "--name", name, "--schema", SCHEMA])
    assert done.exit_code != 0
    assert f"--name is {name}" in f"{done.output}{done.exception}"
    assert "2 to 40 lower-case letters" in f"{done.output}{done.exception}"
    assert [each.name for each in tmp_path.rglob("*")] == ["environments"]


BROKERS = "b-1.theirs.example:9092"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a schema, and a job whose program names neither its topic nor its brokers."""
    (tmp_path / "environments").mkdir()
    schema = tmp_path / SCHEMA
    schema.parent.mkdir(parents=True)
    schema.write_bytes((ROOT / SCHEMA).read_bytes())
    monkeypatch.chdir(tmp_path)

    def running(source: str, answers: StreamAnswers) -> RunningJob:
        text = "from settings import options\ns.readStream.format('kafka').options(**options()).load().writeStream.start()"
        return replace(RUNNING, where=source, program=settings_of_program(text, NO_ARGUMENTS, answers))

    monkeypatch.setattr(import_job, "_read_running_job", running)
    return tmp_path


def run(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["import", "glue:orders", "--name", "orders", *words])
    return done.exit_code, f"{done.output}{done.exception}"


def test_what_is_open_stands_in_the_file_until_an_option_tells_it(project: Path) -> None:
    file = project / "environments" / "orders.yaml"
    status, said = run("--start", "2026-12-01T08:00:00Z")
    assert status == 1
    for option in ("--topic NAME", "--brokers HOST:PORT,...", "--schema FILE", "--rate N", "--partitions N"):
        assert option in said
    with pytest.raises(ConfigurationError) as refused:
        load("orders", project)
    problems = [each for each in refused.value.problems if each.key != "kafka.theirs.authentication.kind"]
    keys = {each.key for each in problems}
    assert keys == {
        "kafka.theirs.bootstrap_servers",
        "kafka.theirs.authentication",
        "streams.orders.topic",
        "streams.orders.partitions",
        "streams.orders.traffic.records_per_second",
        "jobs.orders.queries.land-orders.schema",
    }
    assert all(
        file.read_text().splitlines()[each.line - 1].strip().startswith(each.key.rpartition(".")[2])
        for each in problems
    )
    # A second import fills what it knows now; what people wrote stays.
    file.write_text(file.read_text() + "tags: {team: orders} # by hand\n")
    status, said = run("--topic", "sales", "--brokers", BROKERS, "--rate", "800", "--json")
    assert status == 1
    told = json.loads(said[: said.rindex("}") + 1])
    assert told["filled"]["streams.orders.topic"] == "sales"
    assert set(told["open"]) == {"streams.orders.partitions", "jobs.orders.queries.land-orders.schema"}
    status, said = run("--topic", "sales", "--brokers", BROKERS, "--schema", SCHEMA, "--partitions", "6")
    assert (status, "open" in said) == (0, False)
    found = load("orders", project)
    [stream] = found.streams.values()
    assert (stream.topic, stream.partitions, found.tags) == ("sales", 6, {"team": "orders"})


CLUSTER = "arn:aws:kafka:us-east-1:123456789012:cluster/theirs/abcd1234-ab12-1"
SECRET = "arn:aws:secretsmanager:us-east-1:123456789012:secret:AmazonMSK_x-AbCdEf"


@pytest.mark.parametrize(
    ("port", "option", "left", "authentication"),
    [
        (9098, ("--cluster", CLUSTER), "kafka.theirs.arn", "iam"),
        (9096, ("--secret", SECRET), "kafka.theirs.authentication.secret", {"kind": "scram-sha-512", "secret": SECRET}),
        (9094, (), None, "tls"),
        (9093, (), "kafka.theirs.authentication", None),
    ],
)  # fmt: skip
def test_a_sign_in_is_open_until_the_brokers_are_known(
    port: int, option: tuple[str, ...], left: str | None, authentication: Any, project: Path
) -> None:
    file = project / "environments" / "orders.yaml"
    words = ("--schema", SCHEMA, "--partitions", "6", "--rate", "800", "--json")
    status, said = run(*words)
    told = json.loads(said[: said.rindex("}") + 1])
    assert (status, "kafka.theirs.authentication" in told["open"]) == (1, True)
    words = (*words, "--topic", "sales", "--brokers", f"b-1.theirs.example:{port}")
    status, said = run(*words)
    told = json.loads(said[: said.rindex("}") + 1])
    assert (status, list(told["open"])) == (int(left is not None), [left] * (left is not None))
    if authentication is None:
        return
    if option:
        assert run(*words, *option)[0] == 0
    cluster = load_yaml_times_as_text(file.read_text())["kafka"]["theirs"]
    assert cluster["authentication"] == authentication
    assert cluster.get("arn") == (CLUSTER if port == 9098 else None)
    load("orders", project)


def test_a_file_that_cannot_be_planned_is_there_to_be_corrected(project: Path) -> None:
    words = (
        "--topic",
        "sales",
        "--brokers",
        BROKERS,
        "--schema",
        SCHEMA,
        "--partitions",
        "6",
        "--rate",
        "800",
    )
    status, said = run(*words, "--latency", "1ms")
    assert status != 0
    assert "environments/orders.yaml" in said
    assert (project / "environments" / "orders.yaml").exists()


def test_a_schema_in_avro_is_one_of_avro_payloads(project: Path) -> None:
    words = ("--topic", "sales", "--brokers", BROKERS, "--partitions", "6", "--rate", "800")
    assert run(*words)[0] == 1
    (project / AVRO).parent.mkdir(parents=True, exist_ok=True)
    (project / AVRO).write_bytes((ROOT / AVRO).read_bytes())
    status, said = run(*words, "--schema", AVRO)
    assert status == 0, said
    [job] = load("orders", project).jobs.values()
    [query] = job.queries.values()
    assert (query.schema_, query.format.kind) == (AVRO, "avro")


def test_a_wrong_option_writes_nothing(project: Path) -> None:
    words = ("--topic", "sales", "--brokers", BROKERS, "--partitions", "6", "--rate", "800")
    status, said = run(*words, "--schema", "pipelines/none.ddl")
    assert (status != 0, "pipelines/none.ddl" in said) == (True, True)
    status, said = run(*words, "--schema", SCHEMA, "--record-size", "large")
    assert (status != 0, "record_size is large" in said) == (True, True)
    status, said = run("--stream", "a", "--topic", "b")
    assert (status != 0, "--stream is a; allowed: a Kinesis stream alone" in said) == (True, True)
    assert list((project / "environments").iterdir()) == []


@pytest.mark.parametrize(
    ("options", "note"),
    [
        (".option('maxOffsetsPerTrigger', 1000000)", "latency is 16m, as today's trigger and limit need it"),
        (
            ".option('maxOffsetsPerTrigger', 10)",
            "today's records_per_batch 10 is left to the plan, which refuses it",
        ),
    ],
)
def test_a_limit_beyond_the_default_sla_is_no_dead_end(
    options: str, note: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"{PLAIN.replace('.load()', f'{options}.load()').replace(',30000)', ')')}"
    text = text.replace('.option("maxOffsetsPerTrigger", 30000)', "").replace(
        '.trigger(processingTime="10 seconds")', ""
    )
    said = settings_of_program(text, LaunchArguments(("--topic", "orders")))
    monkeypatch.setattr(
        import_job, "_read_running_job", lambda source, _: replace(RUNNING, where=source, program=said)
    )
    status, printed = run("--schema", SCHEMA, "--partitions", "4", "--rate", "200")
    assert (status, note in printed) == (0, True), printed


SEVERAL = """
df = s.readStream.format("kafka").option("kafka.bootstrap.servers", "b-1:9092").option("subscribe", "orders").load()
def saveBatch(rows, number):
    # one of theirs
    rows.write.option("password", "hunter2hunter2").jdbc(url, "orders")
df.writeStream.foreachBatch(saveBatch).start()
df.writeStream.format("console").start()
"""


def test_a_batch_function_becomes_a_derive_query_of_a_transform_to_be_finished(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = settings_of_program(SEVERAL)
    assert "line 7: what it prints, and keeps nowhere, is left out" in said.notes
    monkeypatch.setattr(
        import_job, "_read_running_job", lambda source, _: replace(RUNNING, where=source, program=said)
    )
    words = ("--schema", SCHEMA, "--partitions", "4", "--rate", "200", "--start", "2026-12-01T08:00:00Z")
    status, printed = run(*words)
    assert (status, "wrote pipelines/orders/imported.py" in printed) == (0, True), printed
    [job] = load("orders", project).jobs.values()
    assert {name: getattr(each, "transform", None) for name, each in job.queries.items()} == {
        "land-orders": None,
        "derive-save-batch": "pipelines.orders.imported:save_batch",
    }
    file = project / "pipelines" / "orders" / "imported.py"
    text = file.read_text()
    assert "# The program makes them in line 6, 3 to 5.\n" in text
    assert "hunter2" not in text
    names = runpy.run_path(str(file))
    with pytest.raises(NotImplementedError, match="line 3 of the program"):
        names["save_batch"](None)
    # What people wrote into it stays.
    file.write_text(text + "# by hand\n")
    (project / "environments" / "orders.yaml").unlink()
    assert run(*words)[0] == 0
    assert file.read_text().endswith("# by hand\n")


def test_an_sla_is_fitted_to_the_trigger_also_where_a_later_import_fills_the_last_open_line(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"{TWICE}.trigger(processingTime='10 minutes').start()"
    said = settings_of_program(text)
    monkeypatch.setattr(
        import_job, "_read_running_job", lambda source, _: replace(RUNNING, where=source, program=said)
    )
    words = ("--schema", SCHEMA, "--rate", "200")
    assert run(*words)[0] == 1
    file = project / "environments" / "orders.yaml"
    first = file.read_text()
    assert first.count("(open) no event log shows how many it has; give it with --partitions N") == 2
    assert run(*words, "--partitions", "4", "--start", "2026-12-01T08:00:00Z")[0] == 0
    found = load("orders", project)
    assert {each.start for each in found.jobs["orders"].queries.values() if each.kind == "land"} == {
        "2026-12-01T08:00:00Z"
    }
    assert first.partition("streams:")[0] == file.read_text().partition("streams:")[0]


TWICE = """
r = s.readStream.format("kafka").option("kafka.bootstrap.servers", "b-1:9092")
df = r.option("subscribe", "orders,payments").load()
df.groupBy("key").count().writeStream.format("kafka")"""
