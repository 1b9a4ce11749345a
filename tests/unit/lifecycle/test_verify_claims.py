"""`millrace verify --claims` on a server that has some services and refuses the others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from millrace.cli import app
from millrace.config import Names, load
from millrace.lifecycle.account.deployed_environment import DeployedEnvironment
from millrace.verify.account import check_input_and_answer
from millrace.verify.account.claims import read_claims
from tests.unit.verify.smallest_environment import TINY


@pytest.fixture
def signed_in(moto: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in {
        "AWS_ENDPOINT_URL": moto,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_MAX_ATTEMPTS": "1",
    }.items():
        monkeypatch.setenv(key, value)

    def nobody(_: object) -> None:
        raise OSError("no way out")

    monkeypatch.setattr(check_input_and_answer.ClaimContext, "fetch", staticmethod(nobody))


def _ours(printed: str, begin: str = "{") -> str:
    """What the command printed, behind what the server does on the same stream."""
    return printed[printed.index(begin) :]


@pytest.mark.usefixtures("signed_in")
def test_each_claim_has_a_line_in_what_is_printed_and_in_the_file(
    aws: DeployedEnvironment, tmp_path: Path
) -> None:
    small = tmp_path / "small.yaml"
    small.write_text(TINY)
    names, glue = Names(load(str(small)), "123456789012"), aws.client("glue")
    file = tmp_path / "reports" / "claims.md"
    arguments = ["verify", "--env", str(small), "--claims", "--report", str(file)]
    # A job as Glue keeps it where it made up a timeout.
    glue.create_job(
        Name=names.job("clicks"),
        Role="r",
        Command={"Name": "gluestreaming", "ScriptLocation": "s"},
        Timeout=2880,
    )
    done = CliRunner().invoke(app, [*arguments, "--json"])
    told = json.loads(_ours(done.stdout))
    verdicts = {each["id"]: each for each in told["claims"]}
    assert list(verdicts) == list(read_claims())
    assert verdicts["glue-timeout"] == {"id": "glue-timeout", "verdict": "refuted", "why": "2880 minutes"}
    assert done.exit_code == 1
    assert told["verdict"] in done.stderr
    text = file.read_text()
    assert "\nglue-timeout: refuted (2880 minutes)\n" in text
    assert all(f"\n{each}: " in text for each in read_claims())
    plain = CliRunner().invoke(app, arguments)
    assert _ours(plain.stdout, told["verdict"]).startswith(f"{told['verdict']}\n")


@pytest.mark.parametrize("with_", ["--sandbox", "--keep", "--show", "--clean"])
def test_it_goes_with_nothing_that_makes_or_takes_away(with_: str) -> None:
    done = CliRunner().invoke(app, ["verify", "--env", "minimal", "--claims", with_])
    assert done.exit_code == 2
    assert "--claims can be combined with" in done.stderr
