"""Services that a region lacks are refused at load."""

from __future__ import annotations

from pathlib import Path

import pytest
from cfnlint.schema import ResourceNotFoundError
from cfnlint.schema.manager import PROVIDER_SCHEMA_MANAGER

from millrace.config import ConfigurationError, load
from millrace.config.aws.regions import LACKING, REGIONS, aws_partition_of_region

ROOT = Path(__file__).parents[3]

TEXT = """\
project: shop
account: "111122223333"
region: {region}
network: {{availability_zones: 2, egress: endpoints}}
observability: {{prometheus: true, channels: ["slack:T0123ABCD/C0123ABCD"], channel_role: "arn:{partition}:iam::111122223333:role/chat"}}
kafka:
  small: {{kind: msk, tier: serverless}}
streams:
  clicks: {{kind: kafka, cluster: small, partitions: 2, existing: true, traffic: {{records_per_second: 100, record_size: 1KiB}}}}
jobs:
  clicks:
    engine: glue
    rate: {{records_per_second_per_core: 5000}}
    queries:
      land-clicks: {{kind: land, source: clicks, table: clicks_landed, schema: pipelines/clicks/schemas/click.ddl}}
"""


def there(region: str, kind: str) -> bool:
    """Whether AWS publishes a schema of the resource type for the region."""
    try:
        PROVIDER_SCHEMA_MANAGER.get_resource_schema(region, kind)
    except ResourceNotFoundError:
        return False
    return True


@pytest.mark.parametrize("kind", LACKING)
def test_the_table_is_that_of_cloudformation(kind: str) -> None:
    assert [region for region in REGIONS if not there(region, kind)] == list(LACKING[kind])


@pytest.mark.parametrize(
    ("region", "keys"),
    [
        ("cn-north-1", {"observability.channels", "observability.prometheus"}),
        ("us-gov-west-1", {"kafka.small.tier", "observability.channels"}),
        ("us-west-1", {"kafka.small.tier"}),
        ("eu-west-1", set()),
    ],
)
def test_what_the_region_lacks_is_told_with_its_key(tmp_path: Path, region: str, keys: set[str]) -> None:
    (tmp_path / "pipelines").symlink_to(ROOT / "pipelines")
    folder = tmp_path / "environments"
    folder.mkdir()
    (folder / "shop.yaml").write_text(TEXT.format(region=region, partition=aws_partition_of_region(region)))
    if not keys:
        assert load("shop", root=tmp_path).region == region
        return
    with pytest.raises(ConfigurationError, match=region) as refused:
        load("shop", root=tmp_path)
    assert {each.key for each in refused.value.problems} == keys
    assert all(region in each.allowed for each in refused.value.problems)
