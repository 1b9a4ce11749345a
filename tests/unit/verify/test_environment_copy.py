"""The verification's copy is like its model, with own names where something is written or deleted."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millrace.config import ConfigurationError, Environment, Names, environment_names, load
from millrace.config.model import KafkaTopic
from millrace.config.network_storage_governance_observability import Bucket, Disposable
from millrace.config.queries import DeriveQuery, LandQuery
from millrace.sizing import plan
from millrace.verify import aws_target
from millrace.verify.environment_copy import NAME as NAMES
from millrace.verify.environment_copy import (
    SHARDS,
    TAG,
    VerificationSettings,
    random_verification_name,
    write_verification_environment,
)
from tests.unit.verify.conftest import ACCOUNT, NAME, ROOT, Make, environment

KAFKA_ONLY = """\
project: shop
account: "111122223333"
network: {{vpc: vpc-0123456789abcdef0, subnets: [subnet-0123456789abcdef0, subnet-0123456789abcdef1]}}
storage:
  buckets: {{lake: their-lake, checkpoints: their-checkpoints}}
  database: theirs
  keys: {{data: "arn:aws:kms:us-east-1:111122223333:key/k"}}
governance:
  name_prefix: acme
  permissions_boundary: arn:aws:iam::111122223333:policy/bound
  role_path: /streaming/
tags: {{team: shop}}
kafka:
  theirs: {{kind: external, bootstrap_servers: "broker.example:9092", authentication: tls}}
streams:
  orders:
    kind: kafka
    cluster: theirs
    traffic: {{records_per_second: 100, record_size: 500B}}
jobs:
  orders:
    engine: emr
    version: emr-7.13.0
    worker: {{vcpu: 2, memory: 8GiB}}
    architecture: arm64
    role: arn:aws:iam::111122223333:role/theirs
    rate: {{records_per_second_per_core: 5000}}
    queries:
      land: {{kind: land, source: orders, table: landed, schema: pipelines/clicks/schemas/click.ddl{more}}}
"""


def kafka_only(folder: Path, more: str = "") -> Environment:
    file = folder / "shop.yaml"
    file.write_text(KAFKA_ONLY.format(more=more))
    return load(file, root=ROOT)


@pytest.mark.parametrize("name", environment_names(ROOT))
@pytest.mark.parametrize("without_kafka", [False, True])
def test_a_copy_has_the_engines_and_versions_of_its_model_and_nothing_of_its_names(
    name: str, without_kafka: bool, make: Make
) -> None:
    model = environment(name)
    copy = make(model, without_kafka=without_kafka)
    own = copy.environment
    assert {job.engine for job in own.jobs.values()} == {job.engine for job in model.jobs.values()}
    for job in own.jobs.values():
        first = next(each for each in model.jobs.values() if each.engine == job.engine)
        assert (job.version, job.worker) == (first.version, first.worker)
        kinds = [type(query) for query in job.queries.values()]
        assert kinds.count(LandQuery) == kinds.count(DeriveQuery) == len(kinds) / 2
    reads_kafka = any(isinstance(s, KafkaTopic) for s in own.streams.values())
    assert reads_kafka == (
        not without_kafka and any(isinstance(s, KafkaTopic) for s in model.streams.values())
    )
    before, after = Names(model, ACCOUNT).prefix, copy.names.prefix
    assert not after.startswith(f"{before}-")
    assert not before.startswith(f"{after}-")
    names = {copy.names.stream(stream) for stream in own.streams}
    names |= {copy.names.bucket(kind) for kind in get_args(Bucket)}
    assert all(each.startswith(f"{after}-") for each in names)
    # It can go again, and with it all that it holds.
    assert own.removal == "destroy"
    assert set(own.storage.disposable) == set(get_args(Disposable))
    assert all(stream.disposable for stream in own.streams.values())
    assert own.tags == {**model.tags, TAG: f"{model.project}/{name}"}
    # It is small, by the plan that deploys it.
    sized = plan(own)
    assert all(job.max_workers.value == 2 for job in sized.jobs.values())
    kinesis = [each.partitions for each in sized.streams.values() if each.kind == "kinesis"]
    assert all(each is not None and each.value == SHARDS for each in kinesis)


def test_rules_of_the_company_hold_and_what_is_written_to_is_not_shared(tmp_path: Path, make: Make) -> None:
    copy = make(kafka_only(tmp_path))
    own = copy.environment
    assert copy.names.prefix == f"acme-shop-{NAME}"
    assert own.governance == environment_of(tmp_path).governance
    assert (own.network.vpc, len(own.network.subnets)) == ("vpc-0123456789abcdef0", 2)
    assert own.storage.keys.data == "arn:aws:kms:us-east-1:111122223333:key/k"
    assert (own.storage.buckets, own.storage.database) == ({}, None)
    (job,) = own.jobs.values()
    assert (job.engine, job.role) == ("emr", None)
    assert plan(own).jobs["emr"].architecture == "arm64"
    assert copy.names.stream("kafka") == f"acme-shop-{NAME}-records"


def environment_of(folder: Path) -> Environment:
    return load(folder / "shop.yaml", root=ROOT)


def test_a_cluster_inside_the_model_s_own_network_is_refused_for_an_account(make: Make) -> None:
    model = environment("dev")
    with pytest.raises(ConfigurationError) as refused:
        make(model, clusters=aws_target.existing_cluster_sections_for_topic(model))
    (problem,) = refused.value.problems
    assert (problem.key, problem.line > 0) == ("kafka.main", True)
    assert "--no-kafka" in str(problem)


def test_a_stack_creates_the_topic_on_an_existing_cluster_in_an_existing_network(
    tmp_path: Path, make: Make
) -> None:
    external = kafka_only(tmp_path)
    assert aws_target.existing_cluster_sections_for_topic(external) == {}
    arn = "arn:aws:kafka:us-east-1:111122223333:cluster/shared/abcd1234-ab12-1"
    file = tmp_path / "shop.yaml"
    file.write_text(re.sub("theirs: {kind.*}", f"theirs: {{kind: msk, existing: '{arn}'}}", file.read_text()))
    model = load(file, root=ROOT)
    copy = make(model, clusters=aws_target.existing_cluster_sections_for_topic(model))
    assert (copy.kafka_cluster, [*copy.sources]) == ("theirs", ["kafka"])


@pytest.mark.parametrize(
    "cluster",
    [
        "{kind: msk, tier: express, broker_type: express.m7g.large}",
        "{kind: msk, tier: serverless}",
        "{kind: msk, existing: 'arn:aws:kafka:us-east-1:111122223333:cluster/shared/abcd1234-ab12-1'}",
        "{kind: external, bootstrap_servers: 'b:9098', authentication: iam, "
        "arn: 'arn:aws:kafka:us-east-1:111122223333:cluster/shared/abcd1234-ab12-1'}",
    ],
)
def test_one_broker_of_the_sandbox_stands_for_any_cluster(cluster: str, tmp_path: Path, make: Make) -> None:
    file = tmp_path / "shop.yaml"
    text = KAFKA_ONLY.format(more="")
    text = re.sub("theirs: {kind.*}", f"theirs: {cluster}", text)
    if "serverless" in cluster:
        text = text.replace(
            "    cluster: theirs\n", "    cluster: theirs\n    existing: true\n    partitions: 4\n"
        )
    subnets = ", ".join(f"subnet-0123456789abcdef{n}" for n in range(3))
    file.write_text(re.sub("subnets: .*}", f"subnets: [{subnets}]}}", text))
    model = load(file, root=ROOT)
    copy = make(model)
    assert copy.kafka_cluster == "theirs"
    assert (copy.environment.kafka["theirs"].kind, plan(copy.environment).jobs["emr"].engine) == (
        "msk",
        "emr",
    )


def test_what_the_copy_cannot_be_is_told_of_the_file_that_people_have(tmp_path: Path, make: Make) -> None:
    model = kafka_only(tmp_path)
    with pytest.raises(ConfigurationError) as refused:
        make(model, settings=VerificationSettings(per_second=-1))
    assert {each.file for each in refused.value.problems} == {str(tmp_path / "shop.yaml")}
    assert "in the small environment that `millrace verify` makes of this one" in str(refused.value)
    assert not list((tmp_path / "verify").iterdir())


def test_without_kafka_an_engine_that_reads_nothing_else_reads_kinesis(tmp_path: Path, make: Make) -> None:
    copy = make(kafka_only(tmp_path), without_kafka=True)
    assert [(leg.job, leg.stream) for leg in copy.legs] == [("emr", "kinesis")]
    assert copy.kafka_cluster is None
    assert "_landed" in copy.legs[0].landed


def test_a_schema_of_which_no_records_can_be_made_is_refused(tmp_path: Path, make: Make) -> None:
    schema = ROOT / "pipelines/clicks/schemas/click.ddl"
    model = kafka_only(tmp_path)
    project = tmp_path / "project"
    (project / "pipelines/clicks/schemas").mkdir(parents=True)
    (project / "pipelines/clicks/schemas/click.ddl").write_text(schema.read_text() + ", odd GEOMETRY")
    with pytest.raises(ConfigurationError, match="no test records can be generated from this schema"):
        make(model, root=project)


slugs = st.from_regex(r"[a-z][a-z0-9-]{0,38}[a-z0-9]", fullmatch=True)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(project=slugs, company=st.none() | st.from_regex(r"[a-z][a-z0-9-]{0,10}[a-z0-9]", fullmatch=True))
def test_a_long_project_is_cut_so_that_buckets_can_be_named(
    project: str, company: str | None, tmp_path: Path
) -> None:
    model = environment("minimal")
    governance = model.governance.model_copy(update={"name_prefix": company})
    long = model.model_copy(update={"project": project, "governance": governance})
    copy = write_verification_environment(
        long, NAME, account=ACCOUNT, settings=VerificationSettings(), root=ROOT, folder=tmp_path, clusters={}
    )
    assert max(len(copy.names.bucket(kind)) for kind in get_args(Bucket)) <= 63
    assert project.startswith(copy.environment.project)


def test_names_are_new_each_time() -> None:
    made = {random_verification_name() for _ in range(50)}
    assert len(made) > 25
    assert all(NAMES.fullmatch(name) for name in made)
