"""``audit`` and ``backfill`` refuse wrong options before any request, and state the size of a backfill."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import boto3
import pytest

from millrace.cli.repair.backfill import estimate_backfill
from millrace.config import load
from tests.unit.cli.test_command_output import ROOT, millrace

RANGE = ("--since", "2026-11-20", "--until", "2026-11-21")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("backfill", "flight", "--env", "prod", *RANGE), "flight"),
        (("backfill", "positions", "--env", "prod", *RANGE), "a job with a derive query"),
        (("backfill", "bookings", "--env", "prod", *RANGE), "price-bookings, sales"),
        (("backfill", "flights", "--env", "prod", "--query", "land-flights", *RANGE), "flights-weather"),
        (
            ("backfill", "flights", "--env", "prod", "--since", "2026-11-21", "--until", "2026-11-20"),
            "before --until",
        ),
        (
            ("backfill", "flights", "--env", "prod", "--since", "2026-11-21", "--until", "2999-01-01"),
            "of the last hour",
        ),
        (("backfill", "flights", "--env", "prod", "--since", "soon", "--until", "2026-11-21"), "soon"),
        (("backfill", "flights", "--env", "prod", "--until", "2026-11-21"), "2026-11-20T08:00:00Z"),
        (
            ("backfill", "flights", "--env", "prod", "--from", "stream", "--replace", *RANGE),
            "not together with --from",
        ),
        (("backfill", "flights", "--env", "prod", "--from", "s3://a/b", *RANGE), "not together with files"),
        (
            (
                "backfill",
                "flights",
                "--env",
                "prod",
                "--from",
                "stream",
                "--query",
                "flights-weather",
                *RANGE,
            ),
            "land-flights",
        ),
        (("replay", "flight", "--env", "prod"), "flight"),
        (("replay", "flights", "--env", "prod", "--query", "flights-weather"), "land-flights"),
        (("audit", "flight", "--env", "prod"), "flight"),
        (("audit", "flights", "--env", "prod", "--query", "flights-weather"), "land-flights"),
        (("audit", "flights", "--env", "prod", "--hours", "0"), "--hours"),
    ],
)
def test_a_mistake_is_status_2_and_says_what_is_allowed(arguments: tuple[str, ...], said: str) -> None:
    done = millrace(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_what_runs_in_no_sandbox_is_looked_for_on_aws(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)  # which may have found credentials before
    done = millrace("backfill", "flights", "--env", "prod", *RANGE)
    assert done.returncode == 2
    assert "cannot tell to whom these AWS credentials belong" in done.stderr


def test_time_and_dollars_follow_the_rate_and_the_plan() -> None:
    environment = load("prod", root=ROOT)
    begin = datetime(2026, 11, 20, tzinfo=UTC)
    one, one_usd, basis = estimate_backfill(
        environment, "flights", "land-flights", 10_000_000, begin, begin + timedelta(hours=1)
    )
    two, two_usd, _ = estimate_backfill(
        environment, "flights", "land-flights", 20_000_000, begin, begin + timedelta(hours=1)
    )
    day, _, _ = estimate_backfill(
        environment, "flights", "land-flights", 10_000_000, begin, begin + timedelta(days=1)
    )
    overhead = environment.jobs["flights"].rate.batch_overhead.total_seconds()
    assert two - overhead == pytest.approx(2 * (one - overhead))
    assert day - one == pytest.approx(23 * overhead)
    assert two_usd / one_usd == pytest.approx(two / one)
    assert one_usd > 0
    assert basis == "measured"
