"""However a verification ends, what it made is taken away; and what the command refuses before it makes anything."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import boto3
import pytest

from millrace.config import load
from millrace.lifecycle.problems import AwsError
from millrace.lifecycle.verbs import Aws
from millrace.sizing import plan
from millrace.verify import cdk
from millrace.verify.environment import Copy, Wanted, derive
from millrace.verify.on_aws import PATIENCE, Account
from millrace.verify.outcome import Outcome
from millrace.verify.run import Verification
from tests.unit.cli.test_commands import ROOT, millrace
from tests.unit.verify.tiny import TINY

ACCOUNT, NAME = "123456789012", "verify-0a1b"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(TINY)
    return path


@pytest.fixture
def copy(file: Path) -> Copy:
    return derive(
        load(file, root=ROOT), NAME, account=ACCOUNT, wanted=Wanted(), root=ROOT, folder=file.parent,
        clusters={},
    )  # fmt: skip


class HalfDeployed(Account):
    """Makes one stack, and then something happens."""

    happens: BaseException = AwsError("cdk deploy ended with status 1")

    def deploy(self, copy: Copy, _assembly: Path) -> None:
        make(self.client("cloudformation"), f"{copy.names.prefix}-streams", copy)
        raise self.happens


def make(cloudformation: Any, stack: str, copy: Copy) -> None:
    stream = {"Type": "AWS::Kinesis::Stream", "Properties": {"Name": f"{stack}-s", "ShardCount": 1}}
    cloudformation.create_stack(
        StackName=stack,
        TemplateBody=json.dumps({"Resources": {"Stream": stream}}),
        Tags=[{"Key": key, "Value": value} for key, value in copy.tags.items()],
    )


def stacks(aws: Aws) -> list[str]:
    return [stack["StackName"] for stack in aws.client("cloudformation").describe_stacks()["Stacks"]]


@pytest.fixture
def half(aws: Aws, copy: Copy, monkeypatch: pytest.MonkeyPatch) -> HalfDeployed:
    monkeypatch.setattr(cdk, "synthesise", lambda *_: None)
    patience = dataclasses.replace(PATIENCE, remove=20, vanish=2)
    return HalfDeployed(aws, plan(copy.environment), poll_seconds=0.01, patience=patience)


def run(half: HalfDeployed, copy: Copy, tmp_path: Path, *, keep: bool = False) -> Outcome:
    sized = plan(copy.environment)
    return Verification(half, copy, sized, Wanted(), tmp_path, lambda _: None, keep=keep).run()


@pytest.mark.parametrize(
    ("happens", "said"),
    [
        (AwsError("cdk deploy ended with status 1"), "cdk deploy ended with status 1"),
        (KeyboardInterrupt(), "interrupted"),
    ],
)
def test_what_was_made_goes_after_a_failure_and_after_ctrl_c(
    half: HalfDeployed, copy: Copy, aws: Aws, tmp_path: Path, happens: BaseException, said: str
) -> None:
    half.happens = happens
    found = run(half, copy, tmp_path)
    assert (found.trouble, found.remains, found.exact) == ((said,), (), False)
    assert [step.name for step in found.steps] == ["synthesise", "deploy", "tear down"]
    assert stacks(aws) == []
    assert found.document()["trouble"] == [said]
    # It stood for a moment, which has its price; nothing ran.
    assert all("DPU" not in line.name for line in found.cost)


def test_what_was_made_goes_after_an_error_that_nobody_foresaw(
    half: HalfDeployed, copy: Copy, aws: Aws, tmp_path: Path
) -> None:
    half.happens = LookupError("a mistake of ours")
    with pytest.raises(LookupError, match="a mistake of ours"):
        run(half, copy, tmp_path)
    assert stacks(aws) == []


def test_what_is_to_be_kept_stays(half: HalfDeployed, copy: Copy, aws: Aws, tmp_path: Path) -> None:
    found = run(half, copy, tmp_path, keep=True)
    assert (found.kept, found.exact) == (True, False)
    assert stacks(aws) == [f"{copy.names.prefix}-streams"]


def test_nothing_is_taken_away_where_nothing_was_made(
    half: HalfDeployed, copy: Copy, aws: Aws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AwsError("cdk synth ended with status 2")

    monkeypatch.setattr(cdk, "synthesise", refuse)
    found = run(half, copy, tmp_path)
    assert [step.name for step in found.steps] == ["synthesise"]
    assert (found.trouble, sum(line.usd for line in found.cost)) == (("cdk synth ended with status 2",), 0)


@pytest.fixture
def account(moto: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller's credentials and the address of AWS, as processes find them."""
    for key, value in {
        "AWS_ENDPOINT_URL": moto,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(key, value)


@pytest.mark.usefixtures("account")
def test_before_anything_is_made_it_is_shown_asked_and_refused(file: Path, aws: Aws) -> None:
    shown = millrace("verify", "--env", str(file), "--show")
    assert shown.returncode == 0, shown.stderr
    assert "tiny-verify-" in shown.stdout
    assert "about $" in shown.stdout
    refused = millrace("verify", "--env", str(file), "--yes")
    assert refused.returncode == 2
    assert "is not bootstrapped for CDK in us-east-1" in refused.stderr
    aws.client("ssm").put_parameter(Name="/cdk-bootstrap/hnb659fds/version", Value="30", Type="String")
    asked = millrace("verify", "--env", str(file))
    assert (asked.returncode, asked.stderr) == (2, "millrace verify: nobody to ask; repeat with --yes\n")
    foreign = millrace("verify", "--env", "minimal", "--yes")
    assert foreign.returncode == 2
    assert "belongs to account 111122223333" in foreign.stderr
    assert stacks(aws) == []


@pytest.mark.usefixtures("account")
def test_clean_takes_away_what_an_interrupted_one_left_and_asks_before(
    file: Path, aws: Aws, copy: Copy
) -> None:
    cloudformation = aws.client("cloudformation")
    assert millrace("verify", "--clean", "--env", str(file)).stdout == "nothing is left\n"
    # The command waits as long as AWS may take; here what is deleted is gone at once.
    make(cloudformation, f"{copy.names.prefix}-streams", copy)
    cloudformation.create_stack(
        StackName="tiny-small-streams",
        TemplateBody=json.dumps({"Resources": {"T": {"Type": "AWS::SNS::Topic"}}}),
    )
    asked = millrace("verify", "--clean", "--env", str(file))
    assert (asked.returncode, asked.stdout) == (2, f"{NAME}, of small: {copy.names.prefix}-streams\n")
    done = millrace("verify", "--clean", "--env", str(file), "--yes")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, f"{NAME}: gone"), done.stderr
    assert stacks(aws) == ["tiny-small-streams"]


@pytest.mark.parametrize(
    "given",
    [
        ["--clean", "--keep"],
        ["--clean", "--sandbox"],
        ["--kills", "99"],
        ["--records", "1"],
        ["--dirty", "2"],
    ],
)
def test_bad_input_is_refused(given: list[str]) -> None:
    done = millrace("verify", "--env", "minimal", *given)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_without_credentials_there_is_one_message(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(key, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for key in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(key, str(tmp_path / "none"))
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    done = millrace("verify", "--env", "minimal", "--yes")
    assert done.returncode == 2
    assert done.stderr.startswith("millrace verify: asking AWS whose credentials these are: ")
    assert "there are no complete AWS credentials" in done.stderr
