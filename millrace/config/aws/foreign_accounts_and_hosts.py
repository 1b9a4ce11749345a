"""Accounts, regions, hosts, ports and secrets that an environment file names, and those that it takes over from the file that it extends."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

from millrace.config.aws.regions import aws_partition_of_region, endpoint_domain_of_region
from millrace.config.document.problems import Finding, Path, dotted_path
from millrace.config.document.yaml_tree import Tree

_ACCOUNT = re.compile(
    r"\barn:aws[a-z-]*:[a-z0-9-]+:[a-z0-9-]*:(\d{12}):|\b(\d{12})\.dkr\.ecr\.|\bamazonaws\.com(?:\.cn)?/(\d{12})/"
)
"""An ARN with an account (AWS general reference, "Amazon Resource Names"), the address of a private image, or of a queue."""

_ACCOUNT_KEY = re.compile(r"(?i)(^|[._-])(glue\.id|account([._-]?id)?|catalog[._-]?id)$")
"""A key whose value is an account, such as Iceberg's ``glue.id``."""

_ARN = re.compile(r"arn:(?P<partition>aws[a-z-]*):(?P<service>[a-z0-9-]+):(?P<region>[a-z0-9-]*):.*")
_IMAGE = re.compile(r"\d{12}\.dkr\.ecr\.([a-z0-9-]+\.amazonaws\.com(\.cn)?)/.*")

_REGIONAL = {"acm": "a certificate", "kinesis": "a stream", "kms": "a key", "secretsmanager": "a secret"}
"""Services that are called, or whose resources are used, in the environment's region alone."""

_HOST = re.compile(r"://|^[\w-]+(\.[\w-]+)+:\d{1,5}\b")
_USER = r"(?:[^/?#@\s]*@)?"
_HOSTS = re.compile(rf"(?:(?<!s3)://{_USER}|^|,)([\w-]+(?:\.[\w-]+)*\.[A-Za-z][\w-]*)(?=[:/?,]|$)")
"""Names in a URL or a list of servers; an address needs no resolution."""

_PORTS = {"http": 80, "https": 443, "postgresql": 5432}
"""Port of a URL that names none (RFC 9110, section 4.2; libpq's "Connection URIs")."""

_URL = re.compile(rf"\b({'|'.join(_PORTS)})://{_USER}(?:[\w.-]+|\[[\da-fA-F:.]+\])(?::(\d+))?(?=[/?#,\s]|$)")

_INSIDE = re.compile(
    r"\.(internal|local)$|(^|\.)private\.|^(?!search-|.*-public\.).*\.(amazonaws\.com(\.cn)?|api\.aws)$"
)
"""Names that resolve to addresses of a VPC or reach AWS by endpoints; MSK's public brokers and public OpenSearch domains do neither."""

_NAMING = re.compile(r"(^|_)(account|accounts|url|host|endpoint|bootstrap|secret)$")


def foreign_account_findings(tree: Tree, account: str, others: Collection[str]) -> Iterator[Finding]:
    """Yield a finding for each value that names an account which the environment does not say that it means.

    Parameters
    ----------
    tree
        The environment with what it extends.
    account
        Of the environment.
    others
        Accounts of ``governance.other_accounts``.
    """
    for path, value in tree.leaves:
        keys = [step for step in path if isinstance(step, str)]
        texts = [*keys, value] if isinstance(value, str) else keys
        named = [each for text in texts for each in _named_accounts(text)]
        if keys and _ACCOUNT_KEY.search(keys[-1]) and re.fullmatch(r"\d{12}", str(value)):
            named.append(str(value))
        if foreign := [each for each in named if each != account and each not in others]:
            yield Finding(
                path,
                str(value),
                f"a value of account {account}; if account {foreign[0]} is intended, list it in governance.other_accounts",
            )


@lru_cache(maxsize=1024)  # a key is of many values
def _named_accounts(text: str) -> list[str]:
    return ["".join(result) for result in _ACCOUNT.findall(unquote(text))]


def foreign_region_findings(tree: Tree, region: str) -> Iterator[Finding]:
    """Yield a finding for each ARN of another partition, and for each resource of another region that must be in this one.

    Roles and policies have no region. Clusters and domains may be reached in another one, and the key of an existing table is in
    the region of its bucket. EMR Serverless and ECS take images of their own region (EMR Serverless user guide, "Customizing an
    EMR Serverless image": prerequisites).
    """
    partition, domain = aws_partition_of_region(region), endpoint_domain_of_region(region)
    for path, value in tree.leaves:
        if path[0] == "tags" or "spark" in path or not isinstance(value, str):
            continue
        arn, image = _ARN.fullmatch(value), _IMAGE.fullmatch(value)
        if image is not None and image[1] != f"{region}.{domain}":
            yield Finding(path, value, f"an image in {region}")
        elif (
            arn is not None
            and arn["service"] in _REGIONAL
            and arn["region"] != region
            and path[0] != "tables"
        ):
            yield Finding(path, value, f"{_REGIONAL[arn['service']]} in {region}")
        elif arn is not None and arn["partition"] != partition:
            yield Finding(path, value, f"an ARN that begins with arn:{partition}:, as all of {region}")


def describe_inherited_accounts_and_hosts(tree: Tree) -> list[str]:
    """Return a line for each value that names an account, host or secret and stands in a file which the environment extends."""
    return [
        f"{dotted_path(path)}: {value} ({node.file.name})"
        for path, value in tree.leaves
        if (node := tree.at(path)) is not None
        and node.file != tree.file
        and isinstance(value, str)
        and _may_be_foreign_name(path, value)
    ]


def hosts_of_urls_and_servers(tree: Tree) -> list[str]:
    """Return the hosts of URLs and server lists in the file, sorted."""
    return _hosts(value for _, value in tree.leaves)


def ports_of_urls(value: Any) -> list[int]:
    """Return the ports of the URLs in a value of the file.

    Examples
    --------
    >>> ports_of_urls("https://registry.example:8081"), ports_of_urls("jdbc:postgresql://db.shop/shop")
    ([8081], [5432])
    """
    return [int(port or _PORTS[scheme]) for scheme, port in _URL.findall(str(value))]


def port_findings(tree: Tree) -> Iterator[Finding]:
    """Yield a finding for each value with a URL whose port no server can have."""
    for path, value in tree.leaves:
        if not all(0 < port < 65536 for port in ports_of_urls(value)):
            yield Finding(path, str(value), "a port from 1 to 65535")


def hosts_on_internet(*trees: Tree | None) -> list[str]:
    """Return the hosts in sections of the file that are taken to be on the internet, by their names; an address is taken to be inside."""
    values = (value for tree in trees if tree is not None for _, value in tree.leaves)
    return [host for host in _hosts(values) if not _INSIDE.search(host)]


def _hosts(values: Iterable[Any]) -> list[str]:
    urls_and_servers = (value for value in values if isinstance(value, str) and _HOST.search(value))
    return sorted({host.lower() for value in urls_and_servers for host in _HOSTS.findall(value)})


def _may_be_foreign_name(path: Path, value: str) -> bool:
    key = next((step for step in reversed(path) if isinstance(step, str)), "")
    return bool(_ACCOUNT.search(value) or _HOST.search(value) or _NAMING.search(key))
