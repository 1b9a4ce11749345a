"""A verification checks its claims while its copy exists, and then removes the copy."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from millrace.cli.plan import prices
from millrace.cli.watch import run_verification
from millrace.lifecycle.account.deployed_environment import DeployedEnvironment
from millrace.sizing import plan
from millrace.verify import run as running
from millrace.verify.account.check_claims import ClaimAnswer
from millrace.verify.account.claims import read_claims
from millrace.verify.environment_copy import VerificationCopy, VerificationSettings
from millrace.verify.run import Verification
from tests.unit.lifecycle.test_verify_cleanup import HalfDeployed, copy, file, half, stacks

__all__ = ["copy", "file", "half"]


class Told_:  # noqa: N801 - stands in for VerificationScenario, with the methods that the run calls
    """A story that is told at once."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.producers: dict[str, Any] = {}
        self.units = Counter[str]()
        self.shards: list[tuple[float, int]] = []
        self.kills: list[Any] = []
        self.reshards: list[Any] = []

    def start_all(self) -> None: ...
    def kill_and_reshard(self) -> None: ...
    def stop(self) -> None: ...
    def stop_traffic(self) -> None: ...
    def send_rest_stop_jobs_and_describe_missing(self) -> str:
        return ""

    def compare_tables(self) -> tuple[Any, ...]:
        return ()


@pytest.fixture
def whole(half: HalfDeployed, monkeypatch: pytest.MonkeyPatch) -> HalfDeployed:
    monkeypatch.setattr(running, "VerificationScenario", Told_)
    half.happens = None
    return half


def verification(whole: HalfDeployed, copy: VerificationCopy, folder: Path, observe: Any) -> Verification:
    sized = plan(copy.environment)
    return Verification(whole, copy, sized, VerificationSettings(), folder, lambda _: None, observe=observe)


def test_claims_are_asked_of_the_copy_before_it_goes(
    whole: HalfDeployed, copy: VerificationCopy, aws: DeployedEnvironment, tmp_path: Path
) -> None:
    seen: list[tuple[VerificationCopy, list[str]]] = []

    def observe(given: VerificationCopy) -> tuple[ClaimAnswer, ...]:
        seen.append((given, stacks(aws)))
        return (ClaimAnswer("emr-runs", "refuted", "x"),)

    result = verification(whole, copy, tmp_path, observe).run()
    assert seen == [(copy, [f"{copy.names.prefix}-streams"])]
    assert stacks(aws) == []
    assert [step.name for step in result.steps][-2:] == ["check the claims that need an account", "tear down"]
    # What an account says of AWS is no trouble of the environment's.
    assert result.trouble == ()
    assert result.document()["claims"]["verdict"] == "0 proved, 1 refuted, 0 undetermined"


def test_an_error_that_nobody_foresaw_leaves_nothing_behind(
    whole: HalfDeployed, copy: VerificationCopy, aws: DeployedEnvironment, tmp_path: Path
) -> None:
    def observe(_: VerificationCopy) -> tuple[ClaimAnswer, ...]:
        raise ArithmeticError("a mistake of ours")

    with pytest.raises(ArithmeticError):
        verification(whole, copy, tmp_path, observe).run()
    assert stacks(aws) == []


def test_the_command_asks_by_the_names_of_the_copy(
    whole: HalfDeployed, copy: VerificationCopy, aws: DeployedEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(key, "test")
    asked: list[dict[str, Any]] = []

    class Noting:
        """Refuses everything, and remembers what it was asked."""

        def __init__(self, service: str) -> None:
            self.real = aws.client(service)
            self.exceptions, self.meta = self.real.exceptions, self.real.meta

        def __getattr__(self, name: str) -> Any:
            def call(**given: Any) -> Any:
                asked.append(given)
                raise OSError("refused")

            return call

    monkeypatch.setattr(prices, "price_list_client", lambda _: Noting("pricing"))
    monkeypatch.setattr(
        "millrace.verify.account.check_input_and_answer.ClaimContext.fetch",
        lambda *_: (_ for _ in ()).throw(OSError()),
    )
    told = run_verification.check_claims_of_copy(copy.environment, Noting, copy)
    assert [each.id for each in told] == list(read_claims())
    texts = json.dumps(asked)
    assert copy.names.prefix in texts
