"""The history server's network access, permissions, logs and image."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from millrace.config.network_storage_governance_observability import HistoryServer, SignIn
from millrace.infra.constructs.event_log_copier import FLAT_PREFIX
from millrace.infra.constructs.history_image_pull_through_cache import pull_through_cache_prefix
from tests.template.conftest import Synthesis, Synthesise
from tests.template.test_security import listed

IMAGE = "111122223333.dkr.ecr.us-east-1.amazonaws.com/platform/spark:3.5.6"
CERTIFICATE = "arn:aws:acm:us-east-1:111122223333:certificate/1234abcd"

SIGN_IN = SignIn(
    issuer="https://login.example.com",
    authorization_endpoint="https://login.example.com/authorize",
    token_endpoint="https://login.example.com/token",
    user_info_endpoint="https://login.example.com:8443/me",
    client_id="millrace",
    secret="arn:aws:secretsmanager:us-east-1:111122223333:secret:sign-in-AbCdEf",
)


@pytest.fixture(scope="module")
def given(synthesise: Synthesise, synthesis: Any) -> Synthesis:
    settings = HistoryServer(image=IMAGE, certificate=CERTIFICATE, clients=("10.0.0.0/8", "172.16.0.0/12"))
    return synthesise(synthesis("dev").environment.model_copy(update={"history": settings}))


def containers(found: Synthesis) -> dict[str, dict[str, Any]]:
    task = found.the("AWS::ECS::TaskDefinition", "history")
    assert task["RequiresCompatibilities"] == ["FARGATE"]
    return {container["Name"]: container for container in task["ContainerDefinitions"]}


def options(found: Synthesis) -> dict[str, str]:
    environment = {e["Name"]: e["Value"] for e in containers(found)["Server"]["Environment"]}
    pairs = environment["SPARK_HISTORY_OPTS"].split(" ")
    return dict(pair.removeprefix("-D").split("=", 1) for pair in pairs)


def test_the_server_reads_one_flat_prefix_and_forgets_old_logs(dev: Synthesis) -> None:
    result = options(dev)
    assert result["spark.history.fs.logDirectory"] == f"s3a://{dev.names.bucket('event-logs')}/{FLAT_PREFIX}/"
    assert result["spark.history.fs.cleaner.enabled"] == "true"
    kept = dev.environment.storage.event_log_retention.days
    assert result["spark.history.fs.cleaner.maxAge"] == f"{kept + 1}d"


def test_nothing_is_written_but_to_scratch_space(dev: Synthesis) -> None:
    for name, container in containers(dev).items():
        assert container["ReadonlyRootFilesystem"] is True, name
        assert not container.get("Privileged", False)
    for path in ("spark.history.store.path", "java.io.tmpdir"):
        assert options(dev)[path].startswith("/history")
    assert containers(dev)["Prepare"]["Essential"] is False


def test_the_role_reads_logs_and_does_nothing_else(dev: Synthesis) -> None:
    task = dev.the("AWS::ECS::TaskDefinition", "history")["TaskRoleArn"]["Fn::GetAtt"][0]
    (policy,) = [
        p["Properties"]
        for p in dev.resources("AWS::IAM::Policy", "history").values()
        if p["Properties"]["Roles"] == [{"Ref": task}]
    ]
    actions = {a for s in policy["PolicyDocument"]["Statement"] for a in listed(s["Action"])}
    assert actions == {"s3:GetObject", "s3:ListBucket", "kms:Decrypt"}
    text = json.dumps(policy)
    assert f"{dev.names.bucket('event-logs')}/{FLAT_PREFIX}/*" in text
    assert dev.names.bucket("lake") not in text


def test_the_balancer_is_internal_and_asks_for_health(dev: Synthesis) -> None:
    balancer = dev.the("AWS::ElasticLoadBalancingV2::LoadBalancer", "history")
    assert balancer["Scheme"] == "internal"
    attributes = {a["Key"]: a["Value"] for a in balancer["LoadBalancerAttributes"]}
    assert attributes["access_logs.s3.enabled"] == "true"
    assert attributes["routing.http.drop_invalid_header_fields.enabled"] == "true"
    target = dev.the("AWS::ElasticLoadBalancingV2::TargetGroup", "history")
    assert target["HealthCheckPath"] == "/api/v1/version"
    service = dev.the("AWS::ECS::Service", "history")
    network = service["NetworkConfiguration"]["AwsvpcConfiguration"]
    assert network["AssignPublicIp"] == "DISABLED"
    assert service["DeploymentConfiguration"]["DeploymentCircuitBreaker"] == {
        "Enable": True,
        "Rollback": True,
    }


def test_only_who_is_named_may_open_it(dev: Synthesis) -> None:
    groups = dev.resources("AWS::EC2::SecurityGroup", "history")
    ranges = {
        rule["CidrIp"] for g in groups.values() for rule in g["Properties"].get("SecurityGroupIngress", ())
    }
    assert dev.environment.history is not None
    assert ranges == set(dev.environment.history.clients)
    assert dev.the("AWS::ElasticLoadBalancingV2::Listener", "history")["Protocol"] == "HTTP"


def test_with_a_certificate_it_speaks_tls(given: Synthesis) -> None:
    listener = given.the("AWS::ElasticLoadBalancingV2::Listener", "history")
    assert (listener["Protocol"], listener["Port"]) == ("HTTPS", 443)
    assert listener["Certificates"] == [{"CertificateArn": CERTIFICATE}]
    assert "TLS13" in listener["SslPolicy"]
    rules = [
        rule
        for group in given.resources("AWS::EC2::SecurityGroup", "history").values()
        for rule in group["Properties"].get("SecurityGroupIngress", ())
    ]
    assert {(r["CidrIp"], r["FromPort"]) for r in rules} == {("10.0.0.0/8", 443), ("172.16.0.0/12", 443)}
    assert given.templates["history"]["Outputs"]["Url"]["Value"]["Fn::Join"][1][0] == "https://"


def test_without_a_provider_nobody_is_asked_who_they_are(dev: Synthesis, given: Synthesis) -> None:
    for result in (dev, given):
        listener = result.the("AWS::ElasticLoadBalancingV2::Listener", "history")
        assert [each["Type"] for each in listener["DefaultActions"]] == ["forward"]


@pytest.fixture(scope="module")
def signed_in(synthesise: Synthesise, synthesis: Any) -> Synthesis:
    settings = HistoryServer(image=IMAGE, certificate=CERTIFICATE, clients=("10.0.0.0/8",), sign_in=SIGN_IN)
    return synthesise(synthesis("dev").environment.model_copy(update={"history": settings}))


def test_with_a_provider_people_sign_in_before_anything_is_forwarded(signed_in: Synthesis) -> None:
    assert len(signed_in.resources("AWS::ElasticLoadBalancingV2::Listener", "history")) == 1
    assert not signed_in.resources("AWS::ElasticLoadBalancingV2::ListenerRule", "history")
    listener = signed_in.the("AWS::ElasticLoadBalancingV2::Listener", "history")
    assert listener["Protocol"] == "HTTPS"
    first, second = sorted(listener["DefaultActions"], key=lambda each: each["Order"])
    assert (first["Type"], second["Type"]) == ("authenticate-oidc", "forward")
    asked = first["AuthenticateOidcConfig"]
    assert asked["OnUnauthenticatedRequest"] == "authenticate"
    assert asked["Issuer"] == SIGN_IN.issuer
    assert (
        asked["ClientSecret"]
        == f"{{{{resolve:secretsmanager:{SIGN_IN.secret}:SecretString:client_secret::}}}}"
    )
    assert asked["SessionTimeout"] == "28800"
    egress = [
        (rule["CidrIp"], rule["FromPort"])
        for group in signed_in.resources("AWS::EC2::SecurityGroup", "history").values()
        for rule in group["Properties"].get("SecurityGroupEgress", ())
        if rule.get("Description") == "Identity provider"
    ]
    assert egress == [("0.0.0.0/0", 443), ("0.0.0.0/0", 8443)], "the ports of the provider's addresses"


def test_the_image_is_pulled_before_the_server_is_deployed(dev: Synthesis, given: Synthesis) -> None:
    """A service without an image takes its stack with it: the cache and what to type are in another one."""
    name = dev.names.stack
    assert name("history-image") in dev.manifest[name("history")]["dependencies"]
    assert not dev.manifest[name("history-image")].get("dependencies", [])[1:], "its assets, and no stack"
    kinds = {r["Type"] for r in dev.templates["history"]["Resources"].values()}
    assert not [kind for kind in kinds if kind.startswith("AWS::ECR::")]
    repository = dev.the("AWS::ECR::Repository", "history-image")["RepositoryName"]
    filling = [
        (part, s["Resource"]) for part, s in dev.statements() if "ecr:BatchImportUpstreamImage" in s["Action"]
    ]
    assert filling == [("history", f"arn:aws:ecr:us-east-1:111122223333:repository/{repository}")]
    # Whoever names an image has neither.
    assert "history-image" not in given.templates
    assert not [s for _, s in given.statements() if "ecr:BatchImportUpstreamImage" in s["Action"]]


def test_the_default_image_is_a_private_copy(dev: Synthesis) -> None:
    rule = dev.the("AWS::ECR::PullThroughCacheRule", "history-image")
    repository = dev.the("AWS::ECR::Repository", "history-image")["RepositoryName"]
    assert repository == f"{rule['EcrRepositoryPrefix']}/emr-serverless/spark/emr-7.13.0"
    image = containers(dev)["Server"]["Image"]
    assert image == f"111122223333.dkr.ecr.us-east-1.amazonaws.com/{repository}:latest"
    assert dev.templates["history-image"]["Outputs"]["ImageUri"]["Value"] == image
    services = {
        e["Properties"]["ServiceName"].split("us-east-1.")[1]
        for e in dev.resources("AWS::EC2::VPCEndpoint", "network").values()
        if isinstance(e["Properties"]["ServiceName"], str)
    }
    assert {"ecr.api", "ecr.dkr"} <= services


def test_with_gateways_the_public_image_is_pulled_without_any_hand(
    synthesise: Synthesise, dev: Synthesis
) -> None:
    network = dev.environment.network.model_copy(update={"egress": "nat"})
    result = synthesise(dev.environment.model_copy(update={"network": network}))
    assert "history-image" not in result.templates
    assert not result.resources("AWS::ECR::PullThroughCacheRule")
    assert {c["Image"] for c in containers(result).values()} == {
        "public.ecr.aws/emr-serverless/spark/emr-7.13.0:latest"
    }
    assert not [s for _, s in result.statements() if "ecr:" in json.dumps(s["Action"])]


def test_a_dns_firewall_that_hides_the_gallery_leaves_a_private_copy(
    synthesise: Synthesise, dev: Synthesis
) -> None:
    network = dev.environment.network.model_copy(update={"egress": "nat", "allowed_domains": ()})
    result = synthesise(dev.environment.model_copy(update={"network": network}))
    (_, domains), _ = sorted(
        (path, r["Properties"]["Domains"])
        for path, r in result.resources("AWS::Route53Resolver::FirewallDomainList").items()
    )
    for container in containers(result).values():
        host = container["Image"].split("/")[0]
        assert any(host.endswith(each.removeprefix("*")) for each in domains), (host, domains)
    # ECR itself asks the gallery for a task's first pull through the gateways.
    assert [s for _, s in result.statements() if "ecr:BatchImportUpstreamImage" in listed(s["Action"])]


def test_a_given_image_is_taken_as_it_is(given: Synthesis) -> None:
    assert given.resources("AWS::ECR::Repository") == {}
    assert containers(given)["Server"]["Image"] == IMAGE
    pulls = [s for _, s in given.statements() if "ecr:BatchGetImage" in listed(s["Action"])]
    assert [s["Resource"] for s in pulls] == ["arn:aws:ecr:us-east-1:111122223333:repository/platform/spark"]


def test_a_cache_prefix_fits() -> None:
    long = "a-company-with-a-long-name-streaming-production"
    assert len(pull_through_cache_prefix(long)) <= 30
    assert pull_through_cache_prefix(long) != pull_through_cache_prefix(long + "-2")
    assert pull_through_cache_prefix("flights-dev") == "flights-dev"
    odd = [pull_through_cache_prefix(each) for each in ("my--shop-dev", "my-shop--dev", f"{long}--x")]
    assert len({*odd, "my-shop-dev"}) == 4
    # botocore's model of ECR: PullThroughCacheRuleRepositoryPrefix.
    pattern = r"(?:[a-z0-9]+(?:[._-][a-z0-9]+)*/)*[a-z0-9]+(?:[._-][a-z0-9]+)*/?"
    assert all(re.fullmatch(pattern, each) and len(each) <= 30 for each in odd), odd


def test_a_project_with_two_hyphens_together_has_a_history_server(
    synthesise: Synthesise, dev: Synthesis
) -> None:
    result = synthesise(dev.environment.model_copy(update={"project": "my--shop"}))
    assert result.the("AWS::ECR::PullThroughCacheRule", "history-image")["EcrRepositoryPrefix"]


def test_the_bucket_announces_its_objects_only_where_there_is_a_server(
    dev: Synthesis, prod: Synthesis
) -> None:
    def announcing(found: Synthesis) -> list[str]:
        return [
            r["Properties"]["BucketName"]
            for r in found.resources("AWS::S3::Bucket").values()
            if "NotificationConfiguration" in r["Properties"]
        ]

    assert announcing(dev) == [dev.names.bucket("event-logs")]
    assert announcing(prod) == []
    assert "history" not in prod.templates


def test_copies_come_from_the_engines_prefixes_and_go_to_the_flat_one(dev: Synthesis) -> None:
    pattern = dev.the("AWS::Events::Rule", "history")["EventPattern"]["detail"]
    assert pattern["bucket"]["name"] == [dev.names.bucket("event-logs")]
    assert pattern["object"]["key"] == [{"prefix": "glue/"}, {"wildcard": "emr/*/sparklogs/*"}]
    written = {
        resource
        for part, s in dev.statements()
        if part == "history" and {"s3:PutObject", "s3:DeleteObject"} & set(listed(s["Action"]))
        for resource in listed(s["Resource"])
    }
    assert written == {f"arn:aws:s3:::{dev.names.bucket('event-logs')}/{FLAT_PREFIX}/*"}
