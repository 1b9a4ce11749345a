"""Secrets in tracked files, found by detect-secrets; false positives are listed with their reasons."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from detect_secrets.core.scan import get_plugins
from detect_secrets.core.secrets_collection import SecretsCollection
from detect_secrets.settings import default_settings
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from ruamel.yaml import YAML

PASSED_OVER = (
    "requirements.txt", "package-lock.json", "toolchain/*.txt", "toolchain/jars.lock.json", "toolchain/carried.lock.json", "toolchain/*/package-lock.json", "toolchain/policy/secrets.yaml",
    "tests/template/golden/*.yaml",
)  # fmt: skip
"""Hashes line by line, and what synthesis makes of sources that are looked into."""


@dataclass(frozen=True, order=True)
class Secret:
    """Something that looks like a secret.

    Attributes
    ----------
    at
        File, below the root.
    digest
        SHA-1 of it: to name it without repeating it.
    """

    at: str
    line: int
    kind: str
    digest: str


class Harmless(BaseModel):
    """Something that looks like a secret and is none, wherever it stands."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    digest: str
    reason: str = Field(min_length=15)


def find(root: Path, files: Iterable[str]) -> list[Secret]:
    """Look into some files."""
    result = SecretsCollection(root=str(root))
    with default_settings():
        for file in files:
            if not file.endswith(".py") or _any_detector_matches(root / file):
                result.scan_file(file)
    return sorted(
        Secret(
            str(Path(root, each.filename).relative_to(root)), each.line_number, each.type, each.secret_hash
        )
        for _, each in result
    )


def _any_detector_matches(program: Path) -> bool:
    """Return whether a line matches before any filter: filters, which only take matches away, are half of the CPU time."""
    with program.open(encoding="utf-8") as lines:
        return any(_line_of_program_matches(line.strip()) for line in lines)


@cache
def _line_of_program_matches(line: str) -> bool:
    """Return whether a detector takes a line of Python for a secret; every second line stands somewhere else, too."""
    return any(plugin.analyze_line(filename="any.py", line=line, line_number=1) for plugin in get_plugins())


def tracked(root: Path) -> list[str]:
    """Files of the repository, without those that are passed over."""
    told = subprocess.run(["git", "ls-files", "-z"], cwd=root, check=True, capture_output=True, text=True)
    names = [name for name in told.stdout.split("\0") if name]
    return [name for name in names if not any(Path(name).match(lock) for lock in PASSED_OVER)]


def harmless(file: Path) -> tuple[Harmless, ...]:
    """Read the list of what is none."""
    return TypeAdapter(tuple[Harmless, ...]).validate_python(YAML(typ="safe").load(file) or [])
