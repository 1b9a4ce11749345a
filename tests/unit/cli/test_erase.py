"""``millrace erase`` shows matches, asks once, refuses wide or wrong conditions, and follows the erasure to its end."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from millrace.config import Names, load
from millrace.etl.launch.erase_request_and_benchmark_schedule import EraseRequest
from millrace.lifecycle.audits.query_audit import AuditedDeployment
from millrace.lifecycle.jobs import erasure_requests as erasing
from millrace.sandbox import operate_running_sandbox
from tests.unit.cli.test_command_output import ROOT, Done, millrace

WHERE = "carrier = 'AA'"
TABLE = {"kind": "landing", "rows": 3, "dead_letters": 1, "of": 100, "files": 2, "snapshots": 9}

OTHERS = """
      copy:
        kind: derive
        source: clicks_landed
        dead_letters: clicks_refused
        sink:
          kind: jdbc
          url: jdbc:postgresql://localhost/shop
          table: clicks
          tls: "off"
          secret: arn:aws:secretsmanager:us-east-1:111122223333:secret:shop-AbCdEf
      unique:
        kind: derive
        source: clicks_landed
        sink: {kind: iceberg, table: clicks_unique}
        state: {watermark: {time: _arrived_at, delay: 1h}, distinct: [session]}
"""


@dataclass
class Jobs:
    """The checkpoints' bucket, and jobs that answer what is laid into it at once."""

    tables: dict[str, dict[str, Any]] = field(default_factory=lambda: {"lake.db.flights": dict(TABLE)})
    problems: list[str] = field(default_factory=list)
    wide: list[str] = field(default_factory=list)
    objects: dict[str, bytes] = field(default_factory=dict)
    asked: list[dict[str, Any]] = field(default_factory=list)
    deleted: list[str | None] = field(default_factory=list)
    versioned: bool = False
    silent: bool = False

    def put_object(self, *, Bucket: str, Key: str, Body: bytes) -> dict[str, Any]:
        del Bucket
        self.objects[Key] = Body
        request = json.loads(Body)
        self.asked.append(request)
        if not self.silent:
            state = "refused" if self.problems else "done" if request["apply"] else "previewed"
            answer = {
                "state": state,
                "problems": self.problems,
                "tables": {} if self.problems else self.tables,
            }
            answer |= {"left_out": [], "waiting": [], "wide": self.wide}
            self.objects[Key.replace("request", request["id"])] = json.dumps(answer).encode()
        return {"VersionId": "v1"} if self.versioned else {}

    def get_object(self, *, Bucket: str, Key: str) -> dict[str, Any]:
        del Bucket
        if Key not in self.objects:
            raise ClientError({"Error": {"Code": "NoSuchKey", "Message": "no"}}, "GetObject")
        return {"Body": io.BytesIO(self.objects[Key])}

    def delete_object(self, *, Bucket: str, Key: str, VersionId: str | None = None) -> None:
        del Bucket
        self.deleted.append(VersionId)
        self.objects.pop(Key, None)

    def get_caller_identity(self) -> dict[str, str]:
        return {"Arn": "arn:aws:iam::111122223333:user/me"}


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    made = Jobs()
    environment = load("prod", root=ROOT)

    def none() -> Any:
        raise AssertionError("asked for")

    place = AuditedDeployment(Names(environment, "111122223333"), lambda _: made, none, lambda _: {})
    monkeypatch.setattr(operate_running_sandbox, "running_sandbox_deployment", lambda _: place)
    monkeypatch.setattr(operate_running_sandbox, "run_jobs_during_block", lambda *_: nullcontext())
    return made


def erase(*options: str, where: str = WHERE) -> Done:
    return millrace("erase", "--env", "prod", "--where", where, *options)


def test_what_matches_is_shown_and_nothing_is_asked_for(jobs: Jobs) -> None:
    done = erase("--dry-run")
    assert done.returncode == 0
    assert "db.flights" in done.stdout
    assert "stream flights: the source keeps its records" in done.stdout
    assert "Dead letters have no columns" in done.stdout
    told = json.loads(erase("--json").stdout)
    assert (told["state"], told["tables"][0]["dead_letters"]) == ("previewed", 1)
    assert not any(each["apply"] for each in jobs.asked)
    assert jobs.objects == {}


def test_without_a_terminal_it_wants_yes(jobs: Jobs) -> None:
    done = erase()
    assert (done.returncode, jobs.objects) == (2, {})
    assert "--yes" in done.stderr
    assert not any(each["apply"] for each in jobs.asked)


def test_it_is_asked_of_every_job_once_and_followed(jobs: Jobs) -> None:
    jobs.versioned = True
    done = erase("--yes", "--keep-condition", "--json")
    told = json.loads(done.stdout)
    assert (done.returncode, told["state"]) == (0, "done")
    asked = [each for each in jobs.asked if each["apply"]]
    assert len(asked) == len(load("prod", root=ROOT).jobs)
    assert {each["id"] for each in asked} == {told["erasure"]}
    assert (asked[0]["by"], asked[0]["keep_condition"]) == ("arn:aws:iam::111122223333:user/me", True)
    # What to do elsewhere is told with the condition, and recorded without.
    assert [line.replace("CONDITION", WHERE) for line in asked[0]["left_out"]] == told["not_covered"]
    # The condition stays nowhere, in no older version either.
    assert jobs.objects == {}
    assert jobs.deleted.count("v1") == len(jobs.asked)
    assert "is done; rows erased: db.flights 3" in erase("--yes").stdout


def test_what_is_under_way_is_followed_and_no_other_begins(jobs: Jobs) -> None:
    key = "flights/_millrace/erase/request.json"
    request = EraseRequest(
        "e0", WHERE, apply=True, by="you", asked_at="now", keep_condition=False, left_out=()
    )
    jobs.objects[key] = json.dumps(request.__dict__).encode()
    done = erase(where="carrier = 'BB'")
    assert done.returncode == 2
    assert "erasure e0, requested by you, is still running" in done.stderr
    for job in load("prod", root=ROOT).jobs:
        answer = {"state": "done", "problems": [], "tables": {}, "left_out": [], "waiting": []}
        jobs.objects[f"{job}/_millrace/erase/e0.json"] = json.dumps(answer).encode()
    assert (erase().returncode, jobs.asked, jobs.objects) == (0, [], {})


def test_a_condition_that_matches_much_wants_a_deployment(jobs: Jobs) -> None:
    jobs.wide = ["lake.db.flights: 11 of 100 rows, more than 10%"]
    done = erase("--yes")
    assert done.returncode == 2
    assert "matches much of a table (lake.db.flights: 11 of 100 rows, more than 10%" in done.stderr
    assert "storage.erase_share" in done.stderr
    assert not any(each["apply"] for each in jobs.asked)


def test_all_that_is_wrong_is_told_at_once(jobs: Jobs) -> None:
    jobs.problems = ["lake.db.flights: no column custmer", "lake.db.sales: true of every record"]
    done = erase("--yes")
    assert done.returncode == 2
    assert all(problem in done.stderr for problem in jobs.problems)
    assert jobs.objects == {}
    jobs.problems, jobs.tables = [], {}
    assert erase("--yes").returncode == 2


def test_nothing_that_matches_and_nobody_who_answers(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs.tables["lake.db.flights"] |= {"rows": 0, "dead_letters": 0}
    done = erase("--yes")
    assert (done.returncode, "no record matches" in done.stderr) == (0, True)
    jobs.silent = True
    # Not the constant, which the default took when the module was read.
    defaults = erasing.ErasureRequests.wait_for_answers.__kwdefaults__
    monkeypatch.setitem(defaults, "patience_seconds", -1.0)
    done = erase("--yes")
    assert done.returncode == 1
    assert "did not answer" in done.stderr
    assert "millrace status --env prod" in done.stderr
    assert jobs.objects == {}


def test_other_sinks_state_and_copies_are_named(tmp_path: Path) -> None:
    text = (ROOT / "environments" / "minimal.yaml").read_text()
    (tmp_path / "environments").mkdir()
    (tmp_path / "pipelines").symlink_to(ROOT / "pipelines")
    (tmp_path / "environments" / "shop.yaml").write_text(text + OTHERS)
    environment = load("shop", root=tmp_path)
    told = "\n".join(erasing.places_not_erased(environment, Names(environment, "111122223333"), WHERE))
    for said in (
        "stream clicks: the source keeps its records (1d",
        f"clicks/copy: jdbc:postgresql://localhost:5432/shop public.clicks: DELETE FROM public.clicks WHERE {WHERE}",  # noqa: S608 - told, not run
        "clicks/unique keeps state in its checkpoint",
        "`millrace checkpoint reset clicks unique`",
        "deleted when they are 7d old",
        "Spark's event logs hold the condition's values",
    ):
        assert said in told, told
