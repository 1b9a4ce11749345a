"""Accounts, hosts and secrets that an environment file names, and those that it takes over from the file that it extends."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any
from urllib.parse import unquote

from millrace.config.document.problems import Finding, Path, dotted_path
from millrace.config.document.yaml_tree import Tree

_ACCOUNT = re.compile(
    r"\barn:aws[a-z-]*:[a-z0-9-]+:[a-z0-9-]*:(\d{12}):|\b(\d{12})\.dkr\.ecr\.|\bamazonaws\.com(?:\.cn)?/(\d{12})/"
)
"""An ARN with an account (AWS general reference, "Amazon Resource Names"), the address of a private image, or of a queue."""

_ACCOUNT_KEY = re.compile(r"(?i)(^|[._-])(glue\.id|account([._-]?id)?|catalog[._-]?id)$")
"""A key whose value is an account, such as Iceberg's ``glue.id``."""

_HOST = re.compile(r"://|^[\w-]+(\.[\w-]+)+:\d{1,5}\b")
_HOSTS = re.compile(r"(?:(?<!s3)://|^|,)([\w-]+(?:\.[\w-]+)*\.[A-Za-z][\w-]*)(?=[:/?,]|$)")
"""Names in a URL or a list of servers; an address needs no resolution."""

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
    for path, value in tree.leaves():
        keys = [step for step in path if isinstance(step, str)]
        texts = [*keys, value] if isinstance(value, str) else keys
        named = ["".join(result) for text in texts for result in _ACCOUNT.findall(unquote(text))]
        if keys and _ACCOUNT_KEY.search(keys[-1]) and re.fullmatch(r"\d{12}", str(value)):
            named.append(str(value))
        if foreign := [each for each in named if each != account and each not in others]:
            yield Finding(
                path,
                str(value),
                f"a value of account {account}; if account {foreign[0]} is intended, list it in governance.other_accounts",
            )


def describe_inherited_accounts_and_hosts(tree: Tree) -> list[str]:
    """Return a line for each value that names an account, host or secret and stands in a file which the environment extends."""
    return [
        f"{dotted_path(path)}: {value} ({node.file.name})"
        for path, value in tree.leaves()
        if (node := tree.at(path)) is not None
        and node.file != tree.file
        and isinstance(value, str)
        and _may_be_foreign_name(path, value)
    ]


def hosts_of_urls_and_servers(tree: Tree) -> list[str]:
    """Return the hosts of URLs and server lists in the file, sorted."""
    return _hosts(value for _, value in tree.leaves())


def hosts_on_internet(*trees: Tree | None) -> list[str]:
    """Return the hosts in sections of the file that are taken to be on the internet, by their names; an address is taken to be inside."""
    values = (value for tree in trees if tree is not None for _, value in tree.leaves())
    return [host for host in _hosts(values) if not _INSIDE.search(host)]


def _hosts(values: Iterable[Any]) -> list[str]:
    urls_and_servers = (value for value in values if isinstance(value, str) and _HOST.search(value))
    return sorted({host.lower() for value in urls_and_servers for host in _HOSTS.findall(value)})


def _may_be_foreign_name(path: Path, value: str) -> bool:
    key = next((step for step in reversed(path) if isinstance(step, str)), "")
    return bool(_ACCOUNT.search(value) or _HOST.search(value) or _NAMING.search(key))
