"""Cost Explorer's answers (moto's server) and refusals, compared with the plan."""

from __future__ import annotations

import json
import urllib.request
from datetime import date
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber
from typer.testing import CliRunner

from millrace.cli.app import app
from millrace.cli.watch import cost
from millrace.config import Environment, Names, load
from millrace.lifecycle.account.deployed_environment import DeployedEnvironment, NotDeployedError
from millrace.lifecycle.account.real_cost import ENVIRONMENT, JOB, PROJECT, STREAM, read_bill
from millrace.lifecycle.aws_error_messages import AwsError
from millrace.sizing import plan, total_cost
from millrace.sizing.costs.planned_and_billed_cost import planned_and_paid
from tests.unit.cli.test_command_output import ROOT, millrace

SINCE, UNTIL = date(2026, 11, 1), date(2026, 11, 11)
YAML = """\
project: hello
account: "123456789012"
streams:
  clicks:
    kind: kinesis
    traffic: {records_per_second: 800, record_size: 500B}
jobs:
  clicks:
    engine: glue
    rate: {records_per_second_per_core: 5000}
    queries:
      land-clicks:
        kind: land
        source: clicks
        table: clicks_landed
        schema: pipelines/clicks/schemas/click.ddl
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "bill.yaml"
    path.write_text(YAML)
    return path


@pytest.fixture
def environment(file: Path) -> Environment:
    return load(file, root=ROOT)


def answer(
    *groups: tuple[str, str, str], estimated: bool = False, token: str | None = None
) -> dict[str, Any]:
    made: dict[str, Any] = {
        "ResultsByTime": [
            {
                "TimePeriod": {"Start": "2026-11-01", "End": "2026-11-11"},
                "Total": {},
                "Groups": [
                    {"Keys": [tag, usage], "Metrics": {"UnblendedCost": {"Amount": usd, "Unit": "USD"}}}
                    for tag, usage, usd in groups
                ],
                "Estimated": estimated,
            }
        ],
        "DimensionValueAttributes": [],
    }
    return made | ({"NextPageToken": token} if token else {})


BY_JOB = (
    (f"{JOB}$clicks", "ETL-Stream-DPU-Hour", "55.5"),
    (f"{JOB}$clicks", "USE1-DataProcessing-Bytes", "0.5"),
    (f"{JOB}$", "Storage-ShardHour", "3.6"),
    (f"{JOB}$", "USE1-VpcEndpoint-Hours", "44"),
)
BY_STREAM = (
    (f"{STREAM}$clicks", "Storage-ShardHour", "3.6"),
    (f"{STREAM}$", "ETL-Stream-DPU-Hour", "55.5"),
    (f"{STREAM}$", "USE1-VpcEndpoint-Hours", "44"),
)


def tell(moto: str, *answers: dict[str, Any]) -> None:
    request = urllib.request.Request(  # our own server
        f"{moto}/moto-api/static/ce/cost-and-usage-results",
        data=json.dumps({"results": list(answers)}).encode(),
        headers={"Content-Type": "application/json"},
        method="POST",
    )
    urllib.request.urlopen(request).close()  # our own server


@pytest.fixture
def signed_in(moto: str, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in {
        "AWS_ENDPOINT_URL": moto,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",  # an account that moto makes up
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    return moto


def explorer() -> Any:
    return boto3.client("ce", region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")


def test_what_was_paid_goes_to_its_job_its_stream_or_all(signed_in: str, environment: Environment) -> None:
    tell(signed_in, answer(*BY_JOB, estimated=True), answer(*BY_STREAM))
    result = read_bill(boto3.client("ce", region_name="us-east-1"), environment, SINCE, UNTIL)
    assert sum(result.usage["jobs.clicks"].values()) == pytest.approx(56.0)
    assert sum(result.usage["streams.clicks"].values()) == pytest.approx(3.6)
    assert sum(result.usage["shared"].values()) == pytest.approx(44.0), "what a stream bears is not shared"
    assert result.estimated
    assert result.day_count == 10


@pytest.mark.parametrize(
    ("region", "host"),
    [("eu-west-1", "ce.us-east-1.amazonaws.com"), ("cn-north-1", "ce.cn-northwest-1.amazonaws.com.cn")],
)
def test_the_bill_is_asked_for_in_the_partition_of_the_environment(
    file: Path, monkeypatch: pytest.MonkeyPatch, region: str, host: str
) -> None:
    """Credentials of China are unknown outside of it; botocore's endpoint rules of ``ce`` have both."""
    file.write_text(YAML.replace("streams:", f"region: {region}\nstreams:", 1))
    asked: list[str] = []

    def client(service: str) -> Any:
        make: Any = boto3.client
        result = make(service, region_name=region, aws_access_key_id="a", aws_secret_access_key="b")
        asked.append(result.meta.endpoint_url)
        raise AwsError("no bill here")

    monkeypatch.setattr(
        cost, "connect_to_account", lambda given: DeployedEnvironment(Names(given, "1" * 12), client)
    )
    done = CliRunner().invoke(app, ["cost", "--env", str(file), "--actual"])
    assert done.exit_code == 1
    assert asked == [f"https://{host}"]


def test_the_command_shows_both(signed_in: str, file: Path, environment: Environment) -> None:
    tell(signed_in, answer(*BY_JOB), answer(*BY_STREAM))
    arguments = ("cost", "--env", str(file), "--actual", "--since", "2026-11-01", "--until", "2026-11-11")
    done = millrace(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["days"] == 10
    assert document["paid_usd"] == pytest.approx(103.6)
    assert document["planned_usd"] == pytest.approx(total_cost(plan(environment)).value * 240 / 730)
    (job,) = [each for each in document["subjects"] if each["subject"] == "jobs.clicks"]
    assert job["usage"] == {"ETL-Stream-DPU-Hour": 55.5, "USE1-DataProcessing-Bytes": 0.5}
    assert job["difference_usd"] == pytest.approx(56 - job["planned_usd"])
    shown = millrace(*arguments)  # the same questions, which moto answers the same
    assert "ETL-Stream-DPU-Hour" in shown.stdout
    assert "2026-11-01 to 2026-11-11, 10 days" in shown.stdout


def test_pages_are_read_to_the_end(environment: Environment) -> None:
    ce = explorer()
    with Stubber(ce) as stub:
        stub.add_response("get_cost_and_usage", answer(BY_JOB[0], token="more"))
        stub.add_response("get_cost_and_usage", answer(BY_JOB[1]))
        stub.add_response("get_cost_and_usage", answer(BY_STREAM[0]))
        result = read_bill(ce, environment, SINCE, UNTIL)
        stub.assert_no_pending_responses()
    assert sum(result.usage["jobs.clicks"].values()) == pytest.approx(56.0)


def test_the_questions_are_about_this_environment(environment: Environment) -> None:
    ce = explorer()
    asked = {
        "TimePeriod": {"Start": "2026-11-01", "End": "2026-11-11"},
        "Granularity": "MONTHLY",
        "Metrics": ["UnblendedCost"],
        "Filter": {
            "And": [
                {"Tags": {"Key": PROJECT, "Values": ["hello"]}},
                {"Tags": {"Key": ENVIRONMENT, "Values": ["bill"]}},
            ]
        },
    }
    with Stubber(ce) as stub:
        for tag, groups in ((JOB, BY_JOB), (STREAM, BY_STREAM)):
            by = [{"Type": "TAG", "Key": tag}, {"Type": "DIMENSION", "Key": "USAGE_TYPE"}]
            stub.add_response("get_cost_and_usage", answer(*groups), {**asked, "GroupBy": by})
        read_bill(ce, environment, SINCE, UNTIL)
        stub.assert_no_pending_responses()


@pytest.mark.parametrize(
    ("active", "error", "words"),
    [
        ((), AwsError, "the cost allocation tags millrace:project"),
        ((PROJECT, ENVIRONMENT, STREAM), AwsError, "update-cost-allocation-tags-status"),
        ((PROJECT, ENVIRONMENT, JOB, STREAM), NotDeployedError, "hello-bill has no cost"),
    ],
)
def test_an_empty_bill_says_why(
    environment: Environment, active: tuple[str, ...], error: type[Exception], words: str
) -> None:
    ce = explorer()
    with Stubber(ce) as stub:
        for _ in range(2):
            stub.add_response("get_cost_and_usage", {"ResultsByTime": []})
        tags = [{"TagKey": key, "Type": "UserDefined", "Status": "Active"} for key in active]
        stub.add_response("list_cost_allocation_tags", {"CostAllocationTags": tags})
        with pytest.raises(error, match=words):
            read_bill(ce, environment, SINCE, UNTIL)


def test_no_permission_is_said(environment: Environment) -> None:
    ce = explorer()
    with Stubber(ce) as stub:
        stub.add_client_error(
            "get_cost_and_usage",
            "AccessDeniedException",
            "User is not authorized to perform: ce:GetCostAndUsage",
        )
        with pytest.raises(AwsError, match="access denied to GetCostAndUsage"):
            read_bill(ce, environment, SINCE, UNTIL)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--since", "2026-11-01"), "only together with --actual"),
        (("--actual", "--since", "yesterday"), "a date, such as"),
        (("--actual", "--since", "2026-11-05", "--until", "2026-11-05"), "a day before 2026-11-05"),
    ],
)
def test_wrong_arguments(file: Path, arguments: tuple[str, ...], told: str) -> None:
    done = millrace("cost", "--env", str(file), *arguments)
    assert done.returncode == 2
    assert told in done.stderr


def test_the_plan_alone_is_itemised(environment: Environment) -> None:
    done = millrace("cost", "--env", "minimal")
    assert done.returncode == 0
    assert "S3 requests" in done.stdout
    document = json.loads(millrace("cost", "--env", "minimal", "--json").stdout)
    assert document["total"]["value"] > document["jobs"]["clicks"]["usd_month"]


def test_a_pair_of_what_the_plan_does_not_know(environment: Environment) -> None:
    result = {each.subject: each for each in planned_and_paid(plan(environment), {"jobs.old": 5.0}, 10)}
    assert result["jobs.old"].planned == 0
    assert result["jobs.old"].difference == 5
    assert result["jobs.clicks"].paid == 0
