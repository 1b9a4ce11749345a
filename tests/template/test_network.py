"""Ways out of the VPC: endpoints, NAT gateways, and changes from one to the other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from millrace.config import load
from tests.template.conftest import ROOT, Synthesis, Synthesise
from tests.template.test_security import listed


@pytest.fixture(scope="module")
def gateways(synthesise: Synthesise) -> Synthesis:
    environment = load("minimal", root=ROOT)
    network = environment.network.model_copy(update={"egress": "nat"})
    return synthesise(environment.model_copy(update={"network": network}))


@pytest.fixture(scope="module")
def endpoints(synthesise: Synthesise) -> Synthesis:
    environment = load("minimal", root=ROOT)
    network = environment.network.model_copy(update={"egress": "endpoints"})
    return synthesise(environment.model_copy(update={"network": network}))


@pytest.fixture
def public(synthesis: object) -> Synthesis:
    return synthesis("minimal")  # type: ignore[operator]


def test_a_job_without_a_vpc_has_nothing_of_one(public: Synthesis, endpoints: Synthesis) -> None:
    assert "network" not in public.templates
    types = {r["Type"] for t in public.templates.values() for r in t["Resources"].values()}
    assert not [each for each in types if each.startswith(("AWS::EC2::", "AWS::Glue::Connection"))]
    (job,) = public.resources("AWS::Glue::Job").values()
    assert "Connections" not in job["Properties"]
    text = json.dumps(public.templates).lower()
    assert not [
        each for each in ("aws:sourcevpc", "aws:vpcsourceip", "ec2:", "glue:getconnection") if each in text
    ]
    assert public.findings == []
    # The job itself is the same: the network is all that differs.
    (inside,) = endpoints.resources("AWS::Glue::Job").values()
    assert {**inside["Properties"], "Connections": None, "Role": None} == {
        **job["Properties"], "Connections": None, "Role": None,
    }  # fmt: skip


def test_a_network_beside_a_job_without_one(synthesise: Synthesise) -> None:
    environment = load("minimal", root=ROOT)
    job = environment.jobs["clicks"]
    jobs = {"clicks": job, "inside": job.model_copy(update={"network": "vpc", "queries": {}})}
    query = job.queries["land-clicks"].model_copy(update={"table": "others"})
    jobs["inside"] = jobs["inside"].model_copy(update={"queries": {"land-others": query}})
    result = synthesise(environment.model_copy(update={"jobs": jobs}))
    assert "AWS::Glue::Connection" in {
        r["Type"] for r in result.templates["job-inside"]["Resources"].values()
    }
    assert result.names.stack("network") not in json.dumps(result.templates["job-clicks"]["Resources"])
    assert "AWS::EC2::SecurityGroup" not in json.dumps(result.templates["job-clicks"])


def private(found: Synthesis) -> dict[str, str]:
    return {
        path: resource["Properties"]["CidrBlock"]
        for path, resource in found.resources("AWS::EC2::Subnet", "network").items()
        if "Private" in path
    }


def test_endpoints_are_those_of_the_plan(each: Synthesis) -> None:
    deployed = {
        e["Properties"]["ServiceName"].removeprefix(f"com.amazonaws.{each.environment.region}.")
        for e in each.resources("AWS::EC2::VPCEndpoint", "network").values()
        if e["Properties"]["VpcEndpointType"] == "Interface"
    }
    assert deployed == set(each.plan.network.services)
    paid = next((line for line in each.plan.shared if line.name == "endpoints"), None)
    assert (paid is None) == (each.plan.network.egress.value == "none")
    assert paid is None or paid.usd == pytest.approx(7.30 * len(deployed) * each.plan.network.zones)


def test_keys_are_those_of_the_plan(each: Synthesis) -> None:
    (paid,) = [line for line in each.plan.shared if line.name == "keys"]
    assert paid.usd == len(each.resources("AWS::KMS::Key"))


def test_alarms_are_those_of_the_bill(each: Synthesis) -> None:
    (paid,) = [line for line in each.plan.shared if line.name == "alarms"]
    assert paid.usd == pytest.approx(0.10 * len(each.resources("AWS::CloudWatch::Alarm", "observability")))


def test_each_zone_has_a_gateway_of_its_own(gateways: Synthesis) -> None:
    zones = gateways.environment.zone_count
    assert len(gateways.resources("AWS::EC2::NatGateway")) == zones
    routes = [
        r["Properties"]["NatGatewayId"]["Ref"]
        for r in gateways.resources("AWS::EC2::Route", "network").values()
        if "NatGatewayId" in r["Properties"]
    ]
    assert len(set(routes)) == zones
    kinds = {
        e["Properties"]["VpcEndpointType"]
        for e in gateways.resources("AWS::EC2::VPCEndpoint", "network").values()
    }
    assert kinds == {"Gateway"}, "S3 stays on its own way, which costs nothing"
    subnets = gateways.resources("AWS::EC2::Subnet", "network").values()
    assert not any(subnet["Properties"]["MapPublicIpOnLaunch"] for subnet in subnets)
    assert gateways.findings == []


def test_the_other_way_out_replaces_no_subnet(gateways: Synthesis, endpoints: Synthesis) -> None:
    assert private(gateways) == private(endpoints)
    assert len(private(endpoints)) == 3


def test_endpoints_let_the_roles_of_other_accounts_read_their_streams(synthesise: Synthesise) -> None:
    environment = load("minimal", root=ROOT)
    stream = environment.streams["clicks"].model_copy(
        update={
            "existing": "arn:aws:kinesis:us-east-1:999988887777:stream/clicks",
            "shards": 4,
            "read_role": "arn:aws:iam::999988887777:role/readers",
        }
    )
    network = environment.network.model_copy(update={"egress": "endpoints"})
    result = synthesise(environment.model_copy(update={"streams": {"clicks": stream}, "network": network}))
    accounts = {}
    for endpoint in result.resources("AWS::EC2::VPCEndpoint", "network").values():
        properties = endpoint["Properties"]
        if properties["VpcEndpointType"] == "Interface":
            (statement,) = properties["PolicyDocument"]["Statement"]
            accounts[properties["ServiceName"].rsplit(".", 1)[1]] = listed(
                statement["Condition"]["StringEquals"]["aws:PrincipalAccount"]
            )
    assert accounts.pop("kinesis-streams") == ["111122223333", "999988887777"]
    assert set(map(tuple, accounts.values())) == {("111122223333",)}
    (taken,) = [s for _, s in result.statements() if s["Action"] == "sts:AssumeRole"]
    assert taken["Resource"] == "arn:aws:iam::999988887777:role/readers"


SERVERS = """\
project: shop
account: "111122223333"
network: {egress: nat, allowed_domains: []}
streams:
  clicks: {kind: kinesis, traffic: {records_per_second: 100, record_size: 1KiB}}
  orders: {kind: kinesis, traffic: {records_per_second: 100, record_size: 1KiB}}
jobs:
  clicks:
    engine: glue
    latency: 5m
    queries:
      clicks:
        kind: land
        source: clicks
        table: clicks_landed
        schema: pipelines/operations/schemas/bag_scan.avsc
        format: {kind: avro, framing: confluent, registry: "https://registry.company.example:8081", subject: clicks-value}
      orders:
        kind: land
        source: orders
        table: orders_landed
        schema: pipelines/operations/schemas/booking.ddl
        format: {kind: debezium, payload: avro, registry: "http://schemas.company.example/apis", subject: orders-value}
      search:
        kind: derive
        source: clicks_landed
        dead_letters: search_letters
        sink:
          kind: opensearch
          domain: arn:aws:es:us-east-1:111122223333:domain/search
          endpoint: https://search.company.example:9200
          index: clicks
      store:
        kind: derive
        source: clicks_landed
        dead_letters: store_letters
        sink:
          kind: jdbc
          url: jdbc:postgresql://db.company.example/shop
          table: shop.clicks
          secret: arn:aws:secretsmanager:us-east-1:111122223333:secret:shop-AbCdEf
"""


def test_servers_that_formats_and_sinks_name_are_reached_by_name_and_port(
    synthesise: Synthesise, tmp_path: Path
) -> None:
    (tmp_path / "environments").mkdir()
    (tmp_path / "environments" / "servers.yaml").write_text(SERVERS)
    (tmp_path / "pipelines").symlink_to(ROOT / "pipelines")
    result = synthesise(load("servers", root=tmp_path))
    (workers,) = [
        group["Properties"]
        for path, group in result.resources("AWS::EC2::SecurityGroup", "network").items()
        if "Workers" in path
    ]
    rules = workers["SecurityGroupEgress"]
    assert {rule["FromPort"] for rule in rules} == {443, 80, 5432, 8081, 9200}
    assert len(rules) == 5, "EC2 refuses a rule that differs in its description only"
    (domains,) = [
        r["Properties"]["Domains"]
        for path, r in result.resources("AWS::Route53Resolver::FirewallDomainList").items()
        if "Allowed" in path
    ]
    assert {f"{name}.company.example" for name in ("registry", "schemas", "search", "db")} <= set(domains)


def test_given_buckets_and_tables_pass_the_gateway(synthesise: Synthesise) -> None:
    from tests.template.test_existing_resources import everything_exists

    environment = everything_exists(load("prod", root=ROOT))
    own = load("prod", root=ROOT).network
    result = synthesise(environment.model_copy(update={"network": own}))
    (gateway,) = [
        e["Properties"]
        for e in result.resources("AWS::EC2::VPCEndpoint", "network").values()
        if e["Properties"]["VpcEndpointType"] == "Gateway"
    ]
    statements = {s["Sid"]: s for s in gateway["PolicyDocument"]["Statement"]}
    assert "arn:aws:s3:::company-lake/*" in statements["GivenBuckets"]["Resource"]
    tables = statements["GivenTables"]
    assert "arn:aws:s3:::company-reference/airlines/*" in tables["Resource"]
    assert set(tables["Action"]) == {"s3:GetObject", "s3:ListBucket"}
    assert "starport-layer-bucket" in json.dumps(statements["EngineBuckets"])


@pytest.mark.parametrize("egress", ["endpoints", "nat"])
def test_subnets_stand_in_the_zones_that_are_named(synthesise: Synthesise, egress: str) -> None:
    environment = load("minimal", root=ROOT)
    zones = ("use1-az1", "use1-az2", "use1-az4")
    network = environment.network.model_copy(update={"zone_ids": zones, "egress": egress})
    result = synthesise(environment.model_copy(update={"network": network}))
    subnets = result.resources("AWS::EC2::Subnet", "network")
    assert len(subnets) == (6 if egress == "nat" else 3)
    for kind in ("Private", "Public") if egress == "nat" else ("Private",):
        placed = [s["Properties"]["AvailabilityZoneId"] for path, s in subnets.items() if kind in path]
        assert placed == list(zones)
    # What Glue is told is the zone where the subnet came to stand, not one that CDK guessed.
    text = json.dumps(result.templates)
    assert "Fn::GetAZs" not in text
    connections = result.resources("AWS::Glue::Connection").values()
    told = {
        c["Properties"]["ConnectionInput"]["PhysicalConnectionRequirements"]["AvailabilityZone"][
            "Fn::ImportValue"
        ]
        for c in connections
    }
    assert len(told) == 3
    assert all("AvailabilityZone" in name for name in told)
