"""Each move of ``millrace plan``, applied to the file, gives the cost that was printed."""

from __future__ import annotations

import itertools
import re
import shutil
from collections.abc import Sequence
from html import unescape
from pathlib import Path

import pytest
from typer.testing import CliRunner

from millrace.cli.app import app
from millrace.cli.plan.plan_and_validate import (
    environment_with_scaled_traffic,
    plan_keeps_all_slas,
    simulated_plan_with_warnings,
)
from millrace.cli.plan.report.apply_cost_saving_moves import write_moves_into_files
from millrace.cli.plan.report.plan_document import plan_document
from millrace.cli.plan.report.plan_verdict import plan_verdict
from millrace.cli.shared.html_pages import html_page
from millrace.config import ConfigurationError, Environment, load
from millrace.config.engines import KINDS
from millrace.config.formats import KINDS as FORMATS
from millrace.config.formats.change_format_base import ChangeFormat
from millrace.sizing import Plan, cost_saving_moves, plan, total_cost
from millrace.sizing.cost_saving_moves import (
    MOST,
    CostSavingMove,
    environment_with_cheapest_engines,
    find_moves,
)
from tests.page_without_browser import drawn
from tests.reference_environments import FILES, loaded_with_moves, planned_with_moves, table

ROOT = Path(__file__).parents[3]
ENVIRONMENTS = [*FILES, *(ROOT / "environments" / f"{name}.yaml" for name in ("dev", "minimal", "prod"))]


def project(folder: Path, file: Path) -> Path:
    """A copy of the project's inputs with one more environment, and that environment's file."""
    for name in ("environments", "pipelines"):
        shutil.copytree(ROOT / name, folder / name)
    return Path(shutil.copy(file, folder / "environments" / file.name))


@pytest.mark.parametrize(
    "file",
    [
        pytest.param(
            file, id=file.stem, marks=[pytest.mark.slow] if "many" in file.stem or "40" in file.stem else []
        )
        for file in ENVIRONMENTS
    ],
)
def test_each_gives_its_dollars_to_the_cent(tmp_path: Path, file: Path) -> None:
    environment, before, moves = loaded_with_moves(file)
    assert plan_keeps_all_slas(environment, before)
    assert 0 < len(moves) <= MOST
    assert [each.saved for each in moves] == sorted((each.saved for each in moves), reverse=True)
    shown = page_of(environment, before, moves)
    for number, each in enumerate(moves, start=1):
        place = shown.index(f">{number}. {each.key}")
        for said in (f">${each.usd:,.2f}<", f">${each.saved:,.2f}<", f">{each.gives_up}<"):
            place = shown.index(said, place)
    for number, each in enumerate(moves, start=1):
        folder = tmp_path / str(number)
        copy = project(folder, file)
        text = copy.read_text(encoding="utf-8")
        write_moves_into_files(load(copy, folder), moves, str(number))
        after = load(copy, folder)
        again = plan(after)
        assert round(total_cost(again).value, 2) == round(each.usd, 2)
        assert round(total_cost(before).value - each.saved, 2) == round(each.usd, 2)
        assert plan_keeps_all_slas(after, again)
        comments = re.findall(r"#.*", copy.read_text(encoding="utf-8"))
        lost = set(re.findall(r"#.*", text)) - set(comments)
        assert len(lost) <= (each.new is None), "a key that is removed takes the comment on its line with it"


def page_of(environment: Environment, sized: Plan, moves: Sequence[CostSavingMove]) -> str:
    """The plan's HTML page as it is drawn."""
    found = simulated_plan_with_warnings(environment, sized)
    return unescape(drawn(html_page("plan", "plan", plan_document(found, plan_verdict(found), moves))))


def test_jobs_without_an_sla_have_moves(tmp_path: Path) -> None:
    """Nothing is promised, and a move still lets no backlog grow."""
    (file,) = [each for each in FILES if each.stem == "logs"]
    copy = project(tmp_path / "project", file)
    text, changed = re.subn(r"latency: .*", "goal: throughput", copy.read_text(encoding="utf-8"))
    assert changed == 1
    copy.write_text(text, encoding="utf-8")
    environment = load(copy, tmp_path / "project")
    now, moves = planned_with_moves(environment)
    assert plan_verdict(simulated_plan_with_warnings(environment, now)).sla.state == "unknown"
    assert any(each.saved > 1000 for each in moves)


SMALL = """\
project: shape
account: "111122223333"
streams:
{streams}
jobs:
{jobs}
"""
STREAM = "  s{n}: {{kind: kinesis, traffic: {{records_per_second: 50, record_size: 1KiB, basis: measured}}}}"
JOB = """\
  j{n}:  # of team {n}
    engine: glue
    latency: {latency}
    rate: {{records_per_second_per_core: 5000, batch_overhead: 2s, basis: measured}}
    queries:
      land-{n}:
        kind: land
        source: s{n}
        table: t{n}
        schema: pipelines/clicks/schemas/click.ddl
"""


def test_a_move_to_provisioned_tells_what_a_deployed_stream_keeps(tmp_path: Path) -> None:
    stream = STREAM.format(n=1).replace("kind: kinesis", "kind: kinesis, mode: on-demand")
    file = tmp_path / "small.yaml"
    file.write_text(SMALL.format(streams=stream, jobs=JOB.format(n=1, latency="5m")))
    environment = load(project(tmp_path / "project", file), tmp_path / "project")
    moves = {each.key: each.gives_up for each in find_moves(environment, plan(environment), lambda *_: True)}
    given_up = moves["streams.s1.mode"]
    assert "keeps those that are open" in given_up
    assert "two changes of mode in 24 hours" in given_up


def test_small_jobs_that_are_alike_become_one(tmp_path: Path) -> None:
    """The job with another SLA stays; the two others cost what one file with their queries in one job costs."""
    jobs = [JOB.format(n=n, latency="5m" if n < 3 else "6m") for n in range(1, 4)]
    file = tmp_path / "small.yaml"
    file.write_text(
        SMALL.format(streams="\n".join(STREAM.format(n=n) for n in range(1, 4)), jobs="".join(jobs))
    )
    folder = tmp_path / "project"
    copy = project(folder, file)
    environment = load(copy, folder)
    moves = planned_with_moves(environment)[1]
    (place,) = [number for number, move in enumerate(moves, start=1) if move.with_it]
    write_moves_into_files(environment, moves, str(place))
    after = load(copy, folder)
    assert {name: {*job.queries} for name, job in after.jobs.items()} == {
        "j1": {"land-1", "land-2"},
        "j3": {"land-3"},
    }
    assert after.jobs["j1"].queries["land-2"] == environment.jobs["j2"].queries["land-2"]
    assert round(total_cost(plan(after)).value, 2) == round(moves[place - 1].usd, 2)
    assert "# of team 1" in copy.read_text()


def test_readers_of_one_stream_fan_out_together(tmp_path: Path) -> None:
    file = tmp_path / "environments" / "shop.yaml"
    file.parent.mkdir()
    shutil.copytree(ROOT / "pipelines", tmp_path / "pipelines")
    jobs = "".join(JOB.format(n=n, latency="2m") for n in range(3)).replace("source: s1", "source: s0")
    text = SMALL.format(
        streams=STREAM.format(n=0), jobs=jobs.replace("source: s2", "source: s0\n        fan_out: false")
    )
    file.write_text(text.replace("records_per_second: 50,", "records_per_second: 3000,"), encoding="utf-8")
    before = load(file, tmp_path)
    moves = planned_with_moves(before)[1]
    keys = {f"jobs.j{n}.queries.land-{n}.fan_out" for n in range(3)}
    (number,) = [n for n, each in enumerate(moves, start=1) if each.key in keys]
    write_moves_into_files(before, moves, str(number))
    after = load(file, tmp_path)
    assert all(query.uses_fan_out for _, _, query in after.queries)
    assert total_cost(plan(after)).value == pytest.approx(moves[number - 1].usd)
    assert moves[number - 1].saved > 50


@pytest.mark.slow
def test_the_documents_table_is_what_is_planned() -> None:
    assert "\n".join(table()) in (ROOT / "docs/plan.md").read_text(encoding="utf-8")


def test_two_are_written_together_and_a_wrong_number_is_none(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    copy = project(folder, ROOT / "environments" / "minimal.yaml")
    environment = load(copy, folder)
    moves = planned_with_moves(environment)[1]
    for wrong in ("0", "1,9", "", "one"):
        with pytest.raises(ConfigurationError, match="--apply"):
            write_moves_into_files(environment, moves, wrong)
    write_moves_into_files(environment, moves, "1, 2")
    now = load(copy, folder)
    assert total_cost(plan(now)).value < min(each.usd for each in moves)


def test_a_move_of_a_file_without_engine_writes_the_one_it_was_planned_with(tmp_path: Path) -> None:
    """By itself the plan would choose EMR for the looser SLA, as the bill of runs on Glue is unproven."""
    job = JOB.format(n=1, latency="15m\n    run: auto").replace("    engine: glue\n", "")
    text = SMALL.format(streams=STREAM.format(n=1), jobs=job).replace("_second: 50", "_second: 9000")
    file = tmp_path / "small.yaml"
    file.write_text(text)
    folder = tmp_path / "project"
    copy = project(folder, file)
    before = copy.read_text()
    environment = environment_with_cheapest_engines(
        load(copy, folder, open_engines=True), plan_keeps_all_slas
    )
    moves = planned_with_moves(environment)[1]
    assert len(moves) > 2
    for number, move in enumerate(moves, start=1):
        copy.write_text(before)
        write_moves_into_files(environment, moves, str(number))
        assert round(total_cost(plan(load(copy, folder))).value, 2) == round(move.usd, 2)


def test_moves_that_exclude_each_other_are_refused(tmp_path: Path) -> None:
    job = JOB.format(n=1, latency="5m").replace("engine: glue", "engine: emr")
    file = tmp_path / "small.yaml"
    file.write_text(
        SMALL.format(streams=STREAM.format(n=1), jobs=job).replace("_second: 50", "_second: 9000")
    )
    folder = tmp_path / "project"
    copy = project(folder, file)
    environment = load(copy, folder)
    moves = planned_with_moves(environment)[1]
    keys = [move.key for move in moves]
    glue, arm = (str(keys.index(f"jobs.j1.{key}") + 1) for key in ("engine", "architecture"))
    before = copy.read_text()
    with pytest.raises(ConfigurationError, match=r"jobs\.j1\.architecture"):
        write_moves_into_files(environment, moves, f"{glue},{arm}")
    assert copy.read_text() == before


@pytest.mark.parametrize(
    "other", [["--json"], ["--html", "plan.html"], ["--traffic", "2"], ["--explain", "usd"]]
)
def test_moves_are_written_alone(other: list[str]) -> None:
    done = CliRunner().invoke(app, ["plan", "--env", "minimal", "--apply", "1", *other])
    assert isinstance(done.exception, ConfigurationError)
    assert f"without {other[0]}" in str(done.exception)


def test_double_traffic_is_the_file_with_double_traffic(tmp_path: Path) -> None:
    copy = project(tmp_path / "project", ROOT / "environments" / "minimal.yaml")
    doubled = environment_with_scaled_traffic(load(copy, copy.parents[1]), 2)
    copy.write_text(copy.read_text().replace("records_per_second: 800", "records_per_second: 1600"))
    written = load(copy, copy.parents[1])
    assert total_cost(plan(doubled)).value == pytest.approx(total_cost(plan(written)).value)


@pytest.mark.parametrize(
    ("keys", "engine"),
    [("", "glue"), ("architecture: x86_64", "emr"), ("worker: {vcpu: 4, memory: 16GiB}", "emr")],
)
def test_an_engine_that_is_left_out_is_the_cheaper_one_whose_keys_fit(
    tmp_path: Path, keys: str, engine: str
) -> None:
    copy = project(tmp_path / "project", ROOT / "tests" / "reference" / "devices.yaml")
    text, folder = copy.read_text(), copy.parents[1]
    copy.write_text(text.replace("    engine: emr\n", f"    {keys}\n" * bool(keys)))
    with pytest.raises(ConfigurationError, match=r"engine is \(missing\).*`millrace plan` takes the cheaper"):
        load(copy, folder)
    environment = environment_with_cheapest_engines(
        load(copy, folder, open_engines=True), plan_keeps_all_slas
    )
    sized, moves = planned_with_moves(environment)
    usd = {
        each: total_cost(
            plan(load(copy, folder, {copy: text.replace("engine: emr", f"engine: {each}\n    {keys}")}))
        ).value
        for each in ("glue", "emr")[keys != "" :]
    }
    assert environment.jobs["readings"].engine == min(usd, key=usd.__getitem__) == engine
    first, *_ = moves
    assert (first.key, first.new, first.usd) == ("jobs.readings.engine", engine, total_cost(sized).value)
    write_moves_into_files(environment, moves, "1")
    assert round(total_cost(plan(load(copy, folder))).value, 2) == round(min(usd.values()), 2)


def test_bounded_runs_are_on_emr_until_their_bill_on_glue_is_proven(tmp_path: Path) -> None:
    copy = project(tmp_path / "project", ROOT / "tests" / "reference" / "archive.yaml")
    text, folder = (
        copy.read_text().replace("records_per_second: 4000", "records_per_second: 200"),
        copy.parents[1],
    )
    on_glue = load(copy, folder, {copy: text.replace("run: auto", "run: bounded")})
    assert plan(on_glue).jobs["events"].run is not None
    copy.write_text(text.replace("    engine: glue\n", "").replace("run: auto", "run: bounded"))
    chosen = environment_with_cheapest_engines(load(copy, folder, open_engines=True), plan_keeps_all_slas)
    assert chosen.jobs["events"].engine == "emr"
    assert total_cost(plan(chosen)).value > total_cost(plan(on_glue)).value, "dollars alone would choose Glue"


def test_engines_of_several_jobs_are_chosen_together(tmp_path: Path) -> None:
    """No pair of engines costs less, and one move writes both."""
    text = SMALL.format(
        streams="\n".join(STREAM.format(n=n) for n in (1, 2)),
        jobs="".join(JOB.format(n=n, latency="5m") for n in (1, 2)),
    )
    file = tmp_path / "small.yaml"
    file.write_text(text.replace("    engine: glue\n", ""))
    copy = project(tmp_path / "project", file)
    environment = environment_with_cheapest_engines(
        load(copy, copy.parents[1], open_engines=True), plan_keeps_all_slas
    )
    moves = planned_with_moves(environment)[1]
    write_moves_into_files(environment, moves, "1")
    usd = {}
    for first, second in itertools.product(KINDS, repeat=2):
        start, middle, end = text.split("engine: glue")
        other = f"{start}engine: {first}{middle}engine: {second}{end}"
        usd[first, second] = total_cost(plan(load(copy, copy.parents[1], {copy: other}))).value
    assert total_cost(plan(load(copy, copy.parents[1]))).value == pytest.approx(min(usd.values()))


@pytest.mark.parametrize(("tier", "copies"), [("standard", True), ("serverless", False)])
def test_two_zones_give_up_no_copy_that_aws_keeps(tmp_path: Path, tier: str, copies: bool) -> None:
    file = tmp_path / "environments" / "zones.yaml"
    file.parent.mkdir()
    shutil.copytree(ROOT / "pipelines", tmp_path / "pipelines")
    file.write_text(f"""
project: zones
account: "111122223333"
kafka:
  main: {{kind: msk, tier: {tier}}}
streams:
  clicks:
    kind: kafka
    cluster: main
    existing: true
    partitions: 6
    traffic: {{records_per_second: 100, record_size: 1KiB, basis: measured}}
jobs:
  clicks:
    engine: glue
    latency: 60s
    queries:
      land: {{kind: land, source: clicks, table: landed, schema: pipelines/clicks/schemas/click.ddl}}
""")
    environment = load(file, tmp_path)
    moves = planned_with_moves(environment)[1]
    (zones,) = (each for each in moves if each.key == "network.availability_zones")
    assert ("copy" in zones.gives_up) == copies


BUSY = SMALL.format(
    streams="\n".join(STREAM.format(n=n).replace("second: 50", "second: 300") for n in (1, 2)),
    jobs=JOB.format(n=1, latency="15m"),
)
WRITES = """\
      send:
        kind: derive
        source: t1
        sink: {kind: kinesis, stream: s2}
        dead_letters: letters
"""


def keys_of_moves(tmp_path: Path, text: str) -> list[str]:
    """The keys of all moves of a file that save something, each planned, none simulated."""
    file = tmp_path / "busy.yaml"
    file.write_text(text)
    environment = load(file, ROOT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cost_saving_moves, "MOST", 100)
        return [each.key for each in find_moves(environment, plan(environment), lambda *_: True)]


def test_aggregates_and_bursts_are_not_offered_for_a_stream_that_a_sink_writes(tmp_path: Path) -> None:
    """The sink puts each row as a record; a bounded run would put all that waited at once."""
    alone, written = (keys_of_moves(tmp_path, text) for text in (BUSY, BUSY + WRITES))
    assert {"streams.s1.aggregate", "streams.s2.aggregate", "jobs.j1.run"} <= {*alone}
    assert "streams.s1.aggregate" in written
    assert not {"streams.s2.aggregate", "jobs.j1.run"} & {*written}


def test_aggregates_of_a_stream_that_a_sink_writes_are_refused_with_all_other_mistakes(
    tmp_path: Path,
) -> None:
    file = tmp_path / "busy.yaml"
    aggregate = STREAM.format(n=2)[:-1] + ", aggregate: 24KiB, retention: 1h}"
    file.write_text(
        (BUSY + WRITES).replace(STREAM.format(n=2).replace("second: 50", "second: 300"), aggregate)
    )
    with pytest.raises(ConfigurationError) as refused:
        load(file, ROOT)
    assert {(each.key, each.value, each.line) for each in refused.value.problems} == {
        ("streams.s2.aggregate", "24576B", 5),
        ("streams.s2.retention", "1h", 5),
    }
    assert "jobs.j1.queries.send.sink writes the stream: it puts each row as a record" in str(refused.value)


@pytest.mark.parametrize("kind", [name for name, each in FORMATS.items() if issubclass(each, ChangeFormat)])
def test_aggregates_are_not_offered_for_changes_of_a_database(tmp_path: Path, kind: str) -> None:
    """DMS and Debezium put each change as a record."""
    changes = keys_of_moves(tmp_path, BUSY.rstrip() + f"\n        format: {{kind: {kind}}}\n")
    assert "streams.s1.aggregate" not in changes
    assert "streams.s2.aggregate" in changes
