"""Every command in README and docs is parsed; those that need no account and no recursion are run."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
import typer.main
from typer import BadParameter
from typer.testing import CliRunner

from millrace.cli import app
from millrace.cli.plan.init_project import new_project_texts_by_path
from millrace.config import environment_names
from millrace.sandbox.programs.toolchain import node_bin_folder

UsageError = BadParameter.__mro__[1]  # typer carries its command-line library within itself
ROOT = Path(__file__).parents[3]
BLOCK = re.compile(r"^```(?:console|sh|bash)\n(.*?)^```", re.M | re.S)
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
FENCED = re.compile(r"^```.*?^```", re.M | re.S)
INDENTED = re.compile(r"^ {4}((?:make|millrace|cdk|python -m|pytest) (?:.*\\\n)*.*)$", re.M)
SPAN = re.compile(r"`((?:make|millrace|cdk|python -m|pytest) [^`]+)`")
CDK_VERBS = {"synth", "deploy", "diff", "destroy", "bootstrap", "list", "rollback"}


@dataclass(frozen=True)
class Command:
    file: str
    text: str

    @property
    def words(self) -> list[str]:
        return shlex.split(self.text, comments=True)

    def __str__(self) -> str:
        return f"{self.file}: {self.text}"


def commands() -> list[Command]:
    found = []
    for path in [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "SECURITY.md",
        *sorted((ROOT / "docs").rglob("*.md")),
    ]:
        text = path.read_text()
        # In a block with prompts only the lines behind a prompt are commands; the rest is what they print.
        for block in BLOCK.findall(text):
            lines = block.replace("\\\n", " ").splitlines()
            prompted = [line[2:] for line in lines if line.startswith("$ ")]
            found += [
                Command(path.name, line)
                for line in (prompted or lines)
                if line.strip() and not line.startswith("#")
            ]
        for line in INDENTED.findall(FENCED.sub("", text)):
            found.append(Command(path.name, line.replace("\\\n", " ")))
        # Commands in running text and tables.
        found += [Command(path.name, span) for span in SPAN.findall(text)]
    return sorted(set(found), key=str)


COMMANDS = commands()


def strip_assignments(words: list[str]) -> list[str]:
    while words and re.match(r"^[A-Z_]+=", words[0]):
        words = words[1:]
    return words


def parse(command: Command) -> None:
    """Fail where a command would not be understood by the program it calls."""
    words = strip_assignments(command.words)
    program, arguments = words[0], words[1:]
    if program == "make":
        targets = [word for word in arguments if "=" not in word]
        assert targets
        assert set(targets) <= TARGETS, f"no such target: {set(targets) - TARGETS}"
    elif program == "millrace":
        parse_millrace(arguments)
    elif program == "python":
        parse_module(arguments)
    elif program == "pytest":
        parse_pytest(arguments)
    elif program == "cdk":
        assert arguments[0] in CDK_VERBS
        names = re.findall(r"env=(\S+)", command.text)
        assert set(names) <= {*environment_names(ROOT), "ENV"}
    else:
        assert program in {"git", "cd", "source", "export", "npm", "pip"}, f"who knows {program}?"


@cache
def the_command() -> typer.core.TyperGroup:
    """The whole of ``millrace``; it takes a tenth of a second to put together."""
    return typer.main.get_command(app)


def parse_millrace(arguments: list[str]) -> None:
    command, rest = the_command(), list(arguments)
    while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        assert rest[0] in command.commands, f"millrace has no verb {rest[0]}"
        command, rest = command.get_command(None, rest[0]), rest[1:]
    # A verb named alone speaks of the verb. Placeholders in capitals are parsed like any other value.
    if rest and not {"--help", "--version", "--install-completion"} & set(rest):
        try:
            command.make_context(command.name, rest)
        except UsageError as error:
            raise AssertionError(error.format_message()) from error


def parse_module(arguments: list[str]) -> None:
    """A program of ours says what it takes by a ``parser``."""
    assert arguments[0] == "-m", "python with something else than a module of ours"
    name, rest = arguments[1], arguments[2:]
    assert name.split(".")[0] in {"tests", "millrace"}, f"who knows {name}?"
    found = importlib.util.find_spec(name)
    assert found is not None, f"there is no {name}"
    module = importlib.import_module(f"{name}.__main__" if found.submodule_search_locations else name)
    try:
        module.parser().parse_args(rest)
    except SystemExit as wrong:
        raise AssertionError(f"{name} does not take {rest}") from wrong


def parse_pytest(arguments: list[str]) -> None:
    """What is to be tested is there, and ``-k`` names a part of it."""
    words = list(arguments)
    wanted = words.pop(words.index("-k") + 1) if "-k" in words else ""
    paths = [word for word in words if not word.startswith("-")]
    assert paths
    files = [file for path in paths for file in (ROOT.glob(path) if "*" in path else [ROOT / path])]
    assert files
    assert all(file.exists() for file in files), f"not all are there: {files}"
    assert any(wanted in file.read_text() for file in files if file.is_file()) or not wanted


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_is_understood(command):
    parse(command)


def test_a_wrong_one_is_not():
    for text in (
        "make tea",
        "millrace plan --enviroment local",
        "millrace brew",
        "cdk serve",
        "cdk synth -c env=moon",
        "python -m tests.faults --only rain",
        "python -m tests.faults.rain",
        "python -m antigravity",
        "pytest tests/spark/test_rain.py",
        "pytest tests/spark/test_rain_*.py",
        "pytest tests/spark/queries/test_land.py -k rain",
    ):
        with pytest.raises(AssertionError):
            parse(Command("here", text))


@cache
def cdk_knows(verb: str) -> str:
    """What the pinned CDK says of a verb's options."""
    node = ROOT / "node_modules" / "aws-cdk" / "bin" / "cdk"
    done = subprocess.run(
        [str(node_bin_folder() / "node"), str(node), verb, "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "300", "CDK_DISABLE_VERSION_CHECK": "1"},
        check=True,
    )
    return done.stdout


def cdk_options() -> list[tuple[str, str]]:
    """Each verb of CDK's with each option that the docs give it, in commands and in the table of the bootstrap's."""
    found = {
        (command.words[1], option.partition("=")[0])
        for command in COMMANDS
        if command.words[0] == "cdk"
        for option in command.words[2:]
        if option.startswith("--")
    }
    page = (ROOT / "docs" / "deploying.md").read_text()
    found |= {
        ("bootstrap", option)
        for option in re.findall(r"`[^`|]*?(--[a-z-]+)", page)
        if option not in ("--claims", "--drift")
    }
    return sorted(found - {("bootstrap", each) for each in ("--env", "--all")})


@pytest.mark.slow
def test_cdk_knows_the_options() -> None:
    options = cdk_options()
    assert ("bootstrap", "--trust") in options
    assert [each for each in options if f"{each[1]} " not in cdk_knows(each[0]).replace(",", " ")] == []


def placeholders(command: Command) -> bool:
    return re.search(r"\b[A-Z]{2,}\b(?!=)", command.text) is not None


WITHOUT_ACCOUNT = {"plan", "compare", "policies", "validate", "simulate", "cost"}
ASKS = {"--deployed", "--actual", "--templates"}
"""Options that ask AWS, or need what set-up installs."""

# Once each, in the first document that has it.
RUN = [
    command
    for command in {each.text: each for each in reversed(COMMANDS)}.values()
    if strip_assignments(command.words)[0] == "millrace"
    and strip_assignments(command.words)[1] in {*WITHOUT_ACCOUNT, "schema", "--help"}
    and len(strip_assignments(command.words)) > 2 - (command.words[-1] == "--help")
    and not placeholders(command)
    and not {"--write", "--out", "--html", "--trace", "--diff", "--apply"} & set(command.words)
    and not ASKS & set(command.words)
]


def test_there_is_something_to_run():
    assert any(command.words[1] == "plan" for command in RUN)


def words_without_spark(text: list[str]) -> list[str]:
    """Arguments of a command; Spark has tests of its own."""
    words = strip_assignments(text)[1:]
    return [*words, *(["--no-spark"] if words[0] == "validate" and "--help" not in words else [])]


@pytest.mark.parametrize("command", RUN, ids=str)
def test_runs(command, monkeypatch):
    # In this process: to start one takes a second, for each of them.
    monkeypatch.chdir(ROOT)
    done = CliRunner(env={"COLUMNS": "120"}).invoke(app, words_without_spark(command.words))
    assert done.exit_code == 0, done.output
    assert done.stdout.strip()


SAMPLE = {
    "ENV": "dev",
    "JOB": "orders",
    "KEY": "jobs.orders.max_workers",
    "REF": "main",
    "FILE": "friday.csv",
}
SAMPLE |= {"DIR": "policies", "HEAD": "main", "PATH": "logs"}


def in_project(command: Command) -> str | None:
    """Return the command for a project that `millrace init` made; None if it asks AWS or names what only the clone has."""
    text = re.sub(r"\b[A-Z]{3,}\b", lambda found: SAMPLE.get(found[0], found[0]), command.text)
    words = strip_assignments(shlex.split(text, comments=True))
    runs = words[0] == "millrace" and len(words) > 2 and words[1] in WITHOUT_ACCOUNT
    ours = re.search(r"flights|departures|env (local|minimal)|docs/examples", text)
    return None if not runs or ASKS & set(words) or ours else text


IN_PROJECT = sorted({text for each in COMMANDS if (text := in_project(each)) is not None})


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("new") / "my-streams"
    for name, text in new_project_texts_by_path("my-streams").items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (trace,) = re.findall(r"^```csv\n(.*?)^```", (ROOT / "docs" / "simulation.md").read_text(), re.M | re.S)
    (folder / "friday.csv").write_text(trace)
    for words in (["init", "-qb", "main"], ["add", "."], ["commit", "-qm", "first"]):
        who = ["-c", "user.name=me", "-c", "user.email=me@example.com", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", "-C", folder, *who, *words], check=True)
    return folder


@pytest.mark.parametrize("text", IN_PROJECT)
def test_runs_in_a_new_project(text: str, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    done = CliRunner(env={"COLUMNS": "120"}).invoke(app, words_without_spark(shlex.split(text)))
    assert done.exit_code == 0, (done.output, done.exception)


def test_most_pages_have_a_command_for_a_new_project() -> None:
    assert len(IN_PROJECT) > 12
    assert "millrace plan --env prod --diff environments/dev.yaml" in IN_PROJECT


def shown() -> list[tuple[str, list[str]]]:
    """Commands of README that are run here, with the lines that it says they print."""
    found = []
    for block in BLOCK.findall((ROOT / "README.md").read_text()):
        command, *lines = block.splitlines()
        if command[2:] in {each.text for each in RUN} and lines and not lines[0].startswith("$ "):
            found.append((command[2:], [line for line in lines if line.strip() and line != "..."]))
    return found


@pytest.mark.parametrize(
    ("command", "lines"), shown(), ids=lambda found: found if isinstance(found, str) else ""
)
def test_prints_what_the_readme_says(command, lines):
    words = [sys.executable, "-m", *shlex.split(command)]
    done = subprocess.run(
        words, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "COLUMNS": "120"}, check=True
    )
    printed = {line.rstrip() for line in done.stdout.splitlines()}
    assert [line for line in lines if line.rstrip() not in printed] == []


def test_the_readme_shows_a_plan():
    assert [command for command, _ in shown()] == ["millrace plan --env minimal"]
