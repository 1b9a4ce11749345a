"""Data of claims that only an account proves, their page, and names to remove."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from millrace.infra.constructs import event_log_copier, history_image_pull_through_cache
from millrace.verify.account import deployment_checks
from millrace.verify.account.check_claims import CHECKS
from millrace.verify.account.claims import PAGE, Claim, read_claims, unproved_page_text

ROOT = Path(__file__).parents[3]
CONFESSIONS = re.compile(
    r"[Nn]ot tried (?:on|against) AWS|[Nn]ever run on AWS|confirmed: false|[Nn]obody has (?:tried|seen) it on AWS"
    r"|No document says which|taken from names seen|Not tried: the image",
)


def test_the_page_is_what_the_data_gives() -> None:
    assert (ROOT / PAGE).read_text(encoding="utf-8") == unproved_page_text(), (
        f"python -m millrace.verify.account.claims writes {PAGE}"
    )


def test_each_claim_names_files_that_are_there() -> None:
    for name, claim in read_claims().items():
        assert claim.used, name
        for file in claim.used:
            assert (ROOT / file.partition("#")[0]).is_file(), f"{name}: {file}"


def test_each_check_belongs_to_one_claim() -> None:
    asked = [claim.check for claim in read_claims().values() if claim.check is not None]
    assert sorted(asked) == sorted(CHECKS)


def test_a_claim_is_asked_or_looked_at() -> None:
    for given in ({}, {"check": "a", "proof": "b"}):
        with pytest.raises(ValueError, match="a check or a proof"):
            Claim.model_validate({"claim": "c", "used": ["d"], "line": "e", **given})


def _texts() -> list[Path]:
    folders = ("docs", "millrace", "infra", "etl")
    result = [p for f in folders for p in (ROOT / f).rglob("*") if p.suffix in (".md", ".py", ".yaml")]
    kept = [p for p in result if "examples" not in p.parts and p != ROOT / PAGE and p.name != "claims.yaml"]
    return [*kept, ROOT / "README.md"]


def test_whatever_says_that_it_was_not_tried_on_aws_is_a_claim() -> None:
    used = {file.partition("#")[0] for claim in read_claims().values() for file in claim.used}
    confessing = {
        str(path.relative_to(ROOT))
        for path in _texts()
        if CONFESSIONS.search(path.read_text(encoding="utf-8"))
    }
    assert confessing, "the pattern finds nothing any more"
    assert confessing - used == set()


def test_figures_that_stand_twice_are_the_same() -> None:
    assert f"{event_log_copier.FLAT_PREFIX}/" == deployment_checks.FLAT
    assert history_image_pull_through_cache.PUBLIC_URI.startswith("public.ecr.aws/")
