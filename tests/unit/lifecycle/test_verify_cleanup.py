"""A verification that ends in any way removes its resources; wrong options are refused first."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from pyiceberg.exceptions import NoSuchTableError

from millrace.config import Names, load
from millrace.lifecycle.account.deployed_environment import DeployedEnvironment
from millrace.lifecycle.aws_error_messages import AwsError
from millrace.sandbox.kill_and_restart_jobs import DrillError, translating_table_errors, wait_for_condition
from millrace.sandbox.programs import cdk
from millrace.sandbox.records.ledger import row_count
from millrace.sizing import plan
from millrace.verify.aws_target import PATIENCE, AwsAccountTarget
from millrace.verify.environment_copy import (
    VerificationCopy,
    VerificationSettings,
    write_verification_environment,
)
from millrace.verify.expected_and_actual_cost import BilledRun
from millrace.verify.run import Verification
from millrace.verify.verification_outcome import VerificationOutcome
from tests.unit.cli.test_command_output import ROOT, millrace
from tests.unit.verify.smallest_environment import TINY

ACCOUNT, NAME = "123456789012", "verify-0a1b"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(TINY)
    return path


@pytest.fixture
def copy(file: Path) -> VerificationCopy:
    return write_verification_environment(
        load(file, root=ROOT), NAME, account=ACCOUNT, settings=VerificationSettings(), root=ROOT, folder=file.parent,
        clusters={},
    )  # fmt: skip


def assembled(_: str, assembly: Path) -> None:
    """In the place of CDK."""
    assembly.mkdir()
    (assembly / "manifest.json").write_text("{}")


class HalfDeployed(AwsAccountTarget):
    """Makes one stack, and then something happens."""

    happens: BaseException | None = AwsError("cdk deploy ended with status 1")

    def deploy(self, copy: VerificationCopy, _assembly: Path) -> None:
        make(self.client("cloudformation"), f"{copy.names.prefix}-streams", copy)
        if self.happens is not None:
            raise self.happens


def make(cloudformation: Any, stack: str, copy: VerificationCopy) -> None:
    stream = {"Type": "AWS::Kinesis::Stream", "Properties": {"Name": f"{stack}-s", "ShardCount": 1}}
    cloudformation.create_stack(
        StackName=stack,
        TemplateBody=json.dumps({"Resources": {"Stream": stream}}),
        Tags=[{"Key": key, "Value": value} for key, value in copy.tags.items()],
    )


def stacks(aws: DeployedEnvironment) -> list[str]:
    return [stack["StackName"] for stack in aws.client("cloudformation").describe_stacks()["Stacks"]]


@pytest.fixture
def half(aws: DeployedEnvironment, copy: VerificationCopy, monkeypatch: pytest.MonkeyPatch) -> HalfDeployed:
    monkeypatch.setattr(cdk, "synthesise_assembly", assembled)
    patience = dataclasses.replace(PATIENCE, remove=20, vanish=2)
    return HalfDeployed(aws, plan(copy.environment), poll_seconds=0.01, patience=patience)


def run(
    half: HalfDeployed, copy: VerificationCopy, tmp_path: Path, *, keep: bool = False
) -> VerificationOutcome:
    sized = plan(copy.environment)
    return Verification(half, copy, sized, VerificationSettings(), tmp_path, lambda _: None, keep=keep).run()


@pytest.mark.parametrize(
    ("happens", "said"),
    [
        (AwsError("cdk deploy ended with status 1"), "cdk deploy ended with status 1"),
        (KeyboardInterrupt(), "interrupted"),
    ],
)
def test_what_was_made_goes_after_a_failure_and_after_ctrl_c(
    half: HalfDeployed,
    copy: VerificationCopy,
    aws: DeployedEnvironment,
    tmp_path: Path,
    happens: BaseException,
    said: str,
) -> None:
    half.happens = happens
    result = run(half, copy, tmp_path)
    assert (result.trouble, result.remains, result.exact) == ((said,), (), False)
    assert [step.name for step in result.steps] == ["synthesise", "deploy", "tear down"]
    assert stacks(aws) == []
    assert list(tmp_path.glob("*.out")) == []
    assert result.document()["trouble"] == [said]
    # It stood for a moment, which has its price; nothing ran.
    assert all("DPU" not in line.name for line in result.cost)


def test_what_was_made_goes_after_an_error_that_nobody_foresaw(
    half: HalfDeployed, copy: VerificationCopy, aws: DeployedEnvironment, tmp_path: Path
) -> None:
    half.happens = LookupError("a mistake of ours")
    with pytest.raises(LookupError, match="a mistake of ours"):
        run(half, copy, tmp_path)
    assert stacks(aws) == []


def test_what_is_to_be_kept_stays(
    half: HalfDeployed, copy: VerificationCopy, aws: DeployedEnvironment, tmp_path: Path
) -> None:
    result = run(half, copy, tmp_path, keep=True)
    assert (result.kept, result.exact) == (True, False)
    assert stacks(aws) == [f"{copy.names.prefix}-streams"]


def test_nothing_is_taken_away_where_nothing_was_made(
    half: HalfDeployed,
    copy: VerificationCopy,
    aws: DeployedEnvironment,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_: str, assembly: Path) -> None:
        assembled(_, assembly)
        raise AwsError("cdk synth ended with status 2")

    monkeypatch.setattr(cdk, "synthesise_assembly", refuse)
    result = run(half, copy, tmp_path)
    assert [step.name for step in result.steps] == ["synthesise"]
    assert (result.trouble, sum(line.usd for line in result.cost)) == (("cdk synth ended with status 2",), 0)
    assert list(tmp_path.glob("*.out")) == []


THROTTLED = ClientError({"Error": {"Code": "ThrottlingException", "Message": "Rate exceeded"}}, "GetTable")
LIMITED = ClientError({"Error": {"Code": "LimitExceededException", "Message": ""}}, "ListShards")
DENIED = ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "GetTable")


class Refusing:
    """A catalog that refuses so often, and then has no table."""

    def __init__(self, error: Exception, times: float) -> None:
        self.error, self.times = error, times

    def load_table(self, _: str) -> None:
        self.times -= 1
        if self.times >= 0:
            raise self.error
        raise NoSuchTableError


class Asked(HalfDeployed):
    """All is deployed, and the catalog refuses to tell of tables."""

    happens = None
    error: Exception = DENIED

    def catalog(self, _names: Names) -> Any:
        return Refusing(self.error, float("inf"))

    def start(self, _names: Names, _job: str) -> None: ...

    def stop(self, _names: Names, _job: str) -> None: ...

    def billed_runs(self, _names: Names, _job: str) -> list[BilledRun]:
        return []


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            DENIED,
            "cannot read tiny_verify_0a1b.glue_kinesis_landed from the catalog: access denied to GetTable",
        ),
        (
            OSError("AWS Error SLOW_DOWN"),
            "tiny_verify_0a1b.glue_kinesis_landed cannot be read: AWS Error SLOW_DOWN",
        ),
    ],
)
def test_a_catalog_that_refuses_ends_it_with_its_outcome(
    half: HalfDeployed,
    copy: VerificationCopy,
    aws: DeployedEnvironment,
    tmp_path: Path,
    error: Exception,
    said: str,
) -> None:
    asked = Asked(half.aws, half.plan, poll_seconds=0.01, patience=half.patience)
    asked.error = error
    result = run(asked, copy, tmp_path)
    (trouble,) = result.trouble
    assert said in trouble
    assert (result.remains, result.exact, stacks(aws)) == ((), False, [])
    assert result.cost


def test_what_is_asked_too_often_is_asked_again() -> None:
    busy = Refusing(THROTTLED, 2)
    with pytest.raises(
        DrillError,
        match=r"timeout after 0 s of waiting for rows \(cannot read t from the catalog: AWS is throttling",
    ):
        wait_for_condition(lambda: rows(Refusing(THROTTLED, 9)) > 0, 0.05, "rows", poll_seconds=0.02)
    wait_for_condition(lambda: rows(busy) == 0, 5.0, "no rows", poll_seconds=0.01)
    # Kinesis' word for it, which is a quota's elsewhere.
    limited = Refusing(LIMITED, 2)
    wait_for_condition(lambda: rows(limited) == 0, 5.0, "no rows", poll_seconds=0.01)
    assert busy.times == limited.times == -1
    with pytest.raises(AwsError, match="access denied to GetTable"):
        wait_for_condition(lambda: rows(Refusing(DENIED, 1)) == 0, 5.0, "rows")


def rows(catalog: Any) -> int:
    with translating_table_errors("t"):
        return row_count(catalog, "t")


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
def test_before_anything_is_made_it_is_shown_asked_and_refused(file: Path, aws: DeployedEnvironment) -> None:
    shown = millrace("verify", "--env", str(file), "--show")
    assert shown.returncode == 0, shown.stderr
    assert "tiny-verify-" in shown.stdout
    assert "about $" in shown.stdout
    whole = json.loads(millrace("verify", "--env", str(file), "--show", "--json", "--kills", "2").stdout)
    assert [(each["kind"], each.get("shards")) for each in whole["makes"]] == [("kinesis", 2), ("job", None)]
    assert whole["usd"] == pytest.approx(sum(item["usd"] for item in whole["cost"]))
    assert (whole["does"], whole["left_out"], whole["paid"]) == ({"kills": 2, "reshards": 2}, [], True)
    refused = millrace("verify", "--env", str(file), "--yes")
    assert refused.returncode == 1
    assert "is not bootstrapped for CDK in us-east-1" in refused.stderr
    aws.client("ssm").put_parameter(Name="/cdk-bootstrap/hnb659fds/version", Value="30", Type="String")
    asked = millrace("verify", "--env", str(file))
    assert asked.returncode == 2
    assert asked.stderr.endswith(
        "? The question cannot be asked without a terminal; repeat the command with --yes\n"
    )
    foreign = millrace("verify", "--env", "minimal", "--yes")
    assert foreign.returncode == 2
    assert "belongs to account 111122223333" in foreign.stderr
    assert stacks(aws) == []


@pytest.mark.usefixtures("account")
def test_clean_takes_away_what_an_interrupted_one_left_and_asks_before(
    file: Path, aws: DeployedEnvironment, copy: VerificationCopy
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
        ["--keep", "--sandbox"],
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
    assert done.stderr.startswith("millrace verify: cannot tell to whom these AWS credentials belong: ")
    assert "there are no complete AWS credentials" in done.stderr
