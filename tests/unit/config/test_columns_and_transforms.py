"""`validate` checks schemas and the source of transforms without PySpark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from millrace.config import ConfigurationError, load
from millrace.config.document.problems import Problem
from tests.unit.config.conftest import GOOD

LAND = "jobs.clicks.queries.land-clicks"
DERIVE = "jobs.clicks.queries.count-clicks"
TRANSFORM = "        transform: pipelines.shop.transforms:counted\n"
ENRICH = """\
        enrich:
          - table: pages
            on: {page: page}
            columns: {title: title}
"""
SINK = "        sink: {kind: iceberg, table: clicks_counted}\n"
STATE = "        state: {{watermark: {{time: {}, delay: 10m}}, {}}}\n"
SCHEMA = "        schema: pipelines/shop/schemas/click.ddl\n"
NO_ORDER = (
    "no order beside deletes, which have no value of the column: "
    "their order is that of the topic, or of the database's log"
)
SESSIONS = """\
from pyspark.sql import functions as F

GAP = "30 minutes"


def _by_session(clicks):
    return clicks.groupBy("page", F.session_window("at", GAP))


def sessions(clicks):
    counts = _by_session(clicks).agg(F.count("*").alias("clicks"))
    return counts.select("page", F.col("session_window.start").alias("begun"), "clicks")
"""


def problems(project: Path, text: str) -> tuple[Problem, ...]:
    (project / "environments" / "shop.yaml").write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        load("shop", root=project)
    return caught.value.problems


def one(project: Path, *changes: tuple[str, str]) -> Problem:
    text = GOOD
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    (problem,) = problems(project, text)
    assert problem.file == "environments/shop.yaml"
    assert problem.line > 1
    return problem


@pytest.mark.parametrize(
    ("ddl", "said"),
    [
        ("page STRING,\nat TIMESTMP\n", "line 2: at 'TIMESTMP': unknown type TIMESTMP, did you mean TIMESTAMP?"),
        ("page STRING at TIMESTAMP", "line 1: at 'at': a comma is expected"),
        ("page STRING,\nat TIMESTAMP,\n", "line 2: the schema ends too early: a field is expected after a comma"),
        ("page ARRAY<STRING", "the schema ends too early: > is expected"),
        ("page", "the schema ends too early"),
        ("", "without fields"),
        ("\ufeffpage STRING", "a file in UTF-8 without a byte order mark"),
        ("page STRING, _id STRING", "names that begin with _ are reserved: _id"),
        ("page STRING, Page INT", "names that clash: Page, page"),
        ("page STRING, tags ARRAY<STRUCT<t: STRING NOT NULL>>", "NOT NULL inside an array or map cannot be kept: tags"),
        ("page STRING, by MAP<STRING, STRUCT<t: INT NOT NULL>>", "NOT NULL inside an array or map cannot be kept: by"),
        ("page STRING, by ARRAY<MAP<DATE, INT>>", "a map's keys are DATE, but names in JSON are texts: write STRING"),
        ("page STRING, a DECIMAL(39, 2)", "decimal(39,2) must have at most 38 digits"),
    ],
)  # fmt: skip
def test_a_schema_that_spark_would_refuse_is_told(ddl: str, said: str, project: Path) -> None:
    (project / "pipelines/shop/schemas/new.ddl").write_text(ddl)
    problem = one(project, (SCHEMA, "        schema: pipelines/shop/schemas/new.ddl\n"))
    assert (problem.key, problem.value) == (f"{LAND}.schema", "pipelines/shop/schemas/new.ddl")
    assert said in problem.allowed


@pytest.mark.parametrize(
    ("old", "new", "key", "value", "allowed", "hint"),
    [
        ("on: {page: page}", "on: {pgae: page}", "enrich[0].on.pgae", "pgae", "a field of clicks_landed", "page?"),
        (
            "columns: {title: title}", "columns: {page: title}", "enrich[0].columns.page", "page",
            "the stream has page already", None,
        ),
        (
            ENRICH, ENRICH.replace("pages", "orders_landed").replace("{page: page}", "{page: pgae}").replace("title}", "at}"),
            "enrich[0].on.page", "pgae", "a column of orders_landed", "page?",
        ),
        (
            "columns: {title: title}\n", "columns: {title: title}\n          - {table: t, on: {titel: x}, columns: {y: y}}\n",
            "enrich[1].on.titel", "titel", "what an earlier enrichment adds", "title?",
        ),
        (ENRICH, STATE.format("att", "key: [page]"), "state.watermark.time", "att", "a timestamp, a field of clicks_landed: at", "at?"),
        (ENRICH, STATE.format("page", "key: [page]"), "state.watermark.time", "page", "a timestamp", None),
        (ENRICH, STATE.format("at", "distinct: [pge]"), "state.distinct[0]", "pge", "a field of clicks_landed: page, at", "page?"),
        (ENRICH, STATE.format("at", "key: [pagee]"), "state.key[0]", "pagee", "neither what is read nor the module", "page?"),
        (
            ENRICH, STATE.format("at", "join: {source: orders_landed, watermark: {time: page, delay: 1m}}"),
            "state.join.watermark.time", "page", "a timestamp, a field of orders_landed", None,
        ),
        (SINK, SINK + "        latest_by: [pagee]\n", "latest_by[0]", "pagee", "neither what is read", "page?"),
        (
            "transform: pipelines.shop.transforms:counted\n" + ENRICH + SINK, "latest_by: [pagee]\n" + SINK, "latest_by[0]", "pagee",
            "a column of the result: a field of clicks_landed: page, at", "page?",
        ),
    ],
)  # fmt: skip
def test_a_column_that_is_not_there_is_told_where_it_is_named(
    old: str, new: str, key: str, value: str, allowed: str, hint: str | None, project: Path
) -> None:
    (project / "pipelines/shop/transforms.py").write_text(
        "def counted(clicks):\n    return clicks\n"
        if "join:" not in new
        else "def counted(a, b):\n    return a\n"
    )
    problem = one(project, (old, new))
    assert (problem.key, problem.value) == (f"{DERIVE}.{key}", value)
    assert allowed in problem.allowed
    assert hint is None or hint in (problem.hint or "")


def test_a_history_is_one_of_changes_in_their_order_and_in_the_lake(project: Path) -> None:
    changes = GOOD.replace(SCHEMA, SCHEMA + "        format: {kind: debezium}\n", 1)
    history = "        latest_by: {key: [page], history: true}\n"
    (project / "environments/shop.yaml").write_text(changes.replace(SINK, SINK + history))
    load("shop", root=project)
    refused = "        sink: {kind: dynamodb, table: counts}\n        dead_letters: refused\n" + history
    wrong = GOOD.replace(SINK, refused.replace("true", "true, order: at"))
    told = {each.key: (each.value, each.allowed) for each in problems(project, wrong)}
    assert told == {
        f"{DERIVE}.latest_by.history": ("true", "nothing: clicks_landed has no changes of a database (formats debezium and dms)"),
        f"{DERIVE}.latest_by.order": ("at", NO_ORDER),
        f"{DERIVE}.sink.kind": ("dynamodb", "with history a table of the lake: iceberg"),
    }  # fmt: skip


def test_a_column_orders_no_deletes_as_they_have_no_value_of_it(project: Path) -> None:
    """A delete without the column would be older than each row, and a truncate older than all: rows would stay."""
    changes = (SCHEMA, SCHEMA + "        format: {kind: debezium}\n")
    ordered = (SINK, SINK + "        latest_by: {key: [page], order: at}\n")
    problem = one(project, changes, ordered)
    assert (problem.key, problem.value, problem.allowed) == (f"{DERIVE}.latest_by.order", "at", NO_ORDER)
    topic = (
        "        source: clicks\n",
        "        source: orders\n        kafka: {null_payload: delete}\n",
    )
    problem = one(project, topic, ordered)
    assert (problem.key, problem.value, problem.allowed) == (f"{DERIVE}.latest_by.order", "at", NO_ORDER)


def test_columns_of_routes_of_avro_and_of_protobuf_are_known(project: Path) -> None:
    folder = project / "pipelines/shop/schemas"
    (folder / "scan.avsc").write_text(
        '{"type": "record", "name": "S", "fields": [{"name": "bag", "type": "string"}, {"name": "seen", '
        '"type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]}]}'
    )
    routes = """\
        kind: route
        table: clicks_landed
        routes:
          web: {source: clicks, schema: pipelines/shop/schemas/click.ddl}
          bags: {source: orders, schema: pipelines/shop/schemas/scan.avsc, format: avro, redact: [bga]}
"""
    land = "        kind: land\n        source: clicks\n        table: clicks_landed\n" + SCHEMA
    derive = "        source: clicks_landed\n"
    text = GOOD.replace(land, routes).replace("redact: [bga]", "redact: [bag]")
    assert "kind: route" in text
    good = text.replace(
        derive + TRANSFORM + ENRICH,
        derive + "        route: bags\n" + STATE.format("seen", "distinct: [seen]"),
    )
    (project / "environments/shop.yaml").write_text(good)
    load("shop", root=project)
    result = problems(project, good.replace("time: seen", "time: at").replace("[bag]}", "[bga]}", 1))
    assert {each.key for each in result} == {
        f"{LAND}.routes.bags.redact[0]",
        f"{DERIVE}.state.watermark.time",
    }


@pytest.mark.parametrize(
    ("more", "key"),
    [
        ("        latest_by: [page]\n", "latest_by[0]"),
        (STATE.format("at", "distinct: [page]"), "state.distinct[0]"),
        (ENRICH, "enrich[0].on.page"),
        (
            "        sink: {kind: kafka, topic: orders, key: page}\n        dead_letters: letters\n",
            "sink.key",
        ),
    ],
    ids=["latest_by", "distinct", "enrich", "the key of a sink"],
)
def test_a_redacted_field_identifies_nothing(project: Path, more: str, key: str) -> None:
    """It is null in the landing table: all records were one row, one duplicate, or without a match."""
    query = (TRANSFORM + ENRICH + SINK, (SINK if "sink" not in more else "") + more)
    problem = one(project, (SCHEMA, SCHEMA + "        redact: [page]\n"), query)
    assert (problem.key, problem.value) == (f"{DERIVE}.{key}", "page")
    assert problem.allowed == "a field that is not redacted: its value reaches no table"


def test_a_redacted_time_is_no_watermark(project: Path) -> None:
    query = (TRANSFORM + ENRICH + SINK, SINK + STATE.format("at", "distinct: [page]"))
    problem = one(project, (SCHEMA, SCHEMA + "        redact: [at]\n"), query)
    assert (problem.key, problem.allowed[:27]) == (
        f"{DERIVE}.state.watermark.time",
        "a field that is not redacte",
    )


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def counted():\n    return 1\n", "transforms.py:1 takes nothing"),
        ("\ndef counted(clicks, day):\n    return clicks\n", "transforms.py:2 takes clicks, day"),
        ("def counted(clicks, *, day):\n    return clicks\n", "needs day besides"),
        ("def counted(clicks):\n    clicks.count()\n", "returns nothing"),
        ("def counted(clicks):\n    def inner():\n        return 1\n    inner()\n", "returns nothing"),
        ("def counted(clicks):\n    yield clicks\n", "is a generator"),
        ("async def counted(clicks):\n    return clicks\n", "is async"),
        ("counted = lambda a, b: a\n", "takes a, b"),
        ("from pipelines.shop.helpers import two as counted\n", "helpers.py:1 takes a, b"),
    ],
)
def test_a_function_that_does_not_take_one_dataframe_is_told(source: str, said: str, project: Path) -> None:
    (project / "pipelines/shop/helpers.py").write_text("def two(a, b):\n    return a\n")
    (project / "pipelines/shop/transforms.py").write_text(source)
    problem = one(project)
    assert (problem.key, problem.value) == (f"{DERIVE}.transform", "pipelines.shop.transforms:counted")
    assert "a function from one DataFrame to a DataFrame" in problem.allowed
    assert said in problem.allowed


@pytest.mark.parametrize(
    "source",
    [
        "def counted(clicks, day=None, *rest, **more):\n    return clicks\n",
        "def counted(*clicks):\n    return clicks[0]\n",
        "import functools\n\n\n@functools.cache\ndef counted():\n    pass\n",
        "from functools import partial\n\ncounted = partial(print)\n",
        "from .helpers import one as counted\n",
        "from pipelines.shop.helpers import *\n",
        "try:\n    import ujson as json\nexcept ImportError:\n    import json\n\n\ndef counted(a):\n    return a\n",
        "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    import polars\n\n\ndef counted(a: 'polars.X'):\n    return a\n",
        "import pandas as pd\nfrom pyspark.sql import DataFrame\nfrom millrace.etl.record.envelope import CARRIED\n\n\n"
        "def counted(a):\n    import anything\n    return a\n",
    ],
)
def test_what_may_be_called_so_is_left_alone(source: str, project: Path) -> None:
    (project / "pipelines/shop/helpers.py").write_text("def one(a):\n    return a\n")
    (project / "pipelines/shop/transforms.py").write_text(source)
    load("shop", root=project)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import reqests\n", "transforms.py:1 imports reqests, which no engine has for sure"),
        ("from pipelines.shop import helpres\n", "imports helpres from pipelines.shop, which has no such name"),
        ("import pipelines.shop.helpres\n", "imports pipelines.shop.helpres, which does not exist (did you mean pipelines.shop.helpers?)"),
        ("from pipelines.shop.helpers import three\n", "imports three from pipelines.shop.helpers, which has no such name"),
        ("from .broken import counted\n", "pipelines/shop/broken.py:1"),
        ("from .helpers import far\n", "helpers.py:3 imports nowhere, which no engine has for sure"),
    ],
)  # fmt: skip
def test_a_module_that_cannot_be_imported_is_told_with_its_line(
    source: str, said: str, project: Path
) -> None:
    helpers = "def two(a, b):\n    return a\n" + ("import nowhere\nfar = 1\n" if "far" in source else "")
    (project / "pipelines/shop/helpers.py").write_text(helpers)
    (project / "pipelines/shop/transforms.py").write_text(
        source + "\n\ndef counted(clicks):\n    return clicks\n"
    )
    problem = one(project)
    assert (problem.key, problem.value) == (f"{DERIVE}.transform", "pipelines.shop.transforms:counted")
    assert said in problem.allowed


@pytest.mark.parametrize(
    ("state", "key", "value", "allowed"),
    [
        ("", "state", "(missing)", "a watermark and a key"),
        (STATE.format("at", "distinct: [page]"), "state.key", "(missing)", "columns that identify a session"),
        (STATE.format("at", "key: [page, begun]"), "state.output_mode", "(missing)", "append: Spark writes"),
        (STATE.format("at", "key: [page, begun], output_mode: update"), "state.output_mode", "update", "append: Spark"),
        (STATE.format("at", "key: [page, begun], output_mode: complete"), "state.output_mode", "complete", "one of update, append"),
    ],
)  # fmt: skip
def test_session_windows_are_written_when_they_have_ended(
    state: str, key: str, value: str, allowed: str, project: Path
) -> None:
    (project / "pipelines/shop/transforms.py").write_text(SESSIONS)
    named = (TRANSFORM + ENRICH, TRANSFORM.replace("counted", "sessions") + state)
    problem = one(project, named)
    assert (problem.key, problem.value) == (f"{DERIVE}.{key}", value)
    assert allowed in problem.allowed


def test_session_windows_in_append_mode_are_right(project: Path) -> None:
    (project / "pipelines/shop/transforms.py").write_text(SESSIONS)
    state = STATE.format("at", "key: [page, begun], output_mode: append")
    text = GOOD.replace(TRANSFORM + ENRICH, TRANSFORM.replace("counted", "sessions") + state)
    (project / "environments/shop.yaml").write_text(text)
    assert load("shop", root=project).jobs["clicks"].queries["count-clicks"].state.output_mode == "append"


def test_an_output_mode_without_results_is_told(project: Path) -> None:
    problem = one(project, (ENRICH, STATE.format("at", "distinct: [page], output_mode: append")))
    assert (problem.key, problem.value) == (f"{DERIVE}.state.output_mode", "append")


def test_mistakes_of_all_kinds_are_told_in_one_round(project: Path) -> None:
    (project / "pipelines/shop/schemas/click.ddl").write_text("page STRING, at TIMESTAMP")
    (project / "pipelines/shop/schemas/order.ddl").write_text("page STRNG")
    (project / "pipelines/shop/transforms.py").write_text("import reqests\n")
    text = (
        GOOD.replace("on: {page: page}", "on: {pgae: page}")
        .replace("region: us-east-1", "region: us-esat-1")
        .replace("record_size: 500B", "record_size: 500")
        .replace("{records_per_second: 100,", "{records_per_second: 20,000,")
    )
    text = text[: text.rindex("click.ddl")] + "order.ddl\n"
    assert {each.key for each in problems(project, text)} == {
        f"{DERIVE}.enrich[0].on.pgae",
        f"{DERIVE}.transform",
        "jobs.orders.queries.land-orders.schema",
        "region",
        "streams.clicks.traffic.record_size",
        "streams.orders.traffic.000",
    }


def test_nothing_of_it_needs_pyspark(project: Path) -> None:
    """As in the base installation."""
    program = (
        "import sys\n"
        "class No:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name.split('.')[0] in ('pyspark', 'aws_cdk', 'pandas'):\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, No())\n"
        "from pathlib import Path\n"
        "from millrace.config import load\n"
        f"load('shop', root=Path({str(project)!r}))\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[3])
