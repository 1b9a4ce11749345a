"""The templates of `dev` are those of the golden files, so a review sees what a change deploys.

``pytest tests/template/test_golden.py --update`` rewrites them.
"""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest

from tests.template.conftest import Synthesis
from tests.template.readable_template import readable

GOLDEN = Path(__file__).parent / "golden"
ENVIRONMENT = "dev"
PARTS = (
    "history",
    "history-image",
    "job-departures",
    "job-flights",
    "kafka",
    "lifecycle",
    "network",
    "observability",
    "storage",
    "streams",
)


def test_there_is_a_golden_file_for_every_stack(dev: Synthesis) -> None:
    assert tuple(sorted(dev.templates)) == PARTS
    assert sorted(file.stem for file in GOLDEN.glob("*.yaml")) == list(PARTS)


@pytest.mark.parametrize("part", PARTS)
def test_the_template_is_the_golden_one(dev: Synthesis, part: str, request: pytest.FixtureRequest) -> None:
    file = GOLDEN / f"{part}.yaml"
    result = readable(dev.templates[part])
    if request.config.getoption("--update", default=False):
        GOLDEN.mkdir(exist_ok=True)
        file.write_text(result, encoding="utf-8")
    wanted = file.read_text(encoding="utf-8") if file.is_file() else ""
    if result != wanted:
        name = f"golden/{part}.yaml"
        difference = difflib.unified_diff(
            wanted.splitlines(), result.splitlines(), name, f"{part} as synthesised", lineterm="", n=4
        )
        pytest.fail(
            "\n".join((*difference, "", "If this is meant: pytest tests/template/test_golden.py --update")),
            pytrace=False,
        )


def test_a_difference_is_one_line_a_value(dev: Synthesis) -> None:
    template = dev.templates["streams"]
    (logical,) = [k for k, r in template["Resources"].items() if r["Type"] == "AWS::Kinesis::Stream"]
    changed = {
        **template,
        "Resources": {
            **template["Resources"],
            logical: {
                **template["Resources"][logical],
                "Properties": {**template["Resources"][logical]["Properties"], "ShardCount": 99},
            },
        },
    }
    before, after = readable(template).splitlines(), readable(changed).splitlines()
    lines = [line for line in difflib.unified_diff(before, after, n=0, lineterm="") if line[0] in "+-"][2:]
    assert [line.lstrip("+-").strip().split(":")[0] for line in lines] == ["ShardCount", "ShardCount"]


def test_hashes_of_files_are_masked(dev: Synthesis) -> None:
    text = readable(dev.templates["job-departures"])
    url = dev.templates["job-departures"]["Outputs"]["LaunchDocument"]["Value"]
    assert url.rsplit("/", 1)[1].split(".")[0] not in text
    assert "<asset>" in text
