"""AWS errors become one message each, raised by botocore from HTTP answers."""

from __future__ import annotations

import json
import re
import sys
from contextlib import AbstractContextManager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import boto3
import pytest
from botocore.exceptions import ClientError

from millrace.cli import main
from millrace.lifecycle.aws_error_messages import (
    AwsError,
    ThrottledError,
    TransientError,
    cdk_failure_message,
    to_aws_error,
    translating_aws_errors,
)
from tests.http_servers import Handler, served

ROOT = Path(__file__).parents[3]
ENVIRONMENT = """
extends: base
account: "{account}"
streams:
  clicks: {{kind: kinesis, traffic: {{records_per_second: 10, record_size: 500B}}}}
jobs:
  clicks:
    engine: glue
    rate: {{records_per_second_per_core: 5000}}
    queries:
      land: {{kind: land, source: clicks, table: clicks_landed, schema: pipelines/clicks/schemas/click.ddl}}
"""


def millrace(*arguments: str) -> tuple[int, str, str]:
    out, err = StringIO(), StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(ROOT)
        patch.setattr(sys, "argv", ["millrace", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
    return int(ended.value.code or 0), out.getvalue(), err.getvalue()


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """No credentials but those that a test sets, and no second tries."""
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    boto3.DEFAULT_SESSION = None
    return monkeypatch


def signed_in(aws: pytest.MonkeyPatch, endpoint: str) -> None:
    aws.setenv("AWS_ACCESS_KEY_ID", "test")
    aws.setenv("AWS_SECRET_ACCESS_KEY", "test")
    aws.setenv("AWS_ENDPOINT_URL", endpoint)


@pytest.fixture
def environment(tmp_path: Path) -> str:
    """An environment of the account that moto's server has."""
    file = tmp_path / "tried.yaml"
    file.write_text(ENVIRONMENT.format(account="123456789012").replace("extends: base", "project: tried"))
    return str(file)


def refusing(status: int, code: str, message: str) -> AbstractContextManager[str]:
    """Serve refusals of everything, the way STS tells them or in JSON to those who speak it."""

    class Refusal(Handler):
        def do_POST(self) -> None:
            kind = self.headers.get("Content-Type", "")
            in_json = json.dumps({"__type": code, "message": message})
            body = (
                in_json
                if "json" in kind
                else f"<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code><Message>{message}</Message>"
                "</Error><RequestId>1</RequestId></ErrorResponse>"
            ).encode()
            self.reply(status, body, Content_Type=kind if "json" in kind else "text/xml")

    return served(Refusal)


@pytest.mark.parametrize(
    ("status", "code", "message", "said"),
    [
        (
            403,
            "ExpiredToken",
            "The security token included in the request is expired",
            "credentials have expired",
        ),
        (400, "ExpiredIteratorException", "Iterator expired", "was refused: ExpiredIteratorException"),
        (403, "InvalidClientTokenId", "The security token is invalid", "does not know these credentials"),
        (403, "SignatureDoesNotMatch", "Check your key", "does not know these credentials"),
        (403, "AccessDenied", "User x is not authorized", "access denied to GetCallerIdentity"),
        (400, "Throttling", "Rate exceeded", "is throttling GetCallerIdentity; wait"),
        (400, "LimitExceededException", "too many", "a quota is used up"),
        (400, "Odd", "unheard of", "GetCallerIdentity was refused: Odd: unheard of"),
    ],
)
@pytest.mark.parametrize("verb", ["start", "deploy"])
def test_a_refusal_is_one_message_with_the_status_of_its_cause(
    aws: pytest.MonkeyPatch, environment: str, verb: str, status: int, code: str, message: str, said: str
) -> None:
    with refusing(status, code, message) as url:
        signed_in(aws, url)
        ended, out, err = millrace(
            verb, "--env", environment, *(["clicks"] if verb == "start" else ["--yes"])
        )
    assert (ended, out) == (2 if "credentials" in said else 1, "")
    assert said in err
    assert "Traceback" not in err
    assert err.startswith(f"millrace {verb}: cannot tell to whom these AWS credentials belong: ")


def test_without_credentials_it_says_how_to_sign_in(aws: pytest.MonkeyPatch, environment: str) -> None:
    ended, _, err = millrace("status", "--env", environment, "clicks")
    assert ended == 2
    assert "no complete AWS credentials; sign in again" in err


def test_an_unknown_profile_is_told(aws: pytest.MonkeyPatch, environment: str) -> None:
    aws.setenv("AWS_PROFILE", "nobody")
    ended, _, err = millrace("status", "--env", environment, "clicks")
    assert ended == 2
    assert "nobody" in err
    assert "aws configure list-profiles" in err


def test_an_address_that_does_not_answer_is_told(aws: pytest.MonkeyPatch, environment: str) -> None:
    signed_in(aws, "http://127.0.0.1:9")
    ended, _, err = millrace("status", "--env", environment, "clicks")
    assert ended == 1
    assert "check the network" in err


@pytest.mark.parametrize(
    ("operation", "code", "message", "throttled"),
    [
        ("ListShards", "LimitExceededException", "", True),
        ("DescribeStreamSummary", "LimitExceededException", "Rate exceeded for account 1.", True),
        ("UpdateShardCount", "LimitExceededException", "Rate exceeded for stream s under account 1.", True),
        ("UpdateShardCount", "LimitExceededException", "10 times in a rolling 24-hour period", False),
        ("CreateStream", "LimitExceededException", "shards", False),
        ("PutRecords", "ProvisionedThroughputExceededException", "", True),
        ("GetRecords", "ThrottledException", "", True),
        ("GetRecords", "ResourceNotFoundException", "", False),
    ],
)
def test_a_question_asked_too_often_is_no_quota_that_is_used_up(
    operation: str, code: str, message: str, throttled: bool
) -> None:
    error = to_aws_error(ClientError({"Error": {"Code": code, "Message": message}}, operation), "asking")
    assert isinstance(error, ThrottledError) == throttled
    assert (f"asking: AWS is throttling {operation}; wait" in str(error)) == throttled
    assert ("a quota is used up" in str(error)) == (code == "LimitExceededException" and not throttled)


def test_what_may_go_when_asked_again_is_told_apart(aws: pytest.MonkeyPatch) -> None:
    def asked(url: str | None = None) -> AwsError:
        if url is not None:
            signed_in(aws, url)
        boto3.DEFAULT_SESSION = None
        with pytest.raises(AwsError) as refused, translating_aws_errors("asking"):
            boto3.client("sts", region_name="us-east-1").get_caller_identity()
        return refused.value

    with refusing(503, "ServiceUnavailable", "later") as url:
        assert isinstance(asked(url), TransientError)
    with refusing(403, "AccessDenied", "never") as url:
        assert not isinstance(asked(url), TransientError)
    assert isinstance(asked("http://127.0.0.1:9"), TransientError)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        aws.delenv(name)
    assert not isinstance(asked(), TransientError)


def test_another_account_is_refused(aws: pytest.MonkeyPatch, moto: str) -> None:
    signed_in(aws, moto)
    ended, _, err = millrace("start", "--env", "dev", "departures")
    assert ended == 2
    assert "belongs to account 111122223333, but these credentials belong to account 123456789012" in err


def test_a_stack_that_is_not_there_is_told(aws: pytest.MonkeyPatch, moto: str, environment: str) -> None:
    signed_in(aws, moto)
    ended, _, err = millrace("start", "--env", environment, "clicks")
    assert ended == 1
    assert re.search(r"stack tried-tried-job-clicks is not deployed: .*`millrace deploy", err)


def test_a_stack_of_an_older_version_is_told(aws: pytest.MonkeyPatch, moto: str, environment: str) -> None:
    signed_in(aws, moto)
    cloudformation = boto3.client("cloudformation", region_name="us-east-1")
    body = '{"Resources": {"T": {"Type": "AWS::SNS::Topic"}}}'
    cloudformation.create_stack(StackName="tried-tried-job-clicks", TemplateBody=body)
    try:
        ended, _, err = millrace("stop", "--env", environment, "clicks")
    finally:
        cloudformation.delete_stack(StackName="tried-tried-job-clicks")
    assert ended == 1
    assert "was deployed by a version of Millrace without state machines" in err


def test_a_deployment_to_an_account_without_bootstrap_ends_before_anything_is_made(
    aws: pytest.MonkeyPatch, moto: str, environment: str
) -> None:
    signed_in(aws, moto)
    boto3.client("ssm", region_name="us-east-1").delete_parameters(Names=["/cdk-bootstrap/hnb659fds/version"])
    ended, out, err = millrace("deploy", "--env", environment, "--yes")
    assert (ended, out) == (1, "")
    assert "bootstrap: cdk bootstrap aws://123456789012/us-east-1" in err
    assert "account 123456789012 is not bootstrapped for CDK in us-east-1; nothing was deployed" in err
    assert "Traceback" not in err


def test_an_environment_that_breaks_a_limit_is_not_deployed(aws: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    text = ENVIRONMENT.format(account="123456789012").replace("extends: base", "project: tried")
    file.write_text(text.replace("engine: glue", "engine: glue\n    worker: G.3X"))
    ended, out, err = millrace("deploy", "--env", str(file), "--yes")
    assert (ended, out) == (2, "")
    assert "jobs.clicks.worker" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("printed", "said"),
    [
        (
            "❌  p-e-storage failed: ToolkitError: p-e-storage: SSM parameter /cdk-bootstrap/hnb659fds/version "
            "not found. Has the environment been bootstrapped? Please run 'cdk bootstrap'",
            "run `cdk bootstrap` for this account once",
        ),
        (
            "ExpiredToken: The security token included in the request is expired\n"
            "    at throwDefaultError (/somewhere/index.js:388:20)",
            "what to do: sign in again",
        ),
        ("Need to perform AWS calls for account 1, but no credentials have been configured", "sign in again"),
        (
            "❌  p-e-network failed: The maximum number of VPCs has been reached. (Service: Ec2, Status Code: 400)",
            "a quota is used up",
        ),
        (
            "❌  p-e-job-x failed: User: arn:aws:iam::1:user/x is not authorized to perform: iam:CreateRole",
            "ask for that permission",
        ),
        ("❌  p-e-job-x failed: Rate exceeded (Service: Kms; Status Code: 400)", "wait a minute"),
        (
            "❌  p-e-job-x failed: Stack p-e-job-x is in UPDATE_ROLLBACK_FAILED state and can not be updated.",
            "cdk rollback",
        ),
        ("❌  p-e-job-x failed: it went back: UPDATE_ROLLBACK_COMPLETE: Invalid worker", "fix the cause"),
    ],
)
def test_what_cdk_prints_becomes_one_message_with_what_to_do(printed: str, said: str) -> None:
    message = cdk_failure_message("deploy", 1, f"{printed}\n{printed}\n")
    first, *rest = message.splitlines()
    assert first == "cdk deploy ended with status 1"
    assert said in rest[-1]
    assert len(rest) == 2  # said once, without CDK's own calls
    assert "index.js" not in message


def test_what_nobody_knows_is_told_as_it_is() -> None:
    assert (
        cdk_failure_message("synth", 2, "something odd\n") == "cdk synth ended with status 2\nsomething odd"
    )


def test_only_what_aws_says_is_translated() -> None:
    with pytest.raises(KeyError), translating_aws_errors("anything"):
        raise KeyError("a mistake of ours")


def test_an_unknown_job_is_the_callers_mistake() -> None:
    ended, out, err = millrace("start", "--env", "dev", "departure")
    assert (ended, out) == (2, "")
    assert (
        err
        == "environment dev: JOB is departure; allowed: one of departures, flights (did you mean departures?)\n"
    )
