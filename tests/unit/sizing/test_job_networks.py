"""Jobs that run in a VPC, the network's cost, and moves out of the VPC only on request."""

from __future__ import annotations

import pytest

from millrace.config import ConfigurationError
from millrace.config.aws.deployed_sizes_to_keep import DeployedSizes
from millrace.config.job_networks import reasons_for_vpc_by_part
from millrace.sizing import plan
from millrace.sizing.cost_saving_moves import find_moves
from tests.unit.sizing.conftest import DERIVE, Loader, text

VPC = "network: {vpc: vpc-0123456789abcdef0, subnets: [subnet-0123456789abcdef0, subnet-0123456789abcdef1]}"
REFUSES = DERIVE + "        dead_letters: clicks_dead\n"
JDBC = REFUSES.replace(
    "{kind: iceberg, table: clicks_derived}",
    "{kind: jdbc, url: 'jdbc:postgresql://db.example.com/shop', table: clicks, "
    "secret: 'arn:aws:secretsmanager:us-east-1:111122223333:secret:shop-db-AbCdEf'}",
)
DYNAMODB = REFUSES.replace("kind: iceberg, table: clicks_derived", "kind: dynamodb, table: clicks")
BESIDE = """\
  more:
    engine: emr
    queries:
      land-more: {kind: land, source: clicks, table: more_landed, schema: pipelines/clicks/schemas/click.ddl}
"""


@pytest.mark.parametrize(
    ("given", "network", "why"),
    [
        ({}, "none", "public endpoints"),
        ({"more": DERIVE}, "none", "public endpoints"),
        ({"more": DYNAMODB}, "none", "public endpoints"),
        ({"top": "history: {clients: [10.20.0.0/24]}"}, "none", "public endpoints"),
        ({"more": BESIDE}, "none", "public endpoints"),
        ({"more": JDBC}, "vpc", "writes jdbc"),
        ({"top": VPC}, "vpc", "network.vpc"),
        ({"top": "network: {allowed_domains: []}"}, "vpc", "network.allowed_domains"),
        ({"top": "network: {cidr: 10.0.0.0/16}"}, "vpc", "a section network"),
        ({"top": "network: {cidr: 10.0.0.0/16}", "job": "network: none"}, "none", "pinned"),
        ({"top": VPC, "job": "network: none"}, "none", "pinned"),
        ({"job": "network: vpc"}, "vpc", "asks for it"),
        ({"job": "engine: emr"}, "vpc", "CloudWatch"),
    ],
)
def test_a_job_is_in_a_vpc_for_a_reason(
    from_text: Loader, given: dict[str, str], network: str, why: str
) -> None:
    yaml = text(**{"job": "", **given})
    if "emr" in given.get("job", ""):
        yaml = yaml.replace("    engine: glue\n", "", 1)
    found = plan(from_text(yaml))
    assert (found.jobs["clicks"].network.value, why in found.jobs["clicks"].network.why) == (network, True)
    beside = bool(reasons_for_vpc_by_part(from_text(yaml)))
    assert beside == (network == "vpc" or "history" in yaml or "emr" in yaml)
    assert (found.network.egress.value == "none") != beside
    paid = {line.name for line in found.shared}
    assert ("endpoints" in paid) == (beside and given.get("top") != VPC)
    if network == "none" and "emr" not in yaml:
        assert not {"kinesis-streams", "glue", "monitoring"} & set(found.network.services)


def test_a_job_that_needs_a_vpc_cannot_be_without(from_text: Loader) -> None:
    with pytest.raises(ConfigurationError, match="none; allowed: vpc, or nothing: it writes jdbc"):
        from_text(text(job="network: none", more=JDBC))


def test_a_deployed_job_stays_where_it_is_until_the_file_says_so(from_text: Loader) -> None:
    environment = from_text(text(job="")).with_deployed_sizes(DeployedSizes(zones=3, in_vpc={"clicks": True}))
    inside = plan(environment)
    assert inside.jobs["clicks"].network.value == "vpc"
    (move,) = [each for each in find_moves(environment, inside, lambda *_: True) if "network" in each.key]
    assert (move.key, move.new, "private network" in move.gives_up) == ("jobs.clicks.network", "none", True)
    written = from_text(text(job="network: none")).with_deployed_sizes(environment.deployed_sizes)
    assert plan(written).network.egress.value == "none"
    # Another job's network section does not pull it back in; a company's VPC does.
    outside = DeployedSizes(zones=3, in_vpc={"clicks": False, "more": True})
    for top, network in (("network: {availability_zones: 2}", "none"), (VPC, "vpc")):
        found = plan(from_text(text(job="", top=top, more=BESIDE)).with_deployed_sizes(outside))
        assert found.jobs["clicks"].network.value == network


def test_deployed_networks_survive_the_way_to_the_app() -> None:
    sizes = DeployedSizes(zones=2, in_vpc={"clicks": False})
    assert DeployedSizes.from_json(sizes.to_json()) == sizes
