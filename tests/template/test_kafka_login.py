"""Clusters with secrets: permissions of roles, open ports, and settings of the core."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from millrace.config import load
from millrace.etl.launch import typed_json
from millrace.etl.launch.settings import SecretLogin, parse_job_settings
from millrace.infra.stacks.network import kafka_ports
from tests.template.conftest import ROOT, Synthesis, Synthesise

ACCOUNT = "111122223333"
MSK = f"arn:aws:kafka:us-east-1:{ACCOUNT}:cluster/theirs/abcd1234-ab12-1"
ARN = f"arn:aws:secretsmanager:us-east-1:{ACCOUNT}:secret:{{}}-AbCdEf".format
KEY = f"arn:aws:kms:us-east-1:{ACCOUNT}:key/0123"

TEXT = f"""\
project: shop
account: "{ACCOUNT}"
network: {{egress: endpoints}}
kafka:
  scram:
    kind: msk
    existing: {MSK}
    authentication: {{kind: scram-sha-512, secret: '{ARN("AmazonMSK_shop")}', secret_key: '{KEY}'}}
  cloud:
    kind: external
    bootstrap_servers: pkc-1.us-east-1.aws.confluent.cloud:9092
    authentication: {{kind: plain, secret: '{ARN("confluent")}'}}
  mutual:
    kind: msk
    existing: {MSK}
    authentication: {{kind: mutual-tls, secret: '{ARN("client")}'}}
streams:
  orders: {{kind: kafka, cluster: scram, existing: true, partitions: 4, traffic: {{records_per_second: 100, record_size: 1KiB}}}}
  clicks: {{kind: kafka, cluster: mutual, existing: true, partitions: 4, traffic: {{records_per_second: 100, record_size: 1KiB}}}}
  totals: {{kind: kafka, cluster: cloud, existing: true, partitions: 3, traffic: {{records_per_second: 1, record_size: 1KiB}}}}
jobs:
  out:
    engine: emr
    rate: {{records_per_second_per_core: 5000}}
    queries:
      send: {{kind: direct, source: orders, schema: pipelines/clicks/schemas/click.ddl, sink: {{kind: kafka, topic: totals}}, dead_letters: letters}}
  land:
    engine: glue
    rate: {{records_per_second_per_core: 5000}}
    queries:
      land: {{kind: land, source: clicks, schema: pipelines/clicks/schemas/click.ddl, table: landed}}
"""


@pytest.fixture(scope="module")
def of(synthesise: Synthesise, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Synthesis]:
    """Give the environment's synthesis, made once."""
    root = tmp_path_factory.mktemp("project")
    (root / "environments").mkdir()
    (root / "environments" / "shop.yaml").write_text(TEXT)
    (root / "pipelines").symlink_to(Path(ROOT) / "pipelines")
    return functools.cache(lambda: synthesise(load("shop", root=root)))


def test_a_role_reads_the_secrets_of_its_clusters_and_nothing_of_kafka_itself(
    of: Callable[[], Synthesis],
) -> None:
    result = of()
    assert result.findings == []
    told: dict[str, dict[str, object]] = {}
    for job, each in result.statements():
        told.setdefault(job, {})[each["Sid"]] = (each["Action"], each["Resource"])
    out, land = told["job-out"], told["job-land"]
    secrets = [ARN("AmazonMSK_shop"), ARN("confluent")]
    assert out["ReadKafkaSecrets"] == ("secretsmanager:GetSecretValue", secrets)
    assert out["DecryptKafkaSecrets"] == ("kms:Decrypt", KEY)
    assert land["ReadKafkaSecrets"] == ("secretsmanager:GetSecretValue", ARN("client"))
    assert "DecryptKafkaSecrets" not in land
    for role in (out, land):
        assert role["FindBrokers"] == (["kafka:GetBootstrapBrokers", "kafka:ListClustersV2"], "*")
        assert "kafka-cluster" not in str(role)


def test_the_core_is_told_where_the_secret_is(of: Callable[[], Synthesis]) -> None:
    result = of()
    for document in result.documents.values():
        assert typed_json.to_json_value(parse_job_settings(document["settings"])) == document["settings"]
    connections = parse_job_settings(result.documents["out"]["settings"]).connections
    assert connections["scram"].authentication == SecretLogin("scram-sha-512", ARN("AmazonMSK_shop"))
    assert connections["cloud"].authentication == SecretLogin("plain", ARN("confluent"))
    assert connections["scram"].cluster is not None
    assert connections["scram"].bootstrap_servers is None


def test_brokers_and_secrets_manager_can_be_reached(of: Callable[[], Synthesis]) -> None:
    result = of()
    assert "secretsmanager" in result.plan.network.services
    (workers,) = [
        g["Properties"]
        for name, g in result.resources("AWS::EC2::SecurityGroup").items()
        if "Workers" in name
    ]
    ports = {rule["FromPort"] for rule in workers["SecurityGroupEgress"]}
    assert {9092, 9094, 9096} <= ports
    assert 9098 not in ports
    assert kafka_ports(load("minimal")) == ()
