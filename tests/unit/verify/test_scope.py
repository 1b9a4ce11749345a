"""What a verification may delete: only what bears both of its marks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.config import Environment
from millrace.lifecycle.bill import ENVIRONMENT, PROJECT
from millrace.verify.environment import NAME as NAMES
from millrace.verify.environment import TAG
from millrace.verify.place import VerifyError
from millrace.verify.removal import drop_topic
from millrace.verify.scope import Scope, scope_of, waves
from tests.unit.verify.conftest import NAME, environment

MINIMAL = environment("minimal")
WHOLE = {TAG: "minimal", ENVIRONMENT: NAME, PROJECT: "hello"}


def stack(name: str, tags: dict[str, str]) -> dict[str, Any]:
    return {"StackName": name, "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}


def test_a_stack_with_both_marks_belongs_to_its_verification() -> None:
    found = scope_of(stack(f"hello-{NAME}-storage", WHOLE), MINIMAL)
    assert found == Scope("minimal", NAME, f"hello-{NAME}")
    assert found.tags.items() <= WHOLE.items()


def test_a_company_s_prefix_begins_the_names() -> None:
    governance = MINIMAL.governance.model_copy(update={"name_prefix": "acme"})
    acme = MINIMAL.model_copy(update={"governance": governance})
    assert scope_of(stack(f"acme-hello-{NAME}-storage", WHOLE), acme) is not None
    assert scope_of(stack(f"hello-{NAME}-storage", WHOLE), acme) is None


names = st.sampled_from(["hello-minimal", f"hello-{NAME}", "hello-prod", f"other-{NAME}", "hello-verify", ""])
values = st.sampled_from(["minimal", "prod", NAME, "hello", "verify", "verify-", "verify-zzzz", ""])


@given(
    prefix=names,
    part=st.sampled_from(["", "-storage", "-streams", "-job-x", "0-storage"]),
    tags=st.dictionaries(st.sampled_from([TAG, ENVIRONMENT, PROJECT, "team"]), values),
)
def test_nothing_else_ever_belongs_to_one(prefix: str, part: str, tags: dict[str, str]) -> None:
    found = scope_of(stack(prefix + part, tags), MINIMAL)
    both = (
        tags.get(TAG) == "minimal"
        and NAMES.fullmatch(tags.get(ENVIRONMENT, "")) is not None
        and (prefix + part).startswith(f"{tags.get(PROJECT)}-{tags.get(ENVIRONMENT)}-")
    )
    assert (found is not None) == both


def test_the_model_s_own_stacks_never_belong_to_one() -> None:
    """Not even where somebody gave it the tag: its name is no verification's."""
    own: Environment = MINIMAL
    tags = {TAG: own.name, ENVIRONMENT: own.name, PROJECT: own.project}
    assert scope_of(stack("hello-minimal-storage", tags), own) is None


@pytest.mark.parametrize(
    "topic", ["orders", f"hello-{NAME}", f"hello-{NAME}0-records", f"x-hello-{NAME}-records"]
)
def test_no_other_topic_is_ever_deleted(topic: str) -> None:
    """Refused before any broker is asked: there is none at that address."""
    with pytest.raises(VerifyError, match=f"topic {topic} is not named hello-{NAME}-…: left"):
        drop_topic({"bootstrap.servers": "127.0.0.1:1"}, Scope("minimal", NAME, f"hello-{NAME}"), topic, 0.1)


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
    order = waves(templates)
    place = {name: number for number, wave in enumerate(order) for name in wave}
    assert sorted(place) == sorted(templates)
    assert all(place[f"s{user}"] < place[f"s{used}"] for user, used in uses)
