"""The local stand-in of an environment has no remote name, and the same streams, jobs and queries."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from millrace.config import environment_names, load
from millrace.sandbox import localstack_deployment as module
from millrace.sandbox.environment_trial import jobs_with_upstream, streams_read_by
from millrace.sandbox.localstack_deployment import make_stand_in
from millrace.sandbox.programs.localstack import ACCOUNT
from millrace.sandbox.programs.toolchain import ROOT

COMPANY = """\
project: depot
account: "444455556666"
region: eu-west-1
network: {vpc: vpc-0a1b2c3d4e5f60718, subnets: [subnet-0a1b2c3d4e5f60718, subnet-0b1b2c3d4e5f60719]}
storage:
  buckets: {lake: acme-lake, checkpoints: acme-checkpoints}
  database: acme_lake
  keys: {data: "arn:aws:kms:eu-west-1:444455556666:key/1234abcd-12ab-34cd-56ef-1234567890ab"}
governance:
  permissions_boundary: arn:aws:iam::444455556666:policy/Boundary
  qualifier: acme1
  other_accounts: ["777788889999"]
kafka:
  msk: {kind: msk, existing: "arn:aws:kafka:eu-west-1:444455556666:cluster/acme/1234abcd-12ab-34cd-56ef-1234567890ab-1"}
  other: {kind: external, bootstrap_servers: "kafka.example.com:9092"}
tables:
  depots: {database: reference, table: depots, location: s3://acme-reference/depots}
streams:
  clicks:
    kind: kinesis
    mode: on-demand
    existing: arn:aws:kinesis:eu-west-1:777788889999:stream/clicks
    read_role: arn:aws:iam::777788889999:role/read
    shards: 2
    traffic: {records_per_second: 100, record_size: 300B}
  scans:
    kind: kafka
    cluster: msk
    existing: true
    topic: acme.scans
    partitions: 3
    traffic: {records_per_second: 50, record_size: 300B}
  copies:
    kind: kafka
    cluster: other
    existing: true
    topic: acme.scans
    partitions: 3
    traffic: {records_per_second: 50, record_size: 300B}
  every:
    kind: kafka
    cluster: msk
    existing: true
    pattern: acme\\.depot\\..*
    partitions: 4
    traffic: {records_per_second: 50, record_size: 300B}
jobs:
  clicks:
    engine: glue
    role: arn:aws:iam::444455556666:role/jobs
    queries:
      land-clicks: {kind: land, source: clicks, table: clicks_landed, schema: pipelines/clicks/schemas/click.ddl}
  kafka:
    engine: emr
    image: 444455556666.dkr.ecr.eu-west-1.amazonaws.com/spark:1
    queries:
      land-scans: {kind: land, source: scans, table: scans_landed, schema: pipelines/clicks/schemas/click.ddl}
      land-copies: {kind: land, source: copies, table: copies_landed, schema: pipelines/clicks/schemas/click.ddl}
      land-every: {kind: land, source: every, table: every_landed, schema: pipelines/clicks/schemas/click.ddl}
  derived:
    engine: glue
    queries:
      copy:
        kind: derive
        source: clicks_landed
        enrich: [{table: depots, on: {page: page}, columns: {depot: name}}]
        sink: {kind: iceberg, table: clicks_copied}
"""


IN_TURNS = """\
project: depot
account: "{}"
streams:
  clicks: {{kind: kinesis, traffic: {{records_per_second: 5, record_size: 1KiB}}}}
jobs:
  clicks:
    engine: glue
    latency: 15m
    run_every: 10m
    queries:
      land: {{kind: land, source: clicks, table: landed, schema: pipelines/clicks/schemas/click.ddl}}
"""


@pytest.fixture
def company(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(module, "RUN", tmp_path / "run")
    file = tmp_path / "company.yaml"
    file.write_text(COMPANY)
    return file


def test_nothing_of_another_place_is_left(company: Path) -> None:
    loaded = load(company, ROOT)
    result = make_stand_in(loaded, str(company))
    environment = result.environment
    assert (environment.name, environment.account, environment.region) == ("company", ACCOUNT, "eu-west-1")
    text = Path(result.name).read_text()
    left = text.replace('"444455556666"', "", 1).replace('"777788889999"', "", 1)  # other_accounts names both
    assert not re.search(r"4444|7777|arn:|vpc-|subnet-|acme-lake|kafka\.example", left)
    # One broker holds all topics: no two streams share one.
    topics = [result.names.stream(name) for name in ("scans", "copies", "every")]
    assert topics == ["msk.acme.scans", "other.acme.scans", "every"]
    assert environment.streams.keys() == loaded.streams.keys()
    for name, job in loaded.jobs.items():
        assert environment.jobs[name].queries == job.queries
    for part in ("account 444455556666", "network.vpc", "cluster msk", "stream clicks", "role of job clicks"):
        assert part in result.replaced


def test_a_name_that_is_free_on_its_broker_stays(company: Path) -> None:
    without = re.sub(r"  copies:\n(?:    .*\n)+|      land-copies.*\n", "", COMPANY)
    company.write_text(without)
    assert make_stand_in(load(company, ROOT)).names.stream("scans") == "acme.scans"


@pytest.mark.parametrize("account", ["444455556666", ACCOUNT])
def test_a_job_that_runs_in_turns_runs_all_the_time_here(company: Path, account: str) -> None:
    company.write_text(IN_TURNS.format(account))
    result = make_stand_in(load(company, ROOT), str(company))
    assert result.environment.jobs["clicks"].run_every is None
    assert result.environment.jobs["clicks"].latency.total_seconds() == 900
    assert "run_every of job clicks" in result.replaced
    assert make_stand_in(result.environment, result.name).replaced == ()


@pytest.mark.parametrize("name", environment_names(ROOT))
def test_each_environment_of_the_repository_has_one(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RUN", tmp_path)
    loaded = load(name, ROOT)
    result = make_stand_in(loaded, name)
    assert (result.name == name) is (loaded.account == ACCOUNT)
    assert result.names.prefix == f"{loaded.project}-{name}"
    # A stand-in needs none itself.
    assert make_stand_in(result.environment, result.name).replaced == ()


def test_a_job_needs_those_that_land_what_it_derives_from(company: Path) -> None:
    loaded = load(company, ROOT)
    assert jobs_with_upstream(loaded, "derived") == ("clicks", "derived")
    assert streams_read_by(loaded, ("clicks", "derived")) == ("clicks",)
    assert jobs_with_upstream(loaded, "kafka") == ("kafka",)
    assert jobs_with_upstream(loaded, None) == ("clicks", "kafka", "derived")
