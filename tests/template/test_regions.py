"""Templates have the names of each region and partition, and none is written by hand."""

from __future__ import annotations

import json
import re

import boto3
import pytest

from millrace.config import load
from millrace.config.aws.regions import REGIONS, aws_partition_of_region, endpoint_domain_of_region
from tests.template.conftest import ROOT, Synthesis, Synthesise

pytestmark = pytest.mark.slow

OURS = ("aws", "aws-cn", "aws-us-gov")


def test_the_table_of_regions_is_botocores() -> None:
    session = boto3.session.Session()
    services = ("kinesis", "glue", "emr-serverless", "kafka")
    known = {
        region: each
        for each in OURS
        for region in set.intersection(*(set(session.get_available_regions(s, each)) for s in services))
    }
    assert set(REGIONS) == known.keys()
    assert {region: aws_partition_of_region(region) for region in REGIONS} == known
    endpoints = {r: boto3.client("kinesis", region_name=r).meta.endpoint_url for r in REGIONS}
    assert {r: f"https://kinesis.{r}.{endpoint_domain_of_region(r)}" for r in REGIONS} == endpoints


@pytest.fixture(
    scope="module", params=[pytest.param("eu-west-1", marks=pytest.mark.slow), "cn-north-1", "us-gov-west-1"]
)
def elsewhere(request: pytest.FixtureRequest, synthesise: Synthesise) -> Synthesis:
    environment = load("prod", root=ROOT)
    return synthesise(environment.model_copy(update={"region": request.param}))


def test_every_arn_is_of_the_regions_partition(elsewhere: Synthesis) -> None:
    region = elsewhere.environment.region
    texts = {**{n: json.dumps(t) for n, t in elsewhere.templates.items()}}
    texts |= {f"{n} (launch)": json.dumps(d) for n, d in elsewhere.documents.items()}
    for name, text in texts.items():
        matches = set(re.findall(r"arn:(aws[a-z-]*):", text))
        assert matches <= {aws_partition_of_region(region)}, name
        hosts = set(re.findall(rf"[a-z0-9-]+\.{region}\.(amazonaws\.com(?:\.cn)?)", text))
        via = {"amazonaws.com"} if "kms:ViaService" in text else set()
        assert hosts - via <= {endpoint_domain_of_region(region)}, name
        assert "us-east-1" not in text, name


def test_a_plan_without_a_table_of_prices_says_whose_they_are(elsewhere: Synthesis) -> None:
    assert elsewhere.plan.prices_of == "us-east-1"
    assert any("the prices are those of us-east-1" in warning for warning in elsewhere.plan.warnings)
    assert {d["region"] for d in elsewhere.documents.values()} == {elsewhere.environment.region}
    spark = {d["spark"]["spark.sql.catalog.lake.client.region"] for d in elsewhere.documents.values()}
    assert spark == {elsewhere.environment.region}
