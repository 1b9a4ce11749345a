"""A verification deletes only resources with both of its marks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.cli.watch import run_verification as command
from millrace.config import Environment
from millrace.lifecycle.account.real_cost import ENVIRONMENT, PROJECT
from millrace.verify.environment_copy import NAME as NAMES
from millrace.verify.environment_copy import TAG
from millrace.verify.removals.removal_scope import (
    UNKNOWN,
    VerificationScope,
    removal_waves,
    verification_of_stack,
)
from tests.unit.verify.conftest import NAME, environment

MINIMAL = environment("minimal")
OWN = VerificationScope("hello/minimal", NAME, f"hello-{NAME}")
WHOLE = {TAG: "hello/minimal", ENVIRONMENT: NAME, PROJECT: "hello"}


def stack(name: str, tags: dict[str, str]) -> dict[str, Any]:
    return {"StackName": name, "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}


def test_a_stack_with_both_marks_belongs_to_its_verification() -> None:
    result = verification_of_stack(stack(f"hello-{NAME}-storage", WHOLE), MINIMAL)
    assert result == OWN
    assert result.verified_environment_name == "minimal"
    assert result.tags.items() <= WHOLE.items()


def test_a_company_s_prefix_begins_the_names() -> None:
    governance = MINIMAL.governance.model_copy(update={"name_prefix": "acme"})
    acme = MINIMAL.model_copy(update={"governance": governance})
    assert verification_of_stack(stack(f"acme-hello-{NAME}-storage", WHOLE), acme) is not None
    assert verification_of_stack(stack(f"hello-{NAME}-storage", WHOLE), acme) is None


names = st.sampled_from(["hello-minimal", f"hello-{NAME}", "hello-prod", f"other-{NAME}", "hello-verify", ""])
values = st.sampled_from(
    [
        "hello/minimal",
        "other/minimal",
        "minimal",
        "hello/prod",
        NAME,
        "hello",
        "other",
        "verify",
        "verify-zzzz",
        "",
    ]
)


@given(
    prefix=names,
    part=st.sampled_from(["", "-storage", "-streams", "-job-x", "0-storage"]),
    tags=st.dictionaries(st.sampled_from([TAG, ENVIRONMENT, PROJECT, "team"]), values),
)
def test_nothing_else_ever_belongs_to_one(prefix: str, part: str, tags: dict[str, str]) -> None:
    result = verification_of_stack(stack(prefix + part, tags), MINIMAL)
    both = (
        tags.get(TAG) == "hello/minimal"
        and tags.get(PROJECT) == "hello"
        and NAMES.fullmatch(tags.get(ENVIRONMENT, "")) is not None
        and (prefix + part).startswith(f"{tags.get(PROJECT)}-{tags.get(ENVIRONMENT)}-")
    )
    assert (result is not None) == both


def test_another_project_s_verification_is_left_though_its_environment_has_the_same_name() -> None:
    other = MINIMAL.model_copy(update={"project": "other"})
    theirs = {TAG: "other/minimal", ENVIRONMENT: NAME, PROJECT: "other"}
    assert verification_of_stack(stack(f"other-{NAME}-storage", theirs), other) is not None
    assert verification_of_stack(stack(f"other-{NAME}-storage", theirs), MINIMAL) is None


def test_of_a_long_project_the_names_have_the_beginning_and_the_mark_has_all() -> None:
    long = MINIMAL.model_copy(update={"project": "hello-with-much-more"})
    cut = {TAG: "hello-with-much-more/minimal", ENVIRONMENT: NAME, PROJECT: "hello"}
    assert verification_of_stack(stack(f"hello-{NAME}-storage", cut), long) is not None
    assert (
        verification_of_stack(
            stack(f"hello-{NAME}-storage", cut | {TAG: "hello-with-much-less/minimal"}), long
        )
        is None
    )


def test_the_model_s_own_stacks_never_belong_to_one() -> None:
    """Not even where somebody gave it the tag: its name is no verification's."""
    own: Environment = MINIMAL
    tags = {TAG: "hello/minimal", ENVIRONMENT: own.name, PROJECT: own.project}
    assert verification_of_stack(stack("hello-minimal-storage", tags), own) is None


def test_the_way_out_is_the_command_while_a_stack_is_there_and_by_hand_where_none_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    topic, group = f"topic hello-{NAME}-.* on theirs (no answer)", f"log group /hello-{NAME}/jobs/a/error"
    command._print_cleanup_instructions([topic, group, f"stack hello-{NAME}-storage"], "CLEAN")
    assert (
        capsys.readouterr().err == "millrace verify: these resources are left; to remove them, run: CLEAN\n"
    )
    command._print_cleanup_instructions([f"{UNKNOWN}hello-{NAME}- and was not deleted yet"], "CLEAN")
    assert "CLEAN" in capsys.readouterr().err
    command._print_cleanup_instructions([topic, group, "arn:aws:sns:us-east-1:1:x"], "CLEAN")
    before = "millrace verify: delete this resource by hand: "
    assert [line.removeprefix(before) for line in capsys.readouterr().err.splitlines()] == [
        topic,
        group,
        "arn:aws:sns:us-east-1:1:x",
    ]
    command._print_cleanup_instructions([], "CLEAN")
    assert capsys.readouterr().err == ""


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=20))
def test_a_stack_goes_before_those_that_it_imports_from(pairs: list[tuple[int, int]]) -> None:
    templates: dict[str, dict[str, Any]] = {
        f"s{n}": {"Outputs": {"O": {"Value": n, "Export": {"Name": f"e{n}"}}}, "Resources": {}}
        for n in range(8)
    }
    uses = {(max(a, b), min(a, b)) for a, b in pairs if a != b}
    for user, used in uses:
        templates[f"s{user}"]["Resources"][f"R{used}"] = {
            "Properties": {"Names": [{"Fn::Join": ["", ["x", {"Fn::ImportValue": f"e{used}"}]]}]}
        }
    order = removal_waves(templates)
    place = {name: number for number, wave in enumerate(order) for name in wave}
    assert sorted(place) == sorted(templates)
    assert all(place[f"s{user}"] < place[f"s{used}"] for user, used in uses)
