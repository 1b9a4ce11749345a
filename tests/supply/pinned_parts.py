"""All pinned parts: Python packages, JVM jars, Node packages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Kind = Literal["pypi", "maven", "npm"]

_PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


@dataclass(frozen=True, order=True)
class Part:
    """One pinned thing.

    Attributes
    ----------
    name
        Of a jar ``group:name``.
    hashes
        SHA-256 of its files, where the lock has them so; Node's are SHA-512, in ``integrity``.
    file
        Lock that pins it, below the root.
    """

    kind: Kind
    name: str
    version: str
    file: str
    hashes: tuple[str, ...] = ()
    integrity: str = ""

    @property
    def purl(self) -> str:
        """Package URL (https://github.com/package-url/purl-spec)."""
        name = self.name.replace(":", "/") if self.kind == "maven" else self.name.replace("@", "%40", 1)
        return f"pkg:{self.kind}/{name}@{self.version}"


def python_locks(root: Path) -> list[Path]:
    """Hashed requirements files."""
    return [
        root / "requirements.txt",
        *sorted((root / "toolchain").glob("*.txt")),
    ]


def node_locks(root: Path) -> list[Path]:
    """Lock files of npm: of what deploys, and of what tests pages."""
    return [root / "package-lock.json", *sorted((root / "toolchain").glob("*/package-lock.json"))]


def parts(root: Path) -> list[Part]:
    """Read all locks."""
    return sorted({*_python(root), *_jars(root), *_node(root)})


def _python(root: Path) -> Iterator[Part]:
    for file in python_locks(root):
        for block in re.split(r"\n(?=\S)", file.read_text()):
            match = _PINNED.match(block)
            if match is not None:
                hashes = tuple(_HASH.findall(block))
                yield Part("pypi", match[1], match[2], str(file.relative_to(root)), hashes)


def _jars(root: Path) -> Iterator[Part]:
    file = root / "toolchain" / "jars.lock.json"
    for jars in json.loads(file.read_text()).values():
        for jar in jars:
            name = f"{jar['group']}:{jar['name']}"
            yield Part("maven", name, jar["version"], str(file.relative_to(root)), (jar["sha256"],))


def _node(root: Path) -> Iterator[Part]:
    for file in node_locks(root):
        for place, package in json.loads(file.read_text())["packages"].items():
            if place:
                name = package.get("name") or place.rpartition("node_modules/")[2]
                lock = str(file.relative_to(root))
                yield Part("npm", name, package["version"], lock, integrity=package.get("integrity", ""))
