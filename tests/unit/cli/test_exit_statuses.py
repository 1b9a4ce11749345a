"""Each cause of failure has one exit status in all commands, without a traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import boto3
import pytest
import typer.main

from millrace.cli.app import GROUPS, app
from millrace.cli.shared.console import STATUS
from millrace.lifecycle.deploy import DeployError
from millrace.sandbox.programs import cdk, toolchain
from tests.unit.cli.test_command_output import ROOT, millrace

ASKS_AWS = (
    "advise --glue-job orders",
    "advise --emr-app 00f1",
    "advise s3://logs/orders",
    "audit flights",
    "backfill flights --since 2026-10-20T08Z --until 2026-10-20T10Z --yes",
    "bench flights --on emr --query land-flights --yes",
    "checkpoint fork flights land-flights other",
    "checkpoint move flights land-flights other",
    "checkpoint reset flights land-flights --yes",
    "checkpoint show flights",
    "cost --actual",
    "deploy --diff",
    "drain flights",
    "erase --where carrier='AA' --yes",
    "history",
    "import glue:orders --name orders --schema order.ddl",
    "import emr:00f1/00f2 --name orders --schema order.ddl",
    "logs flights",
    "prices update --region eu-west-1",
    "replay flights --query land-flights --yes",
    "rollback flights",
    "scan",
    "schema check",
    "schema infer departures --aws",
    "split flights --jobs 2",
    "start flights",
    "status",
    "status flights",
    "stop flights",
    "traffic departures --aws --seconds 1 --yes",
    "upgrade flights",
    "verify --show",
    "verify --claims",
    "verify --clean",
)
WITHOUT_ENVIRONMENT = ("advise", "import", "prices", "scan")


@pytest.fixture
def signed_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No credentials, wherever boto3 looks for them."""
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "PROFILE", "ENDPOINT_URL"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    monkeypatch.delenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", raising=False)
    monkeypatch.delenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    for name in ("CONFIG_FILE", "SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(f"AWS_{name}", str(tmp_path / "none"))
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)  # which may have found credentials before


def words() -> Iterator[tuple[str, set[str]]]:
    """Each command with the names of its options."""
    root = typer.main.get_command(app)
    for name in root.commands:  # type: ignore[attr-defined]  # a group's
        command = root.get_command(None, name)  # type: ignore[attr-defined]
        below = getattr(command, "commands", {})
        yield from ((f"{name} {each}", options(under)) for each, under in below.items())
        if not below or name == "schema":
            yield name, options(command)


def options(command: object) -> set[str]:
    return {option for each in command.params for option in each.opts}  # type: ignore[attr-defined]


@pytest.mark.usefixtures("signed_out")
@pytest.mark.parametrize("command", ASKS_AWS)
def test_missing_credentials_are_a_users_mistake(command: str) -> None:
    given = () if command.startswith(WITHOUT_ENVIRONMENT) or "--env" in command else ("--env", "prod")
    done = millrace(*command.split(), *given)
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert "credentials" in done.stderr
    assert "AWS_PROFILE" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.usefixtures("signed_out")
def test_preflight_without_credentials_has_a_row_of_them() -> None:
    done = millrace("preflight", "--env", "prod", "--json")
    assert done.returncode == 1, done.stderr
    (row,) = json.loads(done.stdout)["rows"]
    assert (row["subject"], row["verdict"]) == ("credentials", "failed")
    assert "AWS_PROFILE" in row["found"]


def test_each_command_that_asks_aws_is_tried() -> None:
    """A new one is added to the list, or to those that ask nothing."""
    asks_nothing = {
        "init", "vendor", "validate", "plan", "compare", "simulate", "policies", "schema", "setup", "demo", "notebook",
        "sandbox run", "sandbox stop",
        "preflight",  # says so in its first row
    }  # fmt: skip
    tried = {name for name, _ in words() if any(f"{each} ".startswith(f"{name} ") for each in ASKS_AWS)}
    assert {name for name, _ in words()} == tried | asks_nothing


@pytest.mark.parametrize("command", sorted({name for name, has in words() if "--env" in has}))
def test_an_unknown_environment_is_a_users_mistake(command: str) -> None:
    more = {
        "advise": ["docs"],
        "checkpoint fork": ["flights", "land", "other"],
        "checkpoint move": ["flights", "land", "other"],
        "checkpoint reset": ["flights", "land"],
        "erase": ["--where", "carrier = 'AA'"],
        "schema infer": ["departures"],
        "split": ["flights", "--jobs", "2"],
        "traffic": ["departures"],
    }
    takes_job = {
        "audit",
        "backfill",
        "bench",
        "checkpoint show",
        "drain",
        "logs",
        "notebook",
        "replay",
        "rollback",
    }
    takes_job |= {"start", "stop", "upgrade"}
    given = more.get(command, ["flights"] if command in takes_job else [])
    done = millrace(*command.split(), *given, "--env", "pord")
    assert done.returncode == 2
    assert "environments/pord.yaml: no environment 'pord'; allowed: one of" in done.stderr
    assert "(did you mean prod?)" in done.stderr


def test_the_failures_are_classes_that_there_are() -> None:
    for name in STATUS:
        module, _, of = name.rpartition(".")
        assert issubclass(getattr(import_module(module), of), Exception)


def test_the_help_has_four_groups() -> None:
    assert list(GROUPS) == ["Plan", "Run", "Watch", "Repair"]
    shown = millrace("--help").stdout
    for panel, commands in GROUPS.items():
        assert f" {panel} " in shown
        assert all(f" {name} " in shown for name in commands)


@pytest.mark.usefixtures("signed_out")
def test_sinks_that_the_sandbox_lacks_are_told_before_anything_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LOCALSTACK_ENDPOINT", raising=False)
    project = tmp_path / "shop"
    assert millrace("init", str(project)).returncode == 0
    file = project / "environments" / "base.yaml"
    query = (
        "\n      {}: {{kind: derive, source: orders_landed, sink: {{kind: {}}}, dead_letters: {}_letters}}"
    )
    domain = "opensearch, domain: 'arn:aws:es:us-east-1:111122223333:domain/shop', index: orders, endpoint: 'https://search-shop.us-east-1.es.amazonaws.com'"
    more = query.format("newest", "dynamodb, table: newest", "newest") + query.format(
        "found", domain, "found"
    )
    file.write_text(file.read_text().replace("    queries:", f"    queries:{more}", 1))
    done = millrace("sandbox", "run", "--env", "dev", cwd=project)
    assert done.returncode == 2, done.stdout + done.stderr
    assert (
        "jobs.orders.queries.newest.sink is dynamodb; allowed: a sink that the sandbox has: LocalStack"
        in done.stderr
    )
    assert "jobs.orders.queries.found.sink is opensearch" in done.stderr
    assert "LOCALSTACK_ENDPOINT" in done.stderr


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("bench orders --env dev", "run `millrace setup`"),
        ("sandbox run --env dev", "run `millrace setup`"),
        ("verify --sandbox --yes --env dev", "run `millrace setup`"),
        ("schema infer orders --env dev", "is not running in the sandbox"),
        ("traffic orders --env dev", "is not running in the sandbox"),
    ],
)
@pytest.mark.usefixtures("signed_out")
def test_before_set_up_a_command_says_what_is_missing(
    command: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a project where nothing was installed, on a machine without Java and Node."""
    project = tmp_path / "shop"
    assert millrace("init", str(project)).returncode == 0
    for name in ("JAVA_HOME", "LOCALSTACK_ENDPOINT", "SPARK_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    done = millrace(*command.split(), cwd=project)
    assert done.returncode == 1, done.stdout
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_policies_find_node_beside_python_or_say_that_it_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    done = millrace("policies", "--env", "minimal")
    assert "Traceback" not in done.stderr
    assert done.returncode == 0 or "Node 22 or later was not found" in done.stderr


def test_without_the_cdk_it_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cdk, "program_variables", lambda **_: {"PATH": str(tmp_path)})
    with pytest.raises(toolchain.ToolchainError, match=r"the program cdk is not installed: run `make setup`"):
        cdk.synthesise_assembly("minimal", tmp_path / "cdk.out", "111122223333")


def test_a_template_that_cloudformation_would_refuse_is_named_before_a_deployment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def synth(*_: object, shown: bool) -> None:
        (tmp_path / "cdk.out").mkdir()
        for name, size in (("shop-dev-streams", 10), ("shop-dev-observability", 1_000_001)):
            (tmp_path / "cdk.out" / f"{name}.template.json").write_text("x" * size)

    monkeypatch.setattr(cdk, "run_cdk", synth)
    with pytest.raises(
        DeployError, match=r"1,000,000 bytes.*: shop-dev-observability.template.json \(1,000,001\);"
    ):
        cdk.synthesise_assembly("minimal", tmp_path / "cdk.out", "111122223333")


@pytest.mark.parametrize(
    ("redirected", "status", "said"),
    [
        (">/dev/full", 1, "millrace: cannot write the output: No space left on device\n"),
        (">&-", 0, ""),
        ("| true", 0, ""),
    ],
)
def test_output_that_cannot_be_written_is_no_traceback(redirected: str, status: int, said: str) -> None:
    command = f"{sys.executable} -m millrace validate --env minimal {redirected}"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (status, said)
