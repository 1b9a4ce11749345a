"""Copies of the project's environments, as `millrace verify` makes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from millrace.config import Environment, load
from millrace.verify import sandbox_target
from millrace.verify.environment_copy import (
    VerificationCopy,
    VerificationSettings,
    write_verification_environment,
)

ROOT = Path(__file__).parents[3]
NAME, ACCOUNT = "verify-0a1b", "111122223333"

Make = Callable[..., VerificationCopy]


def environment(name: str) -> Environment:
    return load(name, root=ROOT)


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def derived(given: Environment | str, **changes: object) -> VerificationCopy:
        what = environment(given) if isinstance(given, str) else given
        settings = {
            "account": ACCOUNT,
            "settings": VerificationSettings(),
            "root": ROOT,
            "folder": tmp_path / "verify",
            "clusters": sandbox_target.sandbox_cluster_sections(what),
        } | changes
        return write_verification_environment(what, NAME, **settings)  # type: ignore[arg-type]  # by name, above

    return derived
