"""An edit changes one value of a file's text and no other byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from millrace.config.document.edit_yaml_text import EditError, remove_key, set_value

FILE = """\
# what we run
jobs: # by name
  clicks:
    engine: glue
    latency: 60s # as agreed
    rate: {records_per_second_per_core: 5000, batch_overhead: 2s}

    # the queries
    queries:
      land:
        kind: land
        trigger:
        columns: [a, b] # two

    # nothing more
  orders: {cores: 4}
tags:
  - name: "x"
    value: >
      long
      text
"""


@pytest.mark.parametrize(
    ("path", "value", "old", "new"),
    [
        (("jobs", "clicks", "latency"), "90s", "latency: 60s # as", "latency: 90s # as"),
        (
            ("jobs", "clicks", "rate", "batch_overhead"),
            "3s",
            "batch_overhead: 2s}",
            "batch_overhead: 3s}",
        ),
        (("jobs", "clicks", "rate", "basis"), "measured", "2s}", "2s, basis: measured}"),
        (("jobs", "clicks", "queries", "land", "trigger"), "5s", "trigger:\n", "trigger: 5s\n"),
        (("jobs", "clicks", "queries", "land", "columns", 1), "c", "[a, b]", "[a, c]"),
        (("jobs", "clicks", "queries", "land", "columns"), ["c"], "[a, b] # two", "[c] # two"),
        (("jobs", "clicks", "cores"), 12, "2s}\n", "2s}\n    cores: 12\n"),
        (
            ("jobs", "clicks", "queries", "land", "records_per_batch"),
            500,
            "[a, b] # two\n",
            "[a, b] # two\n        records_per_batch: 500\n",
        ),
        (("jobs", "orders", "cores"), 8, "{cores: 4}", "{cores: 8}"),
        (("jobs", "orders", "x"), ":0", "{cores: 4}", '{cores: 4, x: ":0"}'),
        (("tags", 0, "name"), "4.0", '"x"', "'4.0'"),
        (("tags", 0, "more"), True, '"x"\n', '"x"\n    more: true\n'),
        (
            ("jobs", "clicks", "spark", "spark.sql.shuffle.partitions"),
            "8",
            "[a, b] # two\n",
            "[a, b] # two\n    spark:\n      spark.sql.shuffle.partitions: '8'\n",
        ),
        (("jobs", "orders", "spark", "a.b"), "8", "{cores: 4}", "{cores: 4, spark: {a.b: '8'}}"),
        (("network", "egress"), "nat", "long\n      text\n", "long\n      text\nnetwork:\n  egress: nat\n"),
    ],
)
def test_one_value_changes_and_nothing_else(path, value, old, new):
    assert FILE.count(old) == 1
    after = set_value(FILE, path, value)
    assert after == FILE.replace(old, new)


def test_where_only_blocks_stand_the_new_value_is_first():
    text = "# all\njobs:\n  a:\n    x: 1\n"
    assert set_value(text, ("name",), "n") == "# all\nname: n\njobs:\n  a:\n    x: 1\n"


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        (("jobs", "clicks", "latency"), "    latency: 60s # as agreed\n", ""),
        (
            ("jobs", "clicks", "rate", "records_per_second_per_core"),
            "records_per_second_per_core: 5000, ",
            "",
        ),
        (("jobs", "clicks", "rate", "batch_overhead"), ", batch_overhead: 2s", ""),
        (("jobs", "orders", "cores"), "cores: 4", ""),
        (
            ("jobs", "clicks", "queries"),
            "    queries:\n      land:\n        kind: land\n        trigger:\n        columns: [a, b] # two\n",
            "",
        ),
    ],
)
def test_a_value_is_taken_away(path, old, new):
    assert remove_key(FILE, path) == FILE.replace(old, new)


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        (("jobs", "clicks", "queries"), {}, "spans several lines"),
        (("tags", 0, "value"), "x", "spans several lines"),
        (("tags", 3), "x", "there is no item 3: the list has 1, counted from 0"),
        (("jobs", "clicks", "engine", "version"), "x", "is not a mapping"),
        (("tags", "name"), "x", "is not a mapping"),
    ],
)
def test_what_cannot_be_edited_is_told(path, value, told):
    with pytest.raises(EditError, match=told):
        set_value(FILE, path, value)


@pytest.mark.parametrize(
    ("path", "told"),
    [
        (("jobs", "moon"), "not there"),
        (("jobs", "clicks", "queries", "land"), "is the only key of jobs.clicks.queries"),
        (("tags", 0, "name"), "is the first key of an item of a list"),
    ],
)
def test_what_cannot_be_taken_away_is_told(path, told):
    with pytest.raises(EditError, match=told):
        remove_key(FILE, path)


def test_line_ends_and_a_missing_last_one_are_kept():
    assert set_value("a: 1\r\nb: 2\r\n", ("c",), 3) == "a: 1\r\nb: 2\r\nc: 3\r\n"
    assert set_value("a: 1\nb: 2", ("b",), 3) == "a: 1\nb: 3"
    assert set_value("a: 1", ("b",), 3) == "a: 1\nb: 3\n"


PLAIN = st.one_of(
    st.booleans(),
    st.integers(-(10**6), 10**6),
    st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zl", "Zp"]), max_size=12),
)


@pytest.mark.slow
@given(path=st.sampled_from([("jobs", "clicks", "latency"), ("jobs", "orders", "x"), ("top",)]), value=PLAIN)
def test_what_was_written_is_what_is_read(path, value):
    read = YAML(typ="safe", pure=True).load(set_value(FILE, path, value))
    expected = YAML(typ="safe", pure=True).load(FILE)
    inner = expected
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    assert read == expected
