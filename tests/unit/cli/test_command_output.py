"""The command as a process: output, error stream, exit status."""

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache, partial
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.table import Table
from rich.text import Text
from typer.main import get_command
from typer.testing import CliRunner

from millrace.cli import app, main
from millrace.cli.shared.console import figure_columns, plain_table, print_rich, word_columns
from millrace.config import environment_names, load
from millrace.config.environment_json_schema import schema_text
from millrace.config.formats import KINDS, ddl
from millrace.sizing import plan, total_cost
from millrace.sizing.readable_numbers import dollars

ROOT = Path(__file__).parents[3]
NAMES = environment_names(ROOT)


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


def millrace(*arguments: str, cwd: Path = ROOT) -> Done:
    """Run in this process, as a pipe would see it; a process of its own costs half a second."""
    out, err = StringIO(), StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        patch.chdir(cwd)
        patch.setattr(sys, "argv", ["millrace", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
    return Done(int(ended.value.code or 0), out.getvalue(), err.getvalue())


@cache
def printed_plan(name: str) -> Done:
    """The plan of an environment as a pipe gets it: several tests read the same page."""
    return millrace("plan", "--env", name)


def in_terminal(columns: int, *arguments: str) -> str:
    """Run in a pseudo-terminal and return what it shows, without colours."""
    outer, inner = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "millrace", *arguments],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": str(columns), "TERM": "xterm-256color"},
        stdin=subprocess.DEVNULL,
        stdout=inner,
        stderr=inner,
    )
    os.close(inner)
    shown = b""
    while True:
        try:
            part = os.read(outer, 65536)
        except OSError:  # the other end has closed
            break
        if not part:
            break
        shown += part
    os.close(outer)
    process.wait(timeout=60)
    return re.sub(r"\x1b\[[0-9;]*m", "", shown.decode())


@pytest.mark.parametrize("name", NAMES)
def test_a_pipe_gets_plain_whole_lines(name: str) -> None:
    done = printed_plan(name)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert not set("─│╭╰…") & set(done.stdout)
    assert all(line == line.rstrip() for line in done.stdout.splitlines())
    found = plan(load(name, root=ROOT))
    verdict, cost = done.stdout.splitlines()[:2]
    assert verdict.startswith(f"VERDICT  {load(name, root=ROOT).project}-{name}  ")
    assert re.match(rf"  cost   ~?{re.escape(dollars(total_cost(found).value))} a month, ", cost)
    assert re.search(rf"^  total .*\${total_cost(found).value:,.2f} ", done.stdout, re.MULTILINE)
    assert found.prices.isoformat() in done.stdout
    for job in found.jobs.values():
        assert job.cores.why in done.stdout
        for query in job.queries.values():
            row = next(line for line in done.stdout.splitlines() if line.split()[:1] == [query.name])
            if query.records_per_batch is not None:
                assert f"{query.records_per_batch.value:,}" in row
    for stream in found.streams.values():
        assert stream.expected_partitions.why in done.stdout


@pytest.mark.parametrize("columns", [60, 120])
def test_a_terminal_shows_every_text_whole(columns: int) -> None:
    ways = json.loads(millrace("compare", "--env", "minimal", "--json").stdout)
    shown = in_terminal(columns, "compare", "--env", "minimal")
    assert max(len(line.rstrip()) for line in shown.splitlines()) <= columns
    assert "…" not in shown
    if columns == 60:
        flat = " ".join(shown.split())
        assert all(text in flat for each in ways for text in (each["name"], each["price"], each["lacks"]))


@pytest.mark.slow
@pytest.mark.parametrize("columns", [80, 120])
def test_a_terminal_shows_every_number_whole(columns: int) -> None:
    shown = in_terminal(columns, "plan", "--env", "prod")
    lines = [line.rstrip("\r") for line in shown.split("\n")]
    assert max(map(len, lines)) <= columns
    assert "…" not in shown
    found = plan(load("prod", root=ROOT))
    for stream in found.streams.values():
        row = next(line for line in lines if line.startswith(stream.name))
        assert f"{stream.expected_partitions.value:,}" in row
    for job in found.jobs.values():
        assert f"{sum(item.usd for item in job.cost):,.2f}" in shown
        for query in job.queries.values():
            if query.records_per_partition is not None:
                assert f"{query.records_per_partition.value:,}" in shown


def test_guesses_and_pins_are_marked() -> None:
    shown = printed_plan("local").stdout
    assert re.search(r"^ +departures +kinesis provisioned +~2 ", shown, re.MULTILINE)
    assert re.search(r"^ +flights +kafka topic +=4 ", shown, re.MULTILINE)
    assert "~ rests on a rate that nobody measured" in shown
    measured = printed_plan("prod").stdout
    assert re.search(r"^ +positions +kinesis provisioned +23 ", measured, re.MULTILINE)


def test_json_for_scripts() -> None:
    document = json.loads(millrace("plan", "--env", "prod", "--json").stdout)
    found = plan(load("prod", root=ROOT))
    assert document["total"]["value"] == pytest.approx(total_cost(found).value)
    assert document["jobs"].keys() == found.jobs.keys()
    assert document["verdict"].keys() == {"subject", "cost", "sla", "risks", "next"}
    assert document["verdict"]["cost"]["usd_month"] == pytest.approx(total_cost(found).value)


def test_a_mistake_is_one_message_and_status_2(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text((ROOT / "environments/minimal.yaml").read_text().replace("engine: glue", "engin: glue"))
    said = {
        "plan": "jobs.clicks.engin is unknown, glue; allowed",
        "validate": "jobs.clicks.engine is (missing); allowed: glue or emr",
    }
    for verb, message in said.items():
        done = millrace(verb, "--env", str(bad))
        assert done.returncode == 2
        assert done.stdout == ""
        assert "Traceback" not in done.stderr
        assert message in done.stderr


def test_the_demo_knows_the_lines_that_there_are() -> None:
    done = millrace("demo", "--spark", "4.7")
    assert done.returncode == 2
    assert "one of 3.5, 4.0, 4.1" in done.stderr


def test_an_unknown_environment_is_status_2() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "millrace", "plan", "--env", "pord"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == (
        "environments/pord.yaml: no environment 'pord'; "
        "allowed: one of dev, local, minimal, prod (did you mean prod?)\n"
    )


def test_a_terminal_shows_problems_as_blocks(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text((ROOT / "environments/minimal.yaml").read_text().replace("kind: land", "kind: lend"))
    shown = in_terminal(100, "validate", "--env", str(bad))
    assert "did you mean land?" in shown
    assert "1 problem; nothing was started or deployed." in shown


def test_validate_says_what_it_saw() -> None:
    assert millrace("validate", "--env", "prod", "--no-spark").stdout == "prod is valid: 6 streams, 5 jobs\n"


def test_validate_warns_of_a_schema_that_takes_every_object() -> None:
    form, fields = KINDS["json"](kind="json"), ddl.parse_ddl("a INT, b STRING")
    assert [each.partition(",")[0] for each in form.schema_advice(fields)] == ["no field is NOT NULL"]
    assert list(form.schema_advice(ddl.parse_ddl("a INT, b STRING NOT NULL"))) == []
    assert millrace("validate", "--env", "prod", "--no-spark").stderr == ""


def test_schema_prints_and_writes(tmp_path: Path) -> None:
    assert millrace("schema").stdout == schema_text()
    (tmp_path / "environments").mkdir()
    assert millrace("schema", "--write", cwd=tmp_path).stdout == "wrote environments/schema.json\n"
    assert (tmp_path / "environments/schema.json").read_text() == schema_text()


def test_names_are_found_from_a_folder_below() -> None:
    assert millrace("validate", "--env", "dev", "--no-spark", cwd=ROOT / "pipelines").returncode == 0


@pytest.mark.parametrize("verb", ["plan", "schema"])
def test_help_teaches_with_examples(verb: str) -> None:
    shown = millrace(verb, "--help").stdout
    assert f"millrace {verb}" in shown
    assert "Examples" in shown


def test_deciding_loads_neither_spark_nor_cdk() -> None:
    program = (
        "import sys, millrace.cli, millrace.config, millrace.sizing, millrace.cli.plan.plan_tables\n"
        "millrace.sizing.plan(millrace.config.load('prod'))\n"
        "heavy = {'pyspark', 'aws_cdk', 'boto3', 'pandas', 'pyarrow', 'confluent_kafka'}\n"
        "print(sorted(heavy & {name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_a_command_imports_no_other() -> None:
    program = (
        "import atexit, sys; from millrace.cli import main; sys.argv = ['millrace', 'validate', '--env', 'minimal', '--no-spark']\n"
        "atexit.register(lambda: print(sorted(name for name in sys.modules if name.startswith('millrace.cli.'))))\n"
        "main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "millrace.cli.plan.plan_and_validate" in done.stdout
    for other in ("run", "watch", "repair", "plan.simulate", "plan.existing"):
        assert f"millrace.cli.{other}" not in done.stdout


def _commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield words, command
    for name in getattr(command, "commands", ()):
        yield from _commands(command.get_command(None, name), (*words, name))


def test_help_in_60_columns_has_each_command_and_option_whole_before_its_explanation() -> None:
    seen = 0
    for words, command in _commands(get_command(app)):
        shown = (
            CliRunner(env={"COLUMNS": "60", "TERMINAL_WIDTH": "60"}).invoke(app, [*words, "--help"]).stdout
        )
        lines = re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines()
        assert max(map(len, lines)) <= 60, words
        options = [each.opts[0] for each in command.params if each.opts[0].startswith("--")]
        for name in (*getattr(command, "commands", ()), *options):
            row = next(
                (each for each in lines if re.match(rf"│ (\*| )? *{re.escape(name)}(,| |$)", each)), ""
            )
            assert re.search(rf"{re.escape(name)}.*  \S", row), (words, name, shown)
            seen += 1
    assert seen > 250


@pytest.mark.parametrize("name", NAMES)
def test_a_plan_counts_executors_once_and_in_the_singular(name: str) -> None:
    shown = printed_plan(name).stdout
    assert " executor" in shown
    assert not re.search(r"(\b\d+) to ~?\1 executor|\b(?<! to )~?1 executors", shown)


@pytest.mark.parametrize("last", ["漢字", "two\nlines", "[bold]marked[/bold] \\[not]", ":smile:", ""])
def test_a_table_in_a_pipe_is_as_rich_writes_it(last: str) -> None:
    written = []
    for made in (plain_table, partial(Table, box=None, pad_edge=False, padding=(0, 2))):
        table = made(*word_columns("name"), *figure_columns("$"), *word_columns(""))
        table.add_row("clicks", "12,345.00", last)
        table.add_section()
        table.add_row(Text("a longer name", "bold"), "7", "–")
        print_rich(table, stream=(stream := StringIO()))
        written.append(stream.getvalue())
    assert written[0] == written[1]
    assert "a longer name" in written[0]
