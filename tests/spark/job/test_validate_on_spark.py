"""`millrace validate` with Spark reports each unknown and each missing column of a transform once."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.cli.plan import check_transforms_on_spark
from millrace.config import ConfigurationError, load
from millrace.sandbox.programs import toolchain
from millrace.sandbox.programs.toolchain import ROOT
from millrace.sizing import plan
from tests.unit.config.conftest import GOOD
from tests.unit.config.conftest import project as project

COUNT = GOOD[GOOD.index("      count-clicks:") : GOOD.index("  orders:\n    engine")]
PLAIN = COUNT[: COUNT.index("        enrich:")] + "        sink: {kind: iceberg, table: clicks_counted}\n"
TRANSFORMS = """\
from pyspark.sql import functions as F


def counted(clicks):
    return clicks.select("*", F.col("pgae").alias("of"))


def bare(clicks):
    return clicks.select("page")


def good(clicks):
    return clicks.withColumn("of", F.col("page"))


def newer(clicks):
    return clicks.withColumn("of", F.expr("dayname(at)"))
"""


def derived(name: str, transform: str, sink: str = "") -> str:
    text = PLAIN.replace("count-clicks", name).replace(":counted", f":{transform}")
    text = text.replace("clicks_counted", f"of_{name.replace('-', '_')}")
    return (
        text
        if not sink
        else text[: text.index("        sink:")] + f"        sink: {sink}\n        dead_letters: refused\n"
    )


def told(root: Path, *queries: str) -> list[str]:
    if not (root / ".millrace").exists():
        (root / ".millrace").symlink_to(ROOT / ".millrace")  # its jars
    # In a clone its own `pipelines` would be found before a package without these.
    for folder in ("pipelines", "pipelines/shop"):
        (root / folder / "__init__.py").touch()
    (root / "pipelines/shop/transforms.py").write_text(TRANSFORMS)
    (root / "environments/shop.yaml").write_text(GOOD.replace(COUNT, "".join(queries)))
    environment = load("shop", root=root)
    return check_transforms_on_spark.check_transforms_and_list_unchecked(environment, plan(environment))


@pytest.mark.slow
def test_each_mistake_of_a_transform_is_told_once_with_its_key(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    items = "{kind: dynamodb, table: items}"
    with pytest.raises(ConfigurationError) as caught:
        told(
            project, derived("one", "counted"), derived("two", "counted"), derived("three", "bare"),
            derived("four", "good"), derived("five", "bare", items), COUNT,
        )  # fmt: skip
    found = {each.key.removeprefix("jobs.clicks.queries."): each for each in caught.value.problems}
    assert found.keys() == {"one.transform", "three.transform"}
    assert "pgae" in found["one.transform"].allowed
    assert "lacks the columns _id, _source, _arrived_at" in found["three.transform"].allowed
    assert all(each.line for each in found.values())


@pytest.mark.slow
def test_a_transform_is_planned_on_the_spark_of_its_job(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``dayname`` came with Spark 4.0."""
    monkeypatch.chdir(project)
    query = derived("four", "newer")
    monkeypatch.setattr(f"{__name__}.GOOD", GOOD.replace('version: "5.1"', 'version: "6.0"', 1))
    assert told(project, query) == []
    monkeypatch.setattr(toolchain, "_python_environment_of_line", lambda _: project / "none")
    [said] = told(project, query)
    assert "four was not checked on its Spark 4.1, which is not installed; 3.5 refuses it" in said


@pytest.mark.slow
def test_what_was_not_checked_is_said(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    said = told(project, derived("four", "good"), COUNT.replace(":counted", ":good"))
    assert said == ["jobs.clicks.queries.count-clicks was not checked: it reads shop_shop.pages"]


def test_where_spark_is_missing(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_transforms_on_spark, "find_spec", lambda _: None)
    said = told(project, derived("four", "bare"))
    assert said == ["the columns of transforms were not checked: PySpark is not installed"]
    land_only = GOOD.replace(COUNT, "")
    (project / "environments/shop.yaml").write_text(land_only)
    environment = load("shop", root=project)
    assert check_transforms_on_spark.check_transforms_and_list_unchecked(environment, plan(environment)) == []
