"""Policies for people allow the calls of the commands and no others."""

from __future__ import annotations

import functools
import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App
from botocore.client import BaseClient
from policy_sentry.querying.actions import get_action_data
from typer.testing import CliRunner

from millrace.cli import app
from millrace.cli.plan.policies import policy_documents
from millrace.cli.plan.report import preflight_command
from millrace.cli.run import shared_cdk_steps
from millrace.config import ConfigurationError, Names, load
from millrace.etl.launch import typed_json
from millrace.infra.environment_permission_scope import PermissionScope
from millrace.infra.environment_stacks import build_stacks
from millrace.infra.launch.launch_settings import job_settings
from millrace.infra.permissions.permissions_by_command import (
    ROLES,
    grants_of_command,
    policy_documents_of_role,
)
from millrace.infra.permissions.split_policies import MANAGED
from millrace.lifecycle.account.catalog_columns import table_names_in_settings
from millrace.lifecycle.audits import kafka as audit_kafka
from millrace.lifecycle.audits.records_in_tables import LandedRecords
from millrace.lifecycle.jobs import erasure_requests as erasing
from millrace.lifecycle.upgrade_or_rollback_job import JobVersion
from millrace.sandbox import rehearse_job_table_changes
from millrace.sandbox.programs import cdk, history_server
from millrace.sandbox.programs.child_processes import SandboxError
from millrace.sizing import plan
from tests.unit.cli.simulated_account import Account, Asked

ROOT = Path(__file__).parents[3]
SINCE = ("--since", "2026-11-20", "--until", "2026-11-21")

COMMANDS: dict[str, list[tuple[tuple[str, ...], int]]] = {
    "preflight": [(("preflight",), 0)],
    "deploy": [(("deploy", "--yes"), 0)],
    "upgrade": [(("upgrade", "flights", "--yes"), 0), (("upgrade", "departures", "--yes"), 0)],
    "rollback": [(("rollback", "flights", "--yes"), 0)],
    "start": [(("start", "flights"), 0), (("start", "ground"), 0)],
    "stop": [(("stop", "flights"), 0)],
    "drain": [(("drain", "departures"), 0)],
    "status": [(("status", "departures"), 0)],
    "logs": [(("logs", "departures", "--errors"), 0), (("logs", "flights"), 0)],
    "checkpoint": [
        (("checkpoint", "show", "departures"), 0),
        (("checkpoint", "reset", "departures", "land-departures", "--yes"), 0),
    ],
    "replay": [
        (("replay", "departures", "--corrected", "CORRECTED", "--yes"), 0),
        (("replay", "flights", "--query", "land-flights", "--yes"), 0),
    ],
    # The run of a fake leaves no measurements behind.
    "bench": [(("bench", "flights", "--query", "land-flights", "--on", "emr", "--yes"), 1)],
    "backfill": [(("backfill", "departures", "--yes", *SINCE), 0)],
    # No job runs that would answer.
    "erase": [(("erase", "--where", "carrier = 'AA'", "--yes"), 1)],
    "audit": [
        (("audit", "departures", "--hours", "3"), 0),
        (("audit", "positions", "--hours", "3", "--read"), 0),
        (("audit", "flights", "--hours", "3", "--query", "land-flights"), 0),
    ],
    "split": [(("split", "flights", "--query", "land-flights", "--jobs", "2"), 0)],
    "schema": [(("schema", "check"), 0)],
    # No server is started here.
    "history": [(("history",), 1)],
    # The tags of an empty bill are asked for.
    "cost": [(("cost", "--actual", "--since", "2026-11-01", "--until", "2026-11-02"), 1)],
}


@pytest.fixture(scope="module")
def scope() -> PermissionScope:
    environment = load("prod", root=ROOT)
    names = Names(environment, environment.account or "")
    settings = [
        typed_json.to_json_value(job_settings(environment, job, names))
        for job in plan(environment).jobs.values()
    ]
    return PermissionScope(names, table_names_in_settings(settings))


@pytest.fixture(scope="module")
def assembly(scope: PermissionScope, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("assembly")
    context = json.loads((ROOT / "cdk.json").read_text())["context"]
    made = App(outdir=str(folder), context=context, analytics_reporting=False)
    build_stacks(made, names=scope.names, plan=plan(scope.names.environment), root=ROOT)
    made.synth()
    return folder


class _Table:
    """A landing table that was read up to now, whose catalog is asked for it."""

    def offsets_in_and_around_window(self, *_: Any) -> dict[tuple[str, int], set[int]]:
        return {}

    def offsets_between(self, *_: Any) -> set[int]:
        return set()

    def sequence_numbers_since(self, *_: Any) -> frozenset[str]:
        return frozenset()

    def counts_by_minute(self, *_: Any) -> dict[datetime, int]:
        return {}

    def has_record_before(self, *_: Any) -> bool:
        return True

    def count_good_records(self, *_: Any) -> int:
        return 0


@pytest.fixture(scope="module")
def monkeypatch_module() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="module")
def account(
    scope: PermissionScope,
    assembly: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch_module: pytest.MonkeyPatch,
) -> Account:
    """The environment in its account, which notes what is asked; CDK, Spark and brokers are left out."""
    made, monkeypatch = Account(scope.names, assembly), monkeypatch_module
    tmp_path = tmp_path_factory.mktemp("state")
    monkeypatch.setattr(BaseClient, "_make_api_call", lambda *given: made.call(*given))
    monkeypatch.setattr(shared_cdk_steps, "state_folder", lambda: tmp_path)
    monkeypatch.setattr(
        cdk,
        "synthesise_assembly",
        lambda _env, folder, *_, **__: shutil.copytree(assembly, folder, dirs_exist_ok=True),
    )
    monkeypatch.setattr(
        preflight_command,
        "synthesize_templates",
        lambda *_: {
            f.name.split(".")[0]: json.loads(f.read_text()) for f in assembly.glob("*.template.json")
        },
    )
    monkeypatch.setattr(cdk, "run_cdk", lambda *_, **__: None)
    monkeypatch.setattr(
        rehearse_job_table_changes,
        "rehearse_starts",
        lambda *_: rehearse_job_table_changes.StartRehearsal({}, ()),
    )
    monkeypatch.setattr(history_server, "start_history_server", _refuse)
    monkeypatch.setitem(erasing.ErasureRequests.wait_for_answers.__kwdefaults__, "patience_seconds", -1.0)
    monkeypatch.setattr(
        audit_kafka.TopicReader, "offsets_at_times", functools.partialmethod(_boundaries, made)
    )

    def opened(tables: Any, name: str, _source: str) -> _Table:
        with pytest.raises(Exception, match=name.split(".")[1]):
            tables.load_table(name)
        # What PyIceberg reads of it: its metadata, its manifests and its files, all below the table's place.
        table = name.split(".")[1]
        place = f"{scope.names.bucket('lake')}/warehouse/{scope.names.database}.db/{table}/data/x.parquet"
        made.asked |= {
            Asked("s3:GetObject", f"arn:{scope.names.aws_partition}:s3:::{place}"),
            made._key("s3", "Decrypt"),
        }
        return _Table()

    monkeypatch.setattr(LandedRecords, "open", opened)
    for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(key, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", scope.names.environment.region)
    for name in scope.tables:
        database, table = name.split(".")
        key = f"warehouse/{database}.db/{table}/metadata/1.metadata.json"
        made.objects[scope.names.bucket("lake"), key] = b'{"schema": {"fields": []}}'
    for job in scope.job_names:
        stack = scope.names.stack(f"job-{job}")
        made.deploy(stack)
        version = JobVersion(
            job, "20261101T000000000000Z", made.old_url(stack).replace("old", "older"), made._template(stack)
        )
        body = json.dumps(version.__dict__).encode()
        digest = hashlib.sha256(body).hexdigest()
        place = (scope.names.bucket("checkpoints"), f"_versions/{job}/{digest}.json")
        made.objects[place] = body
        told = {"sha256": digest, "document_url": version.document_url}
        made.versions[scope.names.versions_parameter(job)] = [json.dumps(told)]
        bucket, key = version.document_url.removeprefix("s3://").split("/", 1)
        made.objects[bucket, key] = made.objects[bucket, key.replace("older", "old")]
        for query, log in (
            (
                "land-departures",
                {"shardId-0": {"iteratorType": "AFTER_SEQUENCE_NUMBER", "iteratorPosition": "7"}},
            ),
            (
                "land-positions",
                {"shardId-0": {"iteratorType": "AFTER_SEQUENCE_NUMBER", "iteratorPosition": "7"}},
            ),
            ("land-flights", {"flights": {"0": 5, "1": 5}}),
        ):
            if query in scope.names.environment.jobs[job].queries:
                for name, text in (("offsets/0", f"v1\n{{}}\n{json.dumps(log)}"), ("commits/0", "v1\n{}")):
                    made.objects[place[0], f"{job}/{query}/{name}"] = text.encode()
        logs = scope.names.environment.jobs[job].engine
        made.objects[scope.names.bucket("event-logs"), f"{logs}/{job}/log"] = b"{}"
    return made


def _refuse(*_: Any) -> Any:
    raise SandboxError("no server is started here")


def _boundaries(self: audit_kafka.TopicReader, account: Account, moments: Any, _only: Any) -> Any:
    """Ask what a consumer with a group's name asks a broker: the cluster, the topic, its records, the coordinator."""
    place = account._arn("kafka", "cluster/flights-prod-operations/1234")
    account.asked |= {
        Asked("kafka-cluster:Connect", place),
        Asked("kafka-cluster:DescribeGroup", f"{place.replace(':cluster/', ':group/')}/millrace-audit"),
        *(
            Asked(f"kafka-cluster:{verb}", f"{place.replace(':cluster/', ':topic/')}/{self.name}")
            for verb in ("DescribeTopic", "ReadData")
        ),
    }
    return {p: audit_kafka.OffsetsAtHours(0, tuple(5 for _ in moments)) for p in range(2)}


@pytest.fixture(scope="module")
def ran(account: Account, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], set[Asked]]:
    """Run the commands of one name, once; what they asked."""
    held, tmp_path = dict(account.objects), tmp_path_factory.mktemp("ran")

    @functools.cache
    def run(command: str) -> set[Asked]:
        account.asked.clear()
        account.states[:] = ["STARTED"]
        # The others ask PyIceberg for tables, which does not get its files from botocore.
        with_tables = command in ("deploy", "upgrade", "schema")
        account.tables = account.metadata_urls() if with_tables else {}
        account.objects.clear()
        account.objects.update(held)
        corrected = tmp_path / "corrected.jsonl"
        corrected.write_text("{}\n")
        for arguments, status in COMMANDS[command]:
            account.lines = (
                [
                    {
                        "timestamp": int((datetime.now(UTC) - timedelta(minutes=1)).timestamp() * 1000),
                        "message": "Traceback (most recent call last):\nValueError: x",
                        "logStreamName": "driver",
                        "eventId": "1",
                    }
                ]
                if command == "logs"
                else []
            )
            given = [str(corrected) if each == "CORRECTED" else each for each in arguments]
            done = CliRunner().invoke(app, [*given, "--env", "prod"])
            assert done.exit_code == status, (arguments, done.output, done.exception)
        return set(account.asked)

    return run


@pytest.mark.parametrize(
    "command",
    # It synthesises all templates.
    [pytest.param(each, marks=[pytest.mark.slow] * (each == "preflight")) for each in COMMANDS],
)
def test_what_a_command_asks_is_allowed(
    scope: PermissionScope, ran: Callable[[str], set[Asked]], command: str
) -> None:
    asked = ran(command)
    assert asked
    statements = grants_of_command(scope, command)
    refused = sorted(
        (each for each in asked if {g.effect for g in statements if each.allowed(g)} != {"Allow"}), key=str
    )
    assert refused == []


def test_the_metadata_of_a_given_table_is_read_with_its_key_and_no_row_of_it(tmp_path: Path) -> None:
    key = "arn:aws:kms:us-east-1:444455556666:key/12ab"
    file = tmp_path / "plant.yaml"
    text = (ROOT / "environments/minimal.yaml").read_text()
    file.write_text(
        f"{text}\ngovernance: {{other_accounts: ['444455556666']}}\ntables:\n"
        f"  sites: {{database: crm, table: sites, location: s3://crm-lake/sites/, key: '{key}'}}\n"
    )
    environment = load(str(file), root=ROOT)
    names = Names(environment, environment.account or "")
    own = f"arn:aws:s3:::{names.bucket('lake')}/warehouse/{names.database}.db/landed/metadata/1.metadata.json"
    wanted = {own, "arn:aws:s3:::crm-lake/sites/metadata/1.metadata.json"}
    for tables, expected in ((("crm.sites",), True), ((), False)):
        given = PermissionScope(names, (f"{names.database}.landed", *tables))
        for command in ("deploy", "schema"):
            grants = grants_of_command(given, command)
            reads = [each for each in grants if each.sid == "ReadTableMetadata"]
            allowed = {
                place for place in wanted if any(Asked("s3:GetObject", place).allowed(g) for g in reads)
            }
            assert allowed == (wanted if expected else {own})
            via = (("kms:ViaService", f"s3.{environment.region}.amazonaws.com"),)
            assert (
                any(Asked("kms:Decrypt", key, via).allowed(g) for g in grants if g.sid != "Decrypt")
                == expected
            )
            rows = "arn:aws:s3:::crm-lake/sites/data/1.parquet"
            assert not any(Asked("s3:GetObject", rows).allowed(g) for g in grants)


def test_nobody_but_a_deployer_writes_what_a_rollback_deploys(scope: PermissionScope) -> None:
    names = scope.names
    for job in scope.job_names:
        place = names.versions_url(job).replace("s3://", f"arn:{names.aws_partition}:s3:::")
        parameter = names.arn("ssm", f"parameter{names.versions_parameter(job)}")
        for each in (Asked("s3:PutObject", f"{place}/1.json"), Asked("ssm:PutParameter", parameter)):
            for role, effect in (("deployer", "Allow"), ("operator", "Deny")):
                told = [
                    g for command in ROLES[role] for g in grants_of_command(scope, command) if each.allowed(g)
                ]
                assert {g.effect for g in told} == {effect}, (role, each)


@pytest.mark.parametrize("role", ROLES)
def test_nobody_chooses_what_a_run_is_started_with(scope: PermissionScope, role: str) -> None:
    """Who starts a run of a job's engine, or passes its role, chooses its code: everything that the role may is theirs."""
    said = json.dumps(policy_documents_of_role(scope, role))
    for action in ("StartJobRun", "PassRole", "UpdateJob", "CreateJob"):
        assert action not in said
    # A role of another environment, whose name begins with the same letters, is none of theirs.
    assert [each for each in re.findall(r'"arn:[^"]*:role/[^"]*"', said) if "*" in each] == []


def test_every_command_of_a_person_is_tried() -> None:
    assert set(COMMANDS) == {command for commands in ROLES.values() for command in commands}


@pytest.mark.parametrize("role", ROLES)
def test_no_action_is_allowed_that_no_command_asks_for(
    scope: PermissionScope, ran: Callable[[str], set[Asked]], role: str
) -> None:
    asked = {each for command in ROLES[role] for each in ran(command)}
    statements = [grant for command in ROLES[role] for grant in grants_of_command(scope, command)]
    idle = {
        (grant.sid, action)
        for grant in statements
        for action in grant.actions
        if grant.effect == "Allow"
        and not any(each.action == action and each.allowed(grant) for each in asked)
    }
    # CDK asks for these roles itself; the test below holds them against the assembly.
    known = {("ActAsBootstrapRoles", "sts:AssumeRole")}
    if role == "deployer":
        # A deployment reads the trace behind an error of a job that fails after its start, as `logs --errors` does.
        known.add(("ReadLines", "logs:GetLogEvents"))
        # One that would take an export away asks who imports it (tests/unit/lifecycle/test_removed_exports.py).
        known.add(("FindImports", "cloudformation:ListImports"))
        # A first deployment asks for the VPCs and addresses that are in use (tests/unit/lifecycle/test_preflight.py).
        known |= {("AskAccount", f"ec2:Describe{each}") for each in ("Vpcs", "Addresses")}
        # One that finds a bucket of a removed stack asks for its key (tests/unit/lifecycle/test_preflight.py).
        known.add(("FindBuckets", "s3:GetEncryptionConfiguration"))
    assert idle - known == set()


def test_the_roles_of_the_bootstrap_are_those_of_the_assembly(scope: PermissionScope, assembly: Path) -> None:
    names = scope.names
    wanted: set[str] = set()
    for artifact in json.loads((assembly / "manifest.json").read_text())["artifacts"].values():
        if "assumeRoleArn" in artifact.get("properties", {}):
            wanted.add(artifact["properties"]["assumeRoleArn"])
    for file in assembly.glob("*.assets.json"):
        assets = json.loads(file.read_text())
        for each in (*assets.get("files", {}).values(), *assets.get("dockerImages", {}).values()):
            wanted |= {destination["assumeRoleArn"] for destination in each["destinations"].values()}
    resolved = {each.replace("${AWS::Partition}", names.aws_partition) for each in wanted}
    (grant,) = (each for each in grants_of_command(scope, "deploy") if each.sid == "ActAsBootstrapRoles")
    assert set(grant.resources) == resolved
    (grant,) = (each for each in grants_of_command(scope, "deploy") if each.sid == "CompareStacks")
    stacks = {file.name.removesuffix(".template.json") for file in assembly.glob("*.template.json")}
    assert all(any(fnmatch(f"{stack}/id", r.split("/", 1)[1]) for r in grant.resources) for stack in stacks)


@pytest.mark.parametrize("role", ROLES)
def test_policies_are_such_as_iam_takes(scope: PermissionScope, role: str) -> None:
    for policy in policy_documents_of_role(scope, role):
        assert len(json.dumps(policy, separators=(",", ":"))) <= MANAGED
        sids = [each["Sid"] for each in policy["Statement"]]
        assert len(sids) == len(set(sids))
        assert all(sid.isalnum() for sid in sids)
        for each in policy["Statement"]:
            for action in each["Action"]:
                service, name = action.split(":")
                known = get_action_data(service, name)
                assert known, action
                if each["Resource"] == ["*"]:
                    assert {row["resource_arn_format"] for row in known[service]} == {"*"}, action


def test_names_follow_partition_and_qualifier(tmp_path: Path) -> None:
    file = tmp_path / "plant.yaml"
    text = (ROOT / "environments/minimal.yaml").read_text().replace("project: hello", "project: plant")
    file.write_text(f"{text}\nregion: cn-north-1\ngovernance: {{qualifier: acme1, name_prefix: co}}\n")
    result = policy_documents(load(str(file), root=ROOT))
    assert set(result) == {"deployer-1.json", "deployer-2.json", "operator.json"}
    whole = json.dumps(result)
    assert "arn:aws:" not in whole
    assert "arn:aws-cn:iam::111122223333:role/cdk-acme1-deploy-role-111122223333-cn-north-1" in whole
    assert "stack/co-plant-plant-*" in whole
    assert "emr-serverless" not in whole, "no job runs there"
    assert "kafka" not in whole.replace("-kafka/", ""), "no stream is there"


def test_an_environment_without_account_is_told_what_to_do(tmp_path: Path) -> None:
    file = tmp_path / "plant.yaml"
    text = (ROOT / "environments/minimal.yaml").read_text()
    file.write_text("\n".join(line for line in text.splitlines() if not line.startswith("account")))
    with pytest.raises(ConfigurationError, match="write account: into the environment file"):
        policy_documents(load(str(file), root=ROOT))


def test_a_role_of_a_workflow_trusts_one_environment_of_one_repository(tmp_path: Path) -> None:
    asked = ["policies", "--env", "prod", "--out", str(tmp_path), "--repository"]
    done = CliRunner().invoke(app, [*asked, "acme/streams"])
    assert done.exit_code == 0, done.output
    (statement,) = json.loads((tmp_path / "trust.json").read_text())["Statement"]
    issuer = "token.actions.githubusercontent.com"
    assert statement["Principal"]["Federated"].endswith(f":oidc-provider/{issuer}")
    assert statement["Condition"] == {
        "StringEquals": {
            f"{issuer}:aud": "sts.amazonaws.com",
            f"{issuer}:sub": "repo:acme/streams:environment:prod",
        }
    }
    for wrong in ("acme/*", "acme", "acme/streams:ref:refs/heads/*", "*/streams"):
        with pytest.raises(ConfigurationError, match="one repository as OWNER/NAME, without a wildcard"):
            CliRunner().invoke(app, [*asked, wrong], catch_exceptions=False)


def test_files_of_before_do_not_stay(tmp_path: Path) -> None:
    (tmp_path / "operator-7.json").write_text("{}")
    (tmp_path / "mine.json").write_text("{}")
    done = CliRunner().invoke(app, ["policies", "--env", "prod", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert not (tmp_path / "operator-7.json").exists()
    assert (tmp_path / "mine.json").exists()
    assert json.loads((tmp_path / "deployer-1.json").read_text())["Version"] == "2012-10-17"
