"""Every environment in other regions and partitions, and one that uses the newest keys: ``python -m tests.policy.all_regions``.

The everyday scan reads the environments as they are, in one region. A rule that knows a region's resource types, an ARN written by
hand, or a key that no environment of the repository sets show only here. Ends with status 1 where a finding is not explained.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from rich.console import Console
from ruamel.yaml import YAML

from millrace.config import environment_names, load
from millrace.config.aws.regions import LACKING, aws_partition_of_region, endpoint_domain_of_region
from millrace.sandbox.programs.toolchain import ROOT
from tests.policy.accepted_findings import Finding, accepted, unexplained
from tests.policy.assembly import synthesise
from tests.policy.scan import ACCEPTED, SCANNERS
from tests.policy.scanners import scan

_PARTITIONS = "E3601"
"""cfn-lint's schema of a state machine knows resources of partition aws alone; CDK's own tasks write the region's partition."""

REGIONS = ("us-east-1", "eu-west-1", "ap-southeast-2", "cn-north-1", "us-gov-west-1")
NEWEST = "newest"
ACCOUNT = "111122223333"

_NEWEST = """\
project: shop
account: "{account}"
region: {region}
removal: retain
network: {{egress: endpoints, zone_ids: {zones}, allowed_domains: [kafka-1.example.com]}}
storage: {{lake_formation: tables-and-location, dead_letter_retention: 90d}}
governance:
  permissions_boundary: arn:{partition}:iam::{account}:policy/Boundary
  role_path: /streaming/
  name_prefix: acme
  qualifier: acme1
  bootstrap_key: arn:{partition}:kms:{region}:{account}:key/1234abcd-12ab-34cd-56ef-1234567890ab
observability: {{alarms: by-job, prometheus: {prometheus}, notify: [on-call@example.com]{channels}}}
history:
  clients: [10.0.0.0/24]
  image: {account}.dkr.ecr.{region}.{domain}/platform/spark:3.5.6
  certificate: arn:{partition}:acm:{region}:{account}:certificate/1234abcd
  sign_in:
    issuer: https://login.example.com
    authorization_endpoint: https://login.example.com/authorize
    token_endpoint: https://login.example.com/token
    user_info_endpoint: https://login.example.com/userinfo
    client_id: millrace
    secret: arn:{partition}:secretsmanager:{region}:{account}:secret:sign-in-AbCdEf
kafka:
  ours: {{kind: msk, version: 3.9.x.kraft}}
  theirs:
    kind: external
    bootstrap_servers: kafka.example.com:9094
    authentication: {{kind: scram-sha-512, secret: 'arn:{partition}:secretsmanager:{region}:{account}:secret:kafka-AbCdEf'}}
streams:
  orders: {{kind: kafka, cluster: theirs, existing: true, partitions: 4, traffic: {{records_per_second: 100, record_size: 1KiB}}}}
  clicks: {{kind: kafka, cluster: ours, traffic: {{records_per_second: 100, record_size: 1KiB}}}}
  taps: {{kind: kinesis, traffic: {{records_per_second: 100, record_size: 1KiB}}}}
jobs:
  orders:
    engine: emr
    rate: {{records_per_second_per_core: 5000}}
    queries:
      land-orders: {{kind: land, source: orders, table: orders_landed, schema: pipelines/clicks/schemas/click.ddl}}
      land-clicks: {{kind: land, source: clicks, table: clicks_landed, schema: pipelines/clicks/schemas/click.ddl}}
  taps:
    engine: glue
    rate: {{records_per_second_per_core: 5000}}
    queries:
      land-taps: {{kind: land, source: taps, fan_out: true, table: taps_landed, schema: pipelines/clicks/schemas/click.ddl}}
"""

_CHANNELS = (
    ", channel_role: 'arn:aws:iam::{0}:role/alarms-in-chat', channels: ['slack:T0123ABCD/C0123ABCD', "
    "'teams:11111111-2222-3333-4444-555555555555/66666666-7777-8888-9999-000000000000/19%3aabc%40thread.tacv2']"
)

ZONE_CODES = {
    "us-east-1": "use1", "eu-west-1": "euw1", "ap-southeast-2": "apse2", "cn-north-1": "cnn1", "us-gov-west-1": "usgw1",
}  # fmt: skip
"""Zone ids of a region begin so."""


def written(name: str, region: str, folder: Path) -> Path:
    """Write an environment's file for a region into a folder of its own; return it.

    Parameters
    ----------
    name
        Of an environment of the repository, or :data:`NEWEST`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.yaml"
    if name == NEWEST:
        zones = [f"{ZONE_CODES[region]}-az{number}" for number in (1, 2, 4)][
            : 2 if region == "cn-north-1" else 3
        ]
        text = _NEWEST.format(
            account=ACCOUNT,
            region=region,
            partition=aws_partition_of_region(region),
            domain=endpoint_domain_of_region(region),
            channels=""
            if region in LACKING["AWS::Chatbot::SlackChannelConfiguration"]
            else _CHANNELS.format(ACCOUNT),
            prometheus="false" if region in LACKING["AWS::APS::Workspace"] else "true",
            zones="[" + ", ".join(zones) + f"], availability_zones: {len(zones)}",
        )
        file.write_text(text)
        return file
    environment = load(name, root=ROOT)
    assert environment.value_locations.tree is not None
    plain = environment.value_locations.tree.to_json() | {"region": region}
    plain.pop("extends", None)
    if region in LACKING["AWS::APS::Workspace"]:
        plain.get("observability", {}).pop("prometheus", None)
    YAML().dump(plain, file)
    return file


def look(region: str, names: list[str], scratch: Path) -> list[Finding]:
    """Synthesise environments for a region and scan them."""
    folder = scratch / region
    assemblies = [
        synthesise(name, folder / name, written(name, region, scratch / "files" / region)) for name in names
    ]
    elsewhere = aws_partition_of_region(region) != "aws"
    return [
        finding
        for result in scan(assemblies).values()
        for finding in result
        if not (
            elsewhere
            and finding.check == _PARTITIONS
            and f"'arn:{aws_partition_of_region(region)}:states:::" in finding.message
        )
    ]


def parser() -> argparse.ArgumentParser:
    """Arguments of this program."""
    reading = argparse.ArgumentParser(description=__doc__)
    reading.add_argument("regions", nargs="*", help=f"codes; {', '.join(REGIONS)} where none is given")
    reading.add_argument("--only", action="append", help="an environment's name; may be given again")
    return reading


def main(regions: list[str], only: list[str], *, console: Console) -> int:
    """Scan all environments in some regions; return the exit status."""
    known, failures = accepted(ACCEPTED), 0
    for region in regions or REGIONS:
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as scratch:
            names = only or [*environment_names(ROOT), NEWEST]
            result = look(region, names, Path(scratch))
        unexplained_here = unexplained(result, known)
        for finding in unexplained_here:
            console.print(f"{region}: {finding.scanner} {finding.check} at {finding.at}: {finding.message}")
        counts = Counter(finding.scanner for finding in result)
        console.print(
            f"{region}: {len(names)} environments, {len(unexplained_here)} unexplained "
            f"({', '.join(f'{scanner} {counts[scanner]}' for scanner in SCANNERS)}), {time.monotonic() - began:.0f} s"
        )
        failures += len(unexplained_here)
    return 1 if failures else 0


if __name__ == "__main__":
    given = parser().parse_args()
    raise SystemExit(
        main(given.regions, given.only or [], console=Console(width=140 if not sys.stdout.isatty() else None))
    )
