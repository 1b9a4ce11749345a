"""Prices of a region: ours, the project's own, or another region's that says so."""

from __future__ import annotations

import json
from datetime import date, timedelta
from pathlib import Path

import pytest

from millrace.cli.plan.plan_and_validate import old_prices_warning
from millrace.config import ConfigurationError, load
from millrace.sizing import plan
from millrace.sizing.prices_and_limits import PRICES, price_table_of_region
from tests.unit.cli.test_command_output import millrace

TEXT = """\
project: shop
account: "111122223333"
region: {region}
streams:
  clicks:
    kind: kinesis
    traffic: {{records_per_second: 800, record_size: 500B}}
jobs:
  clicks:
    engine: glue
    rate: {{records_per_second_per_core: 5000}}
    queries:
      land: {{kind: land, source: clicks, table: landed, schema: pipelines/shop/click.ddl}}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "environments" / "prices").mkdir(parents=True)
    (tmp_path / "pipelines" / "shop").mkdir(parents=True)
    (tmp_path / "pipelines" / "shop" / "click.ddl").write_text("page STRING")
    (tmp_path / "environments" / "shop.yaml").write_text(TEXT.format(region="eu-west-1"))
    return tmp_path


def table(dpu: float, region: str = "eu-west-1") -> str:
    rows = {
        **{name: price.usd for name, price in price_table_of_region("us-east-1").prices.items()},
        "glue.dpu_hour": dpu,
    }
    lines = "\n".join(f"  {name}: {{usd: {usd}}}" for name, usd in rows.items())
    return f"region: {region}\nread: 2026-11-01\nsource: a test\nprices:\n{lines}\n"


def test_prices_of_ones_own_count(project: Path) -> None:
    without = plan(load("shop", root=project))
    assert without.prices_of == "us-east-1"
    assert any("prices are those of us-east-1" in each for each in without.warnings)
    (project / PRICES / "eu-west-1.yaml").write_text(table(0.88))
    price_table_of_region.cache_clear()
    found = plan(load("shop", root=project))
    assert (found.prices_of, found.prices.isoformat()) == ("eu-west-1", "2026-11-01")
    assert not any("prices" in each for each in found.warnings)
    cost = {item.name: item.usd for item in found.jobs["clicks"].cost}
    before = {item.name: item.usd for item in without.jobs["clicks"].cost}
    assert cost["workers"] == pytest.approx(2 * before["workers"])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("region: [", "eu-west-1.yaml: while parsing"),
        ("region: eu-west-1\n", "eu-west-1.yaml: 3 validation errors"),
        (table(1, "eu-west-2"), "eu-west-1.yaml has the prices of another region, eu-west-2"),
        (table(1).replace("  kms.key_month: {usd: 1.0}\n", ""), "eu-west-1.yaml: it lacks kms.key_month"),
    ],
)
def test_a_table_that_cannot_be_read_is_one_message(project: Path, text: str, why: str) -> None:
    (project / PRICES / "eu-west-1.yaml").write_text(text)
    price_table_of_region.cache_clear()
    with pytest.raises(ConfigurationError) as caught:
        plan(load("shop", root=project))
    (problem,) = caught.value.problems
    assert problem.key == "region"
    assert why in problem.allowed


@pytest.mark.parametrize(("version", "usd", "unconfirmed"), [("5.1", 0.44, False), ("6.0", 0.308, True)])
def test_glue_is_priced_by_its_version(project: Path, version: str, usd: float, *, unconfirmed: bool) -> None:
    text = TEXT.format(region="us-east-1").replace(
        "engine: glue\n", f'engine: glue\n    version: "{version}"\n'
    )
    (project / "environments" / "shop.yaml").write_text(text)
    job = plan(load("shop", root=project)).jobs["clicks"]
    (line,) = [item for item in job.cost if item.name == "workers"]
    dpu = {"G.025X": 0.25, "G.1X": 1.0}[job.worker]
    assert line.usd == pytest.approx(job.max_workers.value * dpu * 730 * usd)
    assert job.worker_usd_hour == pytest.approx(dpu * usd)
    assert job.choices()[0].usd == pytest.approx(line.usd)
    assert ("the price glue.6.0.dpu_hour is unconfirmed" in line.why) == unconfirmed


@pytest.mark.parametrize(
    ("days", "old"),
    [(90, False), (91, True)],
)
def test_a_table_is_old_after_ninety_days(project: Path, days: int, *, old: bool) -> None:
    (project / PRICES / "eu-west-1.yaml").write_text(table(0.44))
    price_table_of_region.cache_clear()
    environment = load("shop", root=project)
    count = len(price_table_of_region("us-east-1").prices)
    note = old_prices_warning(environment, date(2026, 11, 1) + timedelta(days=days))
    assert (note is not None) == old
    if note is not None:
        assert note.startswith(
            f"prices/eu-west-1.yaml: {count} of {count} prices may be out of date, read on 2026-11-01, 91 days ago: "
            "run `millrace prices update --region eu-west-1`"
        )


def test_one_price_that_stayed_is_old_alone(project: Path) -> None:
    stayed = table(0.44).replace("kms.key_month: {usd: 1.0}", "kms.key_month: {usd: 1.0, read: 2026-06-01}")
    (project / PRICES / "eu-west-1.yaml").write_text(stayed)
    price_table_of_region.cache_clear()
    note = old_prices_warning(load("shop", root=project), date(2026, 11, 2))
    assert note is not None
    assert note.startswith(
        "prices/eu-west-1.yaml: kms.key_month may be out of date, read on 2026-06-01, 154 days ago:"
    )


@pytest.mark.parametrize("verb", ["plan", "cost"])
def test_old_prices_are_told_in_one_line(project: Path, verb: str) -> None:
    (project / PRICES / "eu-west-1.yaml").write_text(table(0.44).replace("2026-11-01", "2020-01-01"))
    price_table_of_region.cache_clear()
    found = millrace(verb, "--env", "shop", cwd=project)
    assert found.returncode == 0
    assert [line for line in found.stdout.splitlines() if "may be out of date, read on 2020-01-01" in line]
    document = json.loads(millrace(verb, "--env", "shop", "--json", cwd=project).stdout)
    assert len([each for each in document["warnings"] if "read on 2020-01-01" in each]) == 1
