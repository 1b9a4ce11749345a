"""Conditions of data rules: accepted, refused with a reason, and rewritten for a routed table."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.config import ConfigurationError, load
from millrace.config.checks.columns import ENVELOPE
from millrace.config.sql_conditions import parse_condition
from millrace.sizing import plan
from tests.unit.config.conftest import GOOD

SCHEMA = "        schema: pipelines/shop/schemas/click.ddl\n"
PLACE = "jobs.clicks.queries.land-clicks.rules"


def with_rules(project: Path, *rules: str, more: str = "") -> None:
    lines = "".join(f"          {rule}\n" for rule in rules)
    text = GOOD.replace(SCHEMA, f"{SCHEMA}{more}        rules:\n{lines}", 1)
    (project / "environments" / "shop.yaml").write_text(text)


def refused(project: Path, *rules: str, more: str = "") -> dict[str, tuple[str, str | None]]:
    with_rules(project, *rules, more=more)
    with pytest.raises(ConfigurationError) as caught:
        load("shop", root=project)
    return {problem.key: (problem.allowed, problem.hint) for problem in caught.value.problems}


@pytest.mark.parametrize(
    ("text", "columns", "routed"),
    [
        (
            "a.b.c[0] > 3 AND `we ird` RLIKE 'a'",
            ("a", "we ird"),
            "`r`.a.b.c[0] > 3 AND `r`.`we ird` RLIKE 'a'",
        ),
        ("exists(tags, t -> t.kind = 'a')", ("tags",), "exists(`r`.tags, t -> t.kind = 'a')"),
        ("A <= _Arrived_At", ("A", "_Arrived_At"), "`r`.A <= _Arrived_At"),
        ("x = 'é `a`' AND é IN (x, 1)", ("x", "é"), "`r`.x = 'é `a`' AND `r`.é IN (`r`.x, 1)"),
        ("CASE WHEN a > 1 THEN b ELSE TRUE END", ("b", "a"), "CASE WHEN `r`.a > 1 THEN `r`.b ELSE TRUE END"),
        ("a BETWEEN DATE '2020-01-01' AND b", ("a", "b"), "`r`.a BETWEEN DATE '2020-01-01' AND `r`.b"),
        ("unix_timestamp(a) > 3 -- seconds", ("a",), "unix_timestamp(`r`.a) > 3 -- seconds"),
    ],
)
def test_columns_of_a_condition(text: str, columns: tuple[str, ...], routed: str) -> None:
    condition = parse_condition(text)
    assert sorted(condition.columns) == sorted(columns)
    assert condition.condition_in_struct("r", frozenset(ENVELOPE)) == routed


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("distance < 10 AND", "cannot be parsed at column 17, near 'AND'"),
        ("a = 'x", "a valid condition in Spark SQL"),
        ("", "one condition"),
        ("a = 1; DROP TABLE x", "one condition"),
        ("x IN (SELECT 1)", "no subquery"),
        ("SELECT 1", "no subquery"),
        ("count(*) > 1", "no aggregate"),
        ("sum(x) OVER (PARTITION BY y) > 1", "no window function"),
        ("a = 1 AS b", "one condition, without AS"),
        ("a + 1", "true or false"),
        ("'text'", "true or false"),
        ("rand() < 0.5", r"a condition without rand\(\), whose value differs"),
        ("at <= now()", "compare with _arrived_at"),
        ("at <= current_timestamp()", "compare with _arrived_at"),
        ("at > CURRENT_DATE", "compare with _arrived_at"),
    ],
)
def test_what_is_no_condition_on_one_row(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_condition(text)


def test_all_mistakes_at_once(project: Path) -> None:
    result = refused(
        project,
        'known: {where: "pag IS NOT NULL"}',
        'read: {where: "page >"}',
        'hidden: {where: "AT IS NOT NULL"}',
        'odd: {where: "at > 1", action: drop}',
        more="        redact: [at]\n",
    )
    assert result[f"{PLACE}.known.where"] == (
        "a field of pipelines/shop/schemas/click.ddl: page, at",
        "did you mean page?",
    )
    assert "cannot be parsed at column" in result[f"{PLACE}.read.where"][0]
    assert "not redacted" in result[f"{PLACE}.hidden.where"][0]
    assert result[f"{PLACE}.odd.action"][0] == "one of warn, dead-letter, fail"
    assert "not redacted" in result[f"{PLACE}.odd.where"][0]
    assert len(result) == 5


def test_a_query_with_rules_has_a_metric_and_an_alarm(project: Path) -> None:
    def alarms() -> set[str]:
        return {alarm.name for alarm in plan(load("shop", root=project)).alarms}

    before = alarms()
    with_rules(project, "page: {where: \"page <> '' AND _arrived_at > at\"}")
    assert alarms() - before == {"job/clicks/land-clicks/broken-rules"}
