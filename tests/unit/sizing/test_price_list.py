"""A price table renewed from the Price List API.

The answers are written by hand after the documentation of GetProducts: nobody has recorded one for this test. They show
what the program does with an answer of that shape, and not that AWS has these products.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.stub import ANY, Stubber

from millrace.config import load
from millrace.sizing import plan
from millrace.sizing.costs.price_products import PRODUCTS, PriceProduct
from millrace.sizing.costs.price_table_update import (
    SOURCE,
    price_table_yaml,
    region_of_price_list_api,
    renew_prices,
)
from millrace.sizing.prices_and_limits import (
    ELSEWHERE,
    PRICES,
    all_required_prices_by_name,
    price_table_of_region,
)
from tests.unit.cli.test_command_output import Done, millrace
from tests.unit.sizing.test_prices import TEXT

REGION = "eu-west-1"
DAY = date(2026, 11, 23)
METRIC_TIERS = {"0": "0.30", "10000": "0.11", "250000": "0.05", "1000000": "0.02"}
METRICS = {
    "cloudwatch.metric_month": 0.30,
    "cloudwatch.after_10000.metric_month": 0.11,
    "cloudwatch.after_250000.metric_month": 0.05,
    "cloudwatch.after_1000000.metric_month": 0.02,
}


def answer(
    product: PriceProduct, tiers: Mapping[str, str], unit: str, *, sku: str = "SKU1", prefix: str = "EUW1-"
) -> dict[str, Any]:
    """Return one product in the shape of GetProducts (API reference, "PriceList")."""
    dimensions = {
        f"{sku}.T.{begin}": {
            "unit": unit,
            "beginRange": begin,
            "endRange": "Inf",
            "pricePerUnit": {"USD": usd},
        }
        for begin, usd in tiers.items()
    }
    attributes = {"regionCode": REGION, "usagetype": f"{prefix}{product.usage}", **product.attributes}
    family = attributes.pop("productFamily", "Any")
    return {
        "product": {"sku": sku, "productFamily": family, "attributes": attributes},
        "serviceCode": product.service,
        "terms": {"OnDemand": {f"{sku}.T": {"priceDimensions": dimensions}}},
    }


def tiers_of(name: str, factor: float = 1.1) -> dict[str, str]:
    if name.endswith(".metric_month"):
        return METRIC_TIERS
    if name.endswith("endpoint_gb"):
        begins = {"0": 0.01, "1000000": 0.006, "5000000": 0.004}
        return {begin: f"{usd * factor:.12f}" for begin, usd in begins.items()}
    product = PRODUCTS[name]
    usd = f"{price_table_of_region(ELSEWHERE).usd(name) * factor / product.factor:.12f}"
    return {"0": usd, "51200": "0.001"} if product.tiers else {"0": usd}


class Catalogue:
    """The API as far as it is asked: its filters and pages, over answers that are held."""

    def __init__(self, answers: list[dict[str, Any]], *, size: int = 1) -> None:
        self.answers, self.size, self.asked = answers, size, 0

    def get_paginator(self, operation: str) -> Catalogue:
        assert operation == "get_products"
        return self

    def paginate(self, **asked: Any) -> Iterator[dict[str, Any]]:
        found = [json.dumps(each) for each in self.answers if self._fits(each, asked)]
        for begin in range(0, max(1, len(found)), self.size):
            self.asked += 1
            yield {"PriceList": found[begin : begin + self.size]}

    @staticmethod
    def _fits(each: dict[str, Any], asked: dict[str, Any]) -> bool:
        values = {**each["product"]["attributes"], "productFamily": each["product"]["productFamily"]}
        matches = {"TERM_MATCH": lambda have, want: have == want, "CONTAINS": lambda have, want: want in have}
        return each["serviceCode"] == asked["ServiceCode"] and all(
            matches[wanted["Type"]](values.get(wanted["Field"], ""), wanted["Value"])
            for wanted in asked["Filters"]
        )


def everything(without: str = "", **changed: dict[str, Any]) -> list[dict[str, Any]]:
    """Answer each price once, metrics with one product of four tiers; ``changed`` by name with dots as ``__``."""
    seen: dict[tuple[str, str], dict[str, Any]] = {}
    for name, product in PRODUCTS.items():
        if name == without or name not in price_table_of_region(ELSEWHERE).prices:
            continue
        made = answer(product, tiers_of(name), product.units[0], prefix="" if product.worldwide else "EUW1-")
        seen[product.service, product.usage] = changed.get(name.replace(".", "__"), made)
    return list(seen.values())


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "environments").mkdir()
    (tmp_path / "pipelines" / "shop").mkdir(parents=True)
    (tmp_path / "pipelines" / "shop" / "click.ddl").write_text("page STRING")
    (tmp_path / "environments" / "shop.yaml").write_text(TEXT.format(region=REGION))
    yield tmp_path
    price_table_of_region.cache_clear()


def run(project: Path, monkeypatch: pytest.MonkeyPatch, answers: list[dict[str, Any]], *more: str) -> Done:
    monkeypatch.setattr("millrace.cli.plan.prices.price_list_client", lambda _: Catalogue(answers))
    price_table_of_region.cache_clear()
    done = millrace("prices", "update", "--region", REGION, *more, cwd=project)
    price_table_of_region.cache_clear()
    return done


def test_a_full_answer_is_written_and_read_by_plans(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = run(project, monkeypatch, everything())
    assert (done.returncode, done.stderr) == (0, "")
    for name in ("msk.express.gb_in", "glue.6.0.memory_dpu_hour"):
        assert (
            f"{name} is not updated, because no product of the AWS Price List API is known for it"
            in done.stdout
        )
    table = price_table_of_region(REGION, project)
    assert (table.read, table.source) == (datetime.now(UTC).date(), SOURCE)
    ours = price_table_of_region(ELSEWHERE)
    for name in PRODUCTS.keys() & ours.prices.keys():
        usd = METRICS.get(name, ours.usd(name) * 1.1)
        assert table.usd(name) == pytest.approx(usd), name
        assert table.prices[name].read is None
    stayed = table.prices["msk.express.gb_in"]
    assert (stayed.usd, stayed.read, stayed.confirmed) == (0.01, ours.read, False)
    assert stayed.source is not None
    assert stayed.source.startswith("us-east-1: ")
    sized = plan(load("shop", root=project))
    assert sized.prices_of == REGION
    assert not [each for each in sized.warnings if "prices are those of" in each]


def test_the_file_round_trips() -> None:
    found = renew_prices(Catalogue(everything()), REGION, all_required_prices_by_name(REGION), DAY).table
    from ruamel.yaml import YAML

    from millrace.sizing.prices_and_limits import PriceTable

    assert PriceTable.model_validate(YAML(typ="safe", pure=True).load(price_table_yaml(found))) == found


SHARD = PRODUCTS["kinesis.shard_hour"]
GOOD = answer(SHARD, {"0": "0.017"}, "ShardHour")
LOST = {**GOOD, "terms": {}}
YUAN = json.loads(json.dumps(GOOD).replace('"USD"', '"CNY"'))


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ([], "the price list of AmazonKinesis has no product Storage-ShardHour"),
        (
            [GOOD, answer(SHARD, {"0": "0.03"}, "ShardHour", sku="SKU2")],
            "2 products match Storage-ShardHour, so the price is ambiguous: SKU1, SKU2",
        ),
        ([answer(SHARD, {"0": "0.017"}, "ShardMonth")], "the unit is ShardMonth, not hrs or"),
        (
            [answer(SHARD, {"0": "0.017", "100": "0.01"}, "ShardHour")],
            "the price has unexpected tiers, which begin at 0, 100",
        ),
        ([answer(SHARD, {"100": "0.017"}, "ShardHour")], "the price has no tier that begins at 0"),
        ([answer(SHARD, {"0": "0.0000000000"}, "ShardHour")], "the price is 0; it may belong to a free tier"),
        ([answer(SHARD, {"0": "17"}, "ShardHour")], "the new price, $17, is far from the old one, $0.015"),
        (
            [answer(SHARD, {"0": "much"}, "ShardHour")],
            "the response of the Price List API is not as expected",
        ),
        ([YUAN], "the price is in CNY, not in USD"),
        ([LOST], "the response of the Price List API is not as expected: KeyError('OnDemand')"),
    ],
)
def test_what_is_not_clear_is_told_and_stays(answers: list[dict[str, Any]], why: str) -> None:
    before = all_required_prices_by_name(REGION)
    others = [each for each in everything() if "Storage-ShardHour" not in json.dumps(each)]
    found = renew_prices(Catalogue([*others, *answers]), REGION, before, DAY)
    assert list(found.stayed) == ["kinesis.shard_hour"]
    assert found.stayed["kinesis.shard_hour"].startswith(why)
    assert found.table.prices["kinesis.shard_hour"] == before["kinesis.shard_hour"]
    assert found.table.prices["kinesis.shard_hour"].read == price_table_of_region(ELSEWHERE).read
    assert found.table.prices["kinesis.million_put_units"].read is None


def test_usage_types_are_compared_whole() -> None:
    """``OnDemand-LongTermRetention-ByteHrs`` contains the provisioned streams' name, and MSK's Kraft brokers another."""
    name = "kinesis.long_retention_gb_month"
    product = PRODUCTS[name]
    near = answer(product, {"0": "0.09"}, "GB-Mo", sku="NEAR", prefix="EUW1-OnDemand-")
    for prefix in ("EUW1-", "EU-", "", f"{REGION}-"):
        right = answer(product, {"0": "0.025"}, "GB-Mo", prefix=prefix)
        found = renew_prices(
            Catalogue([near, right]), REGION, {name: all_required_prices_by_name(REGION)[name]}, DAY
        )
        assert found.table.usd(name) == 0.025
    assert renew_prices(
        Catalogue([near]), REGION, {name: all_required_prices_by_name(REGION)[name]}, DAY
    ).stayed


def test_units_are_ours_by_hand() -> None:
    by_hand = {
        "kinesis.million_put_units": ({"0": "0.0000000154"}, "PutRequest", 0.0154),
        "s3.thousand_puts": ({"0": "0.0000054"}, "Requests", 0.0054),
        "network.endpoint_month": ({"0": "0.011"}, "Hrs", 8.03),
        "s3.gb_month": ({"51200": "0.022", "0": "0.023"}, "GB-Mo", 0.023),
        "cloudwatch.metric_month": (METRIC_TIERS, "Metrics", 0.30),
    }
    answers = [answer(PRODUCTS[name], tiers, unit) for name, (tiers, unit, _) in by_hand.items()]
    found = renew_prices(
        Catalogue(answers), REGION, {name: all_required_prices_by_name(REGION)[name] for name in by_hand}, DAY
    )
    assert not found.stayed
    for name, (_, _, usd) in by_hand.items():
        assert found.table.usd(name) == usd


def test_all_pages_are_read() -> None:
    name = "kinesis.long_retention_gb_month"
    product = PRODUCTS[name]
    near = [answer(product, {"0": "1"}, "GB-Mo", sku=f"N{n}", prefix="EUW1-OnDemand-") for n in range(4)]
    catalogue = Catalogue([*near, answer(product, {"0": "0.025"}, "GB-Mo")], size=2)
    found = renew_prices(catalogue, REGION, {name: all_required_prices_by_name(REGION)[name]}, DAY)
    assert (found.table.usd(name), catalogue.asked) == (0.025, 3)


def test_the_question_is_one_that_boto3_takes() -> None:
    client: Any = boto3.client(
        "pricing", region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b"
    )
    name = "kinesis.shard_hour"
    with Stubber(client) as stubbed:
        stubbed.add_response(
            "get_products",
            {"FormatVersion": "aws_v1", "PriceList": [json.dumps(GOOD)]},
            {"ServiceCode": "AmazonKinesis", "Filters": ANY, "FormatVersion": "aws_v1", "MaxResults": 100},
        )
        found = renew_prices(client, REGION, {name: all_required_prices_by_name(REGION)[name]}, DAY)
    assert found.table.usd(name) == 0.017


def test_a_price_that_stayed_is_status_3(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = run(project, monkeypatch, everything(without="kms.key_month"))
    assert done.returncode == 3
    assert "kms.key_month not updated: the price list of awskms has no product KMS-Keys" in done.stdout
    assert (
        price_table_of_region(REGION, project).prices["kms.key_month"].read
        == price_table_of_region(ELSEWHERE).read
    )
    again = json.loads(run(project, monkeypatch, everything(), "--json").stdout)
    assert again["stayed"] == {}
    assert price_table_of_region(REGION, project).prices["kms.key_month"].read is None


def test_the_projects_own_prices_stay_and_what_they_lack_comes(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / PRICES).mkdir()
    (project / PRICES / f"{REGION}.yaml").write_text(
        f"region: {REGION}\nread: 2026-05-01\nsource: a contract\nprices:\n  msk.express.gb_in: {{usd: 0.008}}\n"
    )
    assert run(project, monkeypatch, everything()).returncode == 0
    table = price_table_of_region(REGION, project)
    own = table.prices["msk.express.gb_in"]
    assert (own.usd, own.read, own.source) == (0.008, date(2026, 5, 1), "a contract")
    assert table.prices.keys() == price_table_of_region(ELSEWHERE).prices.keys()


def test_no_answer_at_all_writes_nothing(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = run(project, monkeypatch, [])
    assert done.returncode == 3
    assert "no file is written, because only 0 of" in done.stdout
    assert not (project / PRICES).exists()


def test_without_credentials_one_sentence(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(project / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setattr("boto3.DEFAULT_SESSION", None)
    done = millrace("prices", "update", "--region", REGION, cwd=project)
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert "there are no complete AWS credentials" in line
    assert not (project / PRICES).exists()


def test_without_permission_nothing_is_written(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client: Any = boto3.client(
        "pricing", region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b"
    )
    monkeypatch.setattr("millrace.cli.plan.prices.price_list_client", lambda _: client)
    with Stubber(client) as stubbed:
        stubbed.add_client_error(
            "get_products", "AccessDeniedException", "not authorized: pricing:GetProducts", 400
        )
        done = millrace("prices", "update", "--region", REGION, cwd=project)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "pricing:GetProducts" in line
    assert not (project / PRICES).exists()


@pytest.mark.parametrize("region", ["Ireland", "eu-west", "../eu-west-1"])
def test_a_region_is_a_code(project: Path, region: str) -> None:
    done = millrace("prices", "update", "--region", region, cwd=project)
    assert done.returncode == 2
    assert "--region" in done.stderr


def test_china_has_an_endpoint_of_its_own() -> None:
    assert [region_of_price_list_api(each) for each in ("cn-north-1", "us-gov-west-1", "ap-south-2")] == [
        "cn-northwest-1",
        "us-east-1",
        "us-east-1",
    ]
