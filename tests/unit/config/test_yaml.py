"""Each YAML mistake has a plain message; null removes a key of the base."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from millrace.config import ConfigurationError, load
from millrace.config.document import yaml_tree
from tests.run import examples
from tests.unit.config.conftest import GOOD
from tests.unit.config.test_load import problems


@pytest.mark.parametrize(
    ("text", "line", "value", "allowed"),
    [
        (
            "streams: [1\njobs: 2\n",
            1,
            "the [ of streams is not closed",
            "] at its end; the parser stopped on line 2",
        ),
        (
            "streams:\n  a:\n    traffic: {records_per_second: 1, record_size: 1KiB\n    kind: kinesis\n",
            3,
            "the { of traffic is not closed",
            "} at its end; the parser stopped on line 4",
        ),
        ("a: {b: {c: 1}\nd: 2\ne: {f: 1}\n", 1, "the { of a is not closed", "} at its end"),
        ("jobs: {a: 1\n", 1, "the { of jobs is not closed", "}"),
        ("project: 'a\nregion: b\n", 1, "the quote of project is not closed", "the same quote"),
        ("project: a\n\tregion: b\n", 2, "a tab", "spaces"),
        ("project: a: b\n", 1, "mapping values are not allowed here", "quotes around a text with ': ' in it"),
    ],
)
def test_what_is_not_closed_is_told_where_it_begins(
    project: Path, text: str, line: int, value: str, allowed: str
) -> None:
    (problem,) = problems(project, text)
    assert (problem.file, problem.line, problem.value) == ("environments/shop.yaml", line, value)
    assert allowed in problem.allowed


ORDERS = "{records_per_second: 100, record_size: 1KiB}"


@pytest.mark.parametrize("written", ["'20,000'", "20k"])
def test_a_number_with_separators_is_one_mistake_that_says_how_it_is_written(
    project: Path, written: str
) -> None:
    assert ORDERS in GOOD
    traffic = f"{{records_per_second: {written}, record_size: 1KiB}}"
    (problem,) = problems(project, GOOD.replace(ORDERS, traffic))
    assert (problem.key, problem.value) == ("streams.orders.traffic.records_per_second", written.strip("'"))
    assert (problem.allowed, problem.hint) == ("a number", "write 20000")


def test_a_comma_inside_a_number_is_a_mistake_at_what_follows_it(project: Path) -> None:
    traffic = "{records_per_second: 1,500,000, record_size: 1KiB}"
    found = problems(project, GOOD.replace(ORDERS, traffic))
    assert {each.key: each.allowed for each in found} == {
        f"streams.orders.traffic.{key}": f"{key}: VALUE; inside {{ }} a comma ends a value"
        for key in ("500", "000")
    }


@pytest.mark.parametrize(
    ("key", "tag"), [("streams:", "!replace"), ("region:", "!env"), ("kind: kinesis", "!x")]
)
def test_a_tag_without_a_meaning_is_a_mistake(project: Path, key: str, tag: str) -> None:
    name, _, value = key.partition(":")
    (problem,) = problems(project, GOOD.replace(key, f"{name}: {tag}{value}", 1))
    assert f"has the tag {tag}, which means nothing here" in problem.value


def test_a_key_without_a_value_stays_a_mistake_of_its_own(project: Path) -> None:
    (problem,) = problems(project, GOOD.replace(ORDERS, ORDERS[:-1] + ", peak}"))
    assert problem.key == "streams.orders.traffic.peak"


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        ("us-esat-1", "us-east-1"),
        ("us_east_1", "us-east-1"),
        ("eu-wset-1", "eu-west-1"),
        ("us-east", "us-east-1"),
        ("EU-WEST-1", "eu-west-1"),
    ],
)
def test_a_region_that_is_none_names_the_nearest(project: Path, written: str, hint: str) -> None:
    (problem,) = problems(project, GOOD.replace("region: us-east-1", f"region: {written}"))
    assert (problem.key, problem.value, problem.hint) == ("region", written, f"did you mean {hint}?")


def test_null_removes_what_the_base_has(project: Path) -> None:
    (project / "environments" / "base.yaml").write_text(GOOD)
    over = "extends: base\ntags: null\njobs:\n  orders: null\n  clicks:\n    spark: ~\n    queries:\n      count-clicks:\n"
    over += "        enrich: null\nstreams: {orders: null, clicks: {retention: null}}\nkafka: null\n"
    (project / "environments" / "small.yaml").write_text(over)
    small = load("small", root=project)
    assert (small.tags, small.kafka, list(small.jobs), list(small.streams)) == (
        {},
        {},
        ["clicks"],
        ["clicks"],
    )
    assert (small.jobs["clicks"].spark, small.jobs["clicks"].queries["count-clicks"].enrich) == ({}, ())
    assert small.streams["clicks"].retention.total_seconds() == 24 * 3600


def test_null_where_the_base_has_nothing_is_a_mistake(project: Path) -> None:
    (project / "environments" / "base.yaml").write_text(GOOD)
    result = problems(
        project, "extends: base\nstreams: {clicks: {retenton: null}}\njobs: {other: null}\n", "small"
    )
    assert {each.key for each in result} == {"streams.clicks.retenton", "jobs.other"}


def test_what_null_removes_and_others_need_is_told_as_missing(project: Path) -> None:
    (project / "environments" / "base.yaml").write_text(GOOD)
    (problem,) = problems(
        project, "extends: base\nstreams: {clicks: {traffic: {record_size: null}}}\n", "small"
    )
    assert (problem.file, problem.key) == ("environments/small.yaml", "streams.clicks.traffic.record_size")


_TEXTS = (
    "a: {b: 1, c: [x, y]}\nd: &k\n  - 1\n  - '2'\ne: *k\n<<: {f: 1}\ng: |\n  text\n  more\nh: >-\n  x\n",
    "a: 1\nb: 012\nc: 0o7\nd: 1_000\ne: yes\nf: ~\ng: 2020-01-01\nh: 1:30\ni: .inf\na: again\n",
    'a: {x: 1,000, y: 2}\nb: {"k":1}\nc: http://x#y\nd: a #c\n? e\n: !!str 5\n',
)


def test_both_parsers_read_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, chance = tmp_path / "a.yaml", random.Random(1)
    other_form = vars(yaml_tree)["_READ_DIFFERENTLY"]
    for _ in range(examples(1500)):
        text = chance.choice(_TEXTS)
        for _ in range(chance.choice([0, 1, 1, 2, 4])):
            at = chance.randrange(len(text))
            added = chance.choice("\t\n :-#{}[],&*!|>'\"%@`?~<=0x1_.\\é\u2028\u00a0\ufeff") * chance.choice(
                [0, 1, 1]
            )
            text = text[:at] + added + text[at + (not added) :]
        file.write_text(text, newline="")
        results = []
        for for_python in (other_form, re.compile("")):  # the second one fits every text
            monkeypatch.setattr(yaml_tree, "_READ_DIFFERENTLY", for_python)
            try:
                read = yaml_tree.read_document(file)
                results.append((str(read.tree), read.mistakes))
            except yaml_tree.DocumentError:
                results.append(("refused", ()))
        assert results[0] == results[1], text


@pytest.mark.parametrize("text", ["a: " + "[" * 60_000, "a:\n - " + "- " * 60_000, "a: " + "{a: " * 60_000])
def test_deep_nesting_is_a_message(tmp_path: Path, text: str) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(text)
    with pytest.raises(yaml_tree.DocumentError):
        yaml_tree.read_document(file)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("9" * 19, "cores is a number of more than 18 digits"),
        ("9" * 5000, "cores is a number of more than 18 digits"),
        (f"[{'9' * 5000}]", "cores[0] is a number of more than 18 digits"),
        (f"0x{'f' * 5000}", "cores is a number of more than 18 digits"),
        (f"{{a: 1{',999' * 2000}}}", "inside { } a comma ends a value"),
    ],
)
def test_a_huge_number_is_a_message_of_ours(project: Path, written: str, said: str) -> None:
    file = project / "environments/dev.yaml"
    file.write_text(f"project: shop\ncores: {written}\n")
    with pytest.raises(ConfigurationError) as caught:
        load("dev", root=project)
    assert said in str(caught.value)
    assert "sys." not in str(caught.value)
