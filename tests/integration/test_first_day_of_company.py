"""First day of a company with the wheel and the docs: own MSK cluster, network and PostgreSQL, two accounts."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.test_wheel import SETUP_SECONDS, install, run
from tests.integration.test_wheel import project as project  # a fixture, as the next one
from tests.integration.test_wheel import wheel as wheel

ACCOUNTS = {"dev": "210987654321", "prod": "321098765432"}

SHARED = """\
kafka:
  shared: {kind: msk}
streams:
  shipments: {kind: kafka, cluster: shared, topic: shop.public.shipments, existing: true, partitions: 4, traffic: {records_per_second: 20, record_size: 400B}}
jobs:
  orders:
    queries:
      orders-by-hour:
        kind: derive
        source: orders_landed
        transform: pipelines.orders.transforms:by_hour
        state: {watermark: {time: ordered_at, delay: 2h}, key: [hour, customer]}
        sink: {kind: iceberg, table: orders_by_hour}
  shipments:
    engine: emr
    latency: 120s
    queries:
      land-shipments:
        kind: land
        source: shipments
        table: shipments_landed
        format: {kind: debezium}
        schema: pipelines/shipments/shipment.ddl
      current-shipments:
        kind: derive
        source: shipments_landed
        latest_by: [shipment_id]
        sink: {kind: iceberg, table: shipments}
"""
"""What the company adds to base.yaml, and below the section of its name in each environment what is its own there."""

OWN = """\
network:
  vpc: vpc-0123456789abcdef0
  subnets: [subnet-0123456789abcdef0, subnet-0123456789abcdef1]
kafka:
  shared: {existing: "arn:aws:kafka:eu-central-1:ACCOUNT:cluster/shared/abcd1234-ab12-1"}
"""

ORDERS = [
    {"order_id": f"o-{n}", "customer": f"c-{n % 7}", "quantity": 1 + n % 5, "unit_price": "2.50", "ordered_at": f"2026-01-30T{8 + n // 180:02}:{n // 3 % 60:02}:{n % 3 * 20:02}Z"}
    for n in range(240)
]  # fmt: skip


def write(here: Path) -> None:
    """Change the files of a new project as the company does."""
    files = here / "environments"
    base = (files / "base.yaml").read_text().replace("us-east-1", "eu-central-1")
    for section, more in re.findall(r"^(\w+):\n((?:  .*\n)+)", SHARED, re.MULTILINE):
        own = re.search(rf"^{section}:\n(?:  .*\n)+", base, re.MULTILINE)
        more = more.replace("  orders:\n    queries:\n", "") if own else f"{section}:\n{more}"
        base = base.replace(own[0], own[0] + more) if own else base + more
    (files / "base.yaml").write_text(base)
    for name, account in ACCOUNTS.items():
        text = (files / f"{name}.yaml").read_text()
        text = re.sub(r'account: "\d+"', f'account: "{account}"', text)
        (files / f"{name}.yaml").write_text(text + OWN.replace("ACCOUNT", account))
    (here / "pipelines/shipments").mkdir()
    (here / "pipelines/shipments/shipment.ddl").write_text(
        "shipment_id STRING NOT NULL,\ndepot STRING COMMENT 'one of: north, south',\nupdated_at TIMESTAMP COMMENT 'epoch microseconds'\n"
    )
    (here / "orders.jsonl").write_text("".join(f"{json.dumps(order)}\n" for order in ORDERS))


def follow(here: Path, start: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    """Run what the company runs, and check what it is told."""
    for name, account in ACCOUNTS.items():
        valid = json.loads(start("millrace", "validate", "--env", name, "--json").stdout)
        assert (valid["account"], valid["region"]) == (account, "eu-central-1"), valid
        plan = json.loads(start("millrace", "plan", "--env", name, "--json").stdout)
        assert set(plan["jobs"]) == set(valid["jobs"]) == {"orders", "shipments"}
        start("cdk", "synth", "--quiet", "-c", f"env={name}", "-o", f"cdk-{name}")
        stacks = {each.name for each in (here / f"cdk-{name}").glob("*.template.json")}
        assert f"my-streams-{name}-job-shipments.template.json" in stacks
    difference = start("millrace", "plan", "--env", "prod", "--diff", "environments/dev.yaml").stdout
    assert "streams.orders.traffic.records_per_second: 200 → 2000" in difference, difference
    start("pytest", "-q")
    for arguments in (
        ["--job", "orders", "--from", "orders.jsonl"],
        ["--job", "shipments", "--seconds", "5"],
    ):
        told = start("millrace", "sandbox", "run", "--env", "prod", *arguments)
        assert "by servers on this machine: account 321098765432" in told.stderr
        verdicts = re.findall(r"^(\w+): .*?; (.*); example:$", told.stdout, re.MULTILINE)
        right = r"(over a kill -9|of [\d,]+ rows? by one batch) 0 lost, 0 doubled, (0 different, )?0 others(, the next commit after .*)?"
        assert len(verdicts) == (3 if "orders" in arguments else 2), told.stdout
        assert all(re.fullmatch(right, verdict) for _, verdict in verdicts), told.stdout
        assert ("240 records sent, 240 rows" in told.stdout) == ("orders" in arguments), told.stdout


@pytest.mark.timeout(3 * SETUP_SECONDS)
def test_the_first_day_of_a_company(project: Path, tmp_path: Path) -> None:
    here = tmp_path / "my-streams"
    shutil.copytree(project, here)
    installed = install(here, "sandbox")

    def start(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        # As people type it: the project's own settings find its modules.
        done = run([installed.home / "bin" / program, *arguments], here, SETUP_SECONDS)
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    start("millrace", "setup")
    write(here)
    follow(here, start)
