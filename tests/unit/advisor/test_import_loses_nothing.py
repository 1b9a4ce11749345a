"""What a program does with its streams is in the imported file, open in it, or in a note: nothing of it is dropped."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from millrace.advisor.existing.environment_of_imported_job import find_values_to_fill_in, slug
from millrace.advisor.existing.import_transform_stubs import (
    remove_transforms,
    transforms_module_text,
    write_transforms,
)
from millrace.advisor.existing.read_job_to_import import spark_keys_and_notes
from millrace.advisor.programs.library_functions import LaunchArguments
from millrace.config import ConfigurationError
from tests.unit.advisor.settings_of_program import NO_ARGUMENTS, settings_of_program
from tests.unit.advisor.test_job_import import ROOT, _kafka
from tests.unit.advisor.test_program_reader import KAFKA, TWO, imported

ORDERS = f"from pyspark.sql import functions as F\ndf = {KAFKA}.option('subscribe', 'orders').load()\n"
TABLE = "writeStream.trigger(processingTime='10 seconds').toTable('a.b')"


def derived(made: dict[str, Any]) -> list[dict[str, Any]]:
    [job] = made["jobs"].values()
    return [each for each in job["queries"].values() if each["kind"] == "derive"]


HANDED_ON = {
    "a function": ("from common import write_table\nwrite_table(b, 'x')", 5, "common.write_table()"),
    "an object": ("from common import Writer\nw = Writer('x')\nw.write(b)", 6, "common.Writer()"),
    "a constructor": ("from common import Job\nJob(b).run()", 5, "common.Job()"),
    "a method of a base class": (
        "from common import Base\nclass Job(Base):\n  def run(self):\n    self.save(b, 'x')\nJob().run()",
        7,
        "save()",
    ),
    "a dictionary": ("import common\ncommon.write({'x': b})", 5, "common.write()"),
    "its writer": ("import common\ncommon.begin(b.writeStream.queryName('x'))", 5, "common.begin()"),
    "the rows of another function": ("import common\ncommon.write(common.clean(b))", 5, "common.write()"),
    "a function for a thread": (
        "import common, threading\nthreading.Thread(target=common.write, args=(b,)).start()",
        5,
        "threading.Thread()",
    ),
}


@pytest.mark.parametrize("other", ["", f"a.{TABLE}"])
@pytest.mark.parametrize("shape", HANDED_ON)
def test_a_stream_that_is_handed_to_what_is_not_read_has_an_open_sink(shape: str, other: str) -> None:
    text, line, to = HANDED_ON[shape]
    said = settings_of_program(f"{TWO}{other or 'x = 1'}\n{text}")
    assert {each.name for each in said.settings_of_all_streams} >= {"payments"}
    made = imported(said)
    assert {each["topic"] for each in made["streams"].values()} >= {"payments"}
    [(path, question)] = [each for each in find_values_to_fill_in(made) if each[0][-1] == "sink"]
    assert question.startswith(f"(open) line {line}: {to}")
    assert made["jobs"][path[1]]["queries"][path[3]]["source"] == "payments_landed"


def test_what_comes_back_from_another_module_and_is_written_is_not_open() -> None:
    text = f"{ORDERS}import common\nfor each in (1, 2):\n  df = common.clean(df)\ndf.withColumn('a', F.lit(1)).{TABLE}"
    said = settings_of_program(text)
    assert len(said.written) == 1
    assert list(find_values_to_fill_in(imported(said))) == []
    w = f"{ORDERS}import common\nw = common.configured(df.writeStream)\nw.trigger(processingTime='1 second').format('delta').start()"
    assert list(find_values_to_fill_in(imported(settings_of_program(w)))) == []


def test_what_else_gets_a_stream_that_is_written_is_told() -> None:
    said = settings_of_program(f"{ORDERS}import common\ncommon.audit(df)\nprint(df)\ndf.{TABLE}")
    assert said.written == ()
    assert (
        "line 4: common.audit() is given the rows of line 2, and what it does with them is not read"
        in said.notes
    )


def test_a_stream_that_nothing_writes_is_told() -> None:
    said = settings_of_program(f"{TWO}a.{TABLE}\nb.printSchema()")
    assert [each.name for each in said.settings_of_all_streams] == ["orders"]
    assert "line 2 reads payments, which nothing in this program writes: it is not in this file" in said.notes


SINKS = {
    "an unknown one": ("from config import SINK\ndf.writeStream.format(SINK).start()", "config.SINK"),
    "two": ("kind = 'kafka' if flag() else 'delta'\ndf.writeStream.format(kind).start()", "kafka or delta"),
    "one of an argument": (
        "import sys\nargs = getResolvedOptions(sys.argv, ['sink'])\ndf.writeStream.format(args['sink']).start()",
        "the argument --sink, which the job does not have",
    ),
    "one of a function": ("import common\ncommon.with_sink(df.writeStream).start()", "common.with_sink()"),
}  # fmt: skip


@pytest.mark.parametrize("shape", SINKS)
def test_a_sink_without_one_known_format_is_open(shape: str) -> None:
    text, shown = SINKS[shape]
    said = settings_of_program(ORDERS + text)
    [query] = derived(imported(said))
    assert query["sink"].startswith("(open) line ")
    assert shown in query["sink"]
    transforms_module_text("glue:orders", said.written)


def test_either_of_two_tables_is_a_table() -> None:
    said = settings_of_program(
        f"{ORDERS}k = 'parquet' if flag() else 'delta'\ndf.writeStream.format(k).start()"
    )
    assert derived(imported(said)) == []
    assert any("4: parquet or delta" in each for each in said.notes)


def test_places_of_the_lines_that_shape_the_rows_stand_in_the_transform() -> None:
    text = (
        f"{ORDERS}def upsert(rows, n):\n  rows.write.save('x')\n"
        "late = df.withWatermark('timestamp', '10 minutes')\nunused = 1\n"
        "counts = (late.where('a > 1')\n  .groupBy(F.window('timestamp', '5 minutes'), 'k').count())\n"
        "big = counts[counts['count'] > 10]\nbig.createOrReplaceTempView('big')\n"
        "(spark.table('big').writeStream.outputMode('update')\n  .foreachBatch(upsert).start())\n"
    )
    said = settings_of_program(text)
    made = transforms_module_text("glue:orders", said.written)
    assert "# The program makes them in line 5, 7, 9, 11, 3 to 4.\n" in made


SETTINGS = """
from pyspark.sql import SparkSession
from pyspark import SparkConf
conf = SparkConf().set("spark.sql.join.preferSortMergeJoin", False).setAll([("spark.network.timeout", "300s")])
spark = (SparkSession.builder.config(conf=conf).config("spark.sql.shuffle.partitions", 12)
    .config(map={"spark.executor.memory": "8g"}).config("spark.sql.session.timeZone", "UTC").getOrCreate())
spark.conf.set("spark.sql.ansi.enabled", "true")
spark.sql("SET spark.sql.files.maxRecordsPerFile = 1000")
spark.conf.set("spark.sql.broadcastTimeout", compute())
store.set("spark", 1)
"""


def test_spark_settings_of_the_program_are_kept_or_told() -> None:
    said = settings_of_program(f"{SETTINGS}{ORDERS}df.{TABLE}")
    keys, notes = spark_keys_and_notes(
        {"spark.sql.shuffle.partitions": "200", "spark.executor.memory": "4g"}, said.spark
    )
    assert keys == {
        "spark": {
            "spark.sql.shuffle.partitions": "12",
            "spark.sql.join.preferSortMergeJoin": "false",
            "spark.sql.files.maxRecordsPerFile": "1000",
        }
    }
    assert notes == [
        "Spark settings left out: spark.executor.memory (line 6), spark.network.timeout (line 4), spark.sql.ansi.enabled (line 7), "
        "spark.sql.broadcastTimeout (line 9), spark.sql.session.timeZone (line 6)"
    ]


ARGUMENTS = {
    "a prefix": ("p.add_argument('--topic-name', dest='t', default='dev')\n", "orders"),
    "no prefix": ("p = argparse.ArgumentParser(allow_abbrev=False)\np.add_argument('--topic-name', dest='t', default='dev')\n", "dev"),
    "set_defaults": ("p.add_argument('--name', dest='t', default='dev')\np.set_defaults(t='orders')\n", "orders"),
    "set_defaults before": ("p.set_defaults(t='dev')\np.add_argument('--name', dest='t', default='orders')\n", "orders"),
    "set_defaults alone": ("p.set_defaults(t='orders')\n", "orders"),
    "parents": ("q = argparse.ArgumentParser(add_help=False)\nq.add_argument('--topic', dest='t')\np = argparse.ArgumentParser(parents=[q])\n", "orders"),
    "a counted flag": ("p.add_argument('-v', '--topical', action='count', default=0)\np.add_argument('--topic', dest='t')\n", "orders"),
}  # fmt: skip


@pytest.mark.parametrize("shape", ARGUMENTS)
def test_arguments_are_those_of_argparse(shape: str) -> None:
    declared, topic = ARGUMENTS[shape]
    text = f"import argparse\np = argparse.ArgumentParser()\n{declared}a, _ = p.parse_known_args()\n{KAFKA}.option('subscribe', a.t).load().{TABLE}"
    assert settings_of_program(text, LaunchArguments(("--topic", "orders"))).name == topic


def test_a_file_of_environment_variables_may_replace_a_default() -> None:
    text = f"import os\nfrom dotenv import load_dotenv\nload_dotenv()\n{KAFKA}.option('subscribe', os.getenv('TOPIC', 'dev')).load().{TABLE}"
    said = settings_of_program(text)
    assert said.name is None
    assert "dev, or line 4: subscribe is dotenv.load_dotenv()" in said.open["name"]
    assert settings_of_program(text, LaunchArguments(variables={"TOPIC": "orders"})).name == "orders"


@pytest.mark.parametrize("name", ["x", "7", "_", "a" * 60, "a-" * 40, "orders"])
def test_each_name_of_a_topic_becomes_a_valid_file(name: str, tmp_path: Path) -> None:
    from millrace.cli.plan.existing.import_plans import environment_yaml, plan_of_environment_text

    for folder in ("environments", "pipelines"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    text = f"{ORDERS.replace('orders', name)}df.{TABLE}\nother = {KAFKA}.option('subscribe', {name + '_'!r}).load()\nother.{TABLE}"
    running = replace(
        _kafka(),
        job={"engine": "emr", "role": "arn:aws:iam::123456789012:role/theirs"},
        program=settings_of_program(text, NO_ARGUMENTS),
    )
    made = imported(running.program)
    made["project"] = "moved"
    made["jobs"] = {key: {**each, **running.job} for key, each in made["jobs"].items()}
    plan_of_environment_text("moved", environment_yaml(made), tmp_path)


def test_names_have_two_letters() -> None:
    assert [slug(each) for each in ("x", "_", "7", "ab")] == ["s-x", "s-all", "s-7", "ab"]


def test_transforms_of_another_program_are_never_taken(tmp_path: Path) -> None:
    def running(column: str, where: str = "emr:00app/00second") -> Any:
        program = f"{ORDERS}def save(rows, n):\n  rows.select('{column}').write.save('x')\ndf.writeStream.foreachBatch(save).start()"
        return replace(_kafka(), where=where, program=settings_of_program(program))

    first = write_transforms(tmp_path, running("order_id", "emr:00app/00first"), "orders")
    second = write_transforms(tmp_path, running("iban"), "payments")
    assert (first, second) == tuple(
        tmp_path / "pipelines" / each / "imported.py" for each in ("orders", "payments")
    )
    assert write_transforms(tmp_path, running("iban"), "payments") is None
    before = first.read_text()
    with pytest.raises(ConfigurationError, match=r"pipelines/orders/imported\.py"):
        write_transforms(tmp_path, running("iban"), "orders")
    assert first.read_text() == before
    assert second is not None
    remove_transforms(second)
    assert (second.parent.exists(), first.exists()) == (False, True)


def test_a_query_whose_rows_two_branches_make_is_one() -> None:
    text = (
        f"{ORDERS}def save(rows, n):\n  pass\ndef run(df):\n  df.writeStream.foreachBatch(save).start()\n"
        "if flag():\n  run(df.withColumn('a', F.lit(1)))\nelse:\n  run(df.select(F.from_json('value', 'a INT')))"
    )
    said = settings_of_program(text)
    [query] = said.written
    assert (query.places, said.payload) == ("6, 8, 10, 3 to 4", "json")


RETURNED = """
import dlt
from pyspark.sql import functions as F

def opened():
    return spark.readStream.format('kafka').option('kafka.bootstrap.servers', 'b:9092').option('subscribe', 'orders').load()

@dlt.table
def orders():
    return opened().select(F.from_csv(F.col('value').cast('string'), 'a INT').alias('v')).select('v.*').where('a > 1')
"""


def test_a_stream_that_is_returned_to_a_framework_keeps_its_format_and_its_filter() -> None:
    said = settings_of_program(RETURNED)
    assert said.payload == "csv"
    assert [each.sink for each in said.written] == ["what calls orders()"]
    assert any(
        "a derive query of a transform to be finished, whose sink is open" in each for each in said.notes
    )


def test_a_stream_that_is_returned_to_the_program_itself_is_written_there() -> None:
    said = settings_of_program(RETURNED.replace("@dlt.table", "") + f"\ndef main():\n    orders().{TABLE}\n")
    assert not any("what calls" in each for each in said.notes)
    assert said.payload == "csv"
