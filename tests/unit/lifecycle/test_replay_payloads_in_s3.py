"""`millrace replay` on AWS keeps corrected payloads in S3 for the time of its run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from millrace.cli import app
from millrace.cli.repair import replay as replay_command
from millrace.lifecycle.account.deployed_environment import DeployedEnvironment, split_s3_url
from millrace.lifecycle.aws_error_messages import AwsError
from millrace.lifecycle.jobs.state_machine import EndedRun

JOB, QUERY = "clicks", "land-clicks"
GIVEN = b'{"id": "a/0/1", "payload": "{}"}\n'


@pytest.fixture
def s3(aws: DeployedEnvironment) -> Any:
    client = aws.client("s3")
    client.create_bucket(Bucket=aws.names.bucket("checkpoints"))
    return client


@pytest.fixture
def replay(
    aws: DeployedEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Result]:
    """The command, whose run reads what it is given and ends as it is told."""

    def command(ends: BaseException | EndedRun, meanwhile: Callable[[str, str], None]) -> Result:
        def run_once(
            _aws: DeployedEnvironment, _job: str, asked: list[tuple[str, str]], **_: Any
        ) -> EndedRun:
            meanwhile(*split_s3_url(dict(asked)["--corrected"]))
            if isinstance(ends, BaseException):
                raise ends
            return ends

        monkeypatch.setattr(replay_command, "connect_to_account", lambda _: aws)
        monkeypatch.setattr(replay_command, "run_job_once", run_once)
        monkeypatch.setattr(replay_command, "wait_for_logged_result", lambda *_: None)
        file = tmp_path / "corrected.jsonl"
        file.write_bytes(GIVEN)
        return CliRunner().invoke(
            app, ["replay", JOB, "--env", "minimal", "--corrected", str(file), "--yes", "--json"]
        )

    return command


@pytest.mark.parametrize("versions", [False, True])
@pytest.mark.parametrize(
    ("ends", "status"),
    [
        (EndedRun("r", "SUCCEEDED", ""), 0),
        (EndedRun("r", "FAILED", "why"), 1),
        (AwsError("x"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_corrected_payloads_go_however_the_run_ends(
    replay: Callable[..., Result],
    s3: Any,
    aws: DeployedEnvironment,
    ends: BaseException | EndedRun,
    status: int,
    versions: bool,
) -> None:
    bucket, read = aws.names.bucket("checkpoints"), list[bytes]()
    if versions:
        s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})

    def look(bucket: str, key: str) -> None:
        assert key.startswith(f"{JOB}/_millrace/replays/")
        read.append(s3.get_object(Bucket=bucket, Key=key)["Body"].read())

    done = replay(ends, look)
    assert (done.exit_code, read) == (status, [GIVEN])
    left = s3.list_object_versions(Bucket=bucket)
    assert (left.get("Versions", []), left.get("DeleteMarkers", [])) == ([], [])


def test_payloads_that_cannot_be_deleted_are_told_beside_what_the_run_said(
    replay: Callable[..., Result], s3: Any
) -> None:
    def lose(bucket: str, key: str) -> None:
        s3.delete_object(Bucket=bucket, Key=key)
        s3.delete_bucket(Bucket=bucket)

    done = replay(EndedRun("r", "SUCCEEDED", ""), lose)
    assert done.exit_code == 0
    assert json.loads(done.stdout)["state"] == "SUCCEEDED"
    assert done.stderr.startswith("millrace replay: the file with the corrected payloads was not deleted: ")
