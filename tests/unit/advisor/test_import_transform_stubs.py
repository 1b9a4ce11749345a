"""Transforms of an imported job: one for each query of its program, and none of its secrets."""

from __future__ import annotations

import ast
import keyword

import pytest

from millrace.advisor.existing.import_transform_stubs import transforms_module_text
from tests.unit.advisor.settings_of_program import settings_of_program
from tests.unit.advisor.test_program_reader import KAFKA, imported

ORDERS = f"df = {KAFKA}.option('subscribe', 'orders').load()\n"
KINESIS = "df = spark.readStream.format('kinesis').option('streamName', 'orders').load()\n"
LONG = "orders_of_all_shops_of_the_company_in_the_"

SEVERAL = {
    "a helper": (
        "def save(frame, table, every):\n"
        "  frame.writeStream.format('iceberg').trigger(processingTime=every).toTable(f'glue.db.{table}')\n"
        "save(df.filter('a'), 'new_orders', '10 seconds')\nsave(df.groupBy('c').count(), 'per_customer', '5 minutes')",
        ["new_orders", "per_customer"],
    ),
    "a function inside a helper": (
        "def write(frame, name):\n  def write_batch(rows, n):\n    rows.write.parquet(f's3://out/{name}')\n"
        "  frame.writeStream.option('checkpointLocation', f's3://c/{name}').foreachBatch(write_batch).start()\n"
        "write(df.filter('a'), 'a')\nwrite(df.filter('b'), 'b')\nwrite(df.filter('c'), 'c')",
        ["write_batch", "write_batch_2", "write_batch_3"],
    ),
    "one function for two frames": (
        "def upsert(rows, n):\n  pass\ndf.filter('a').writeStream.foreachBatch(upsert).start()\n"
        "df.groupBy('c').count().writeStream.foreachBatch(upsert).outputMode('update').start()",
        ["upsert", "upsert_2"],
    ),
    "a loop": (
        "for kind in ('new', 'paid', 'sent'):\n"
        "  df.filter(f\"type = '{kind}'\").writeStream.format('iceberg').toTable(f'a.b.{kind}')",
        ["new", "paid", "sent"],
    ),
    "a loop over files": (
        "for kind in ('new', 'paid'):\n  df.filter(kind).writeStream.format('parquet').option('path', f's3://b/{kind}').start()",
        ["parquet_3", "parquet_3_2"],
    ),
    "retries of a function with its batch function inside": (
        "def main(attempt):\n"
        f"  df = {KAFKA}.option('subscribe', 'orders').load()\n"
        "  def upsert(rows, n):\n    rows.write.save('x')\n"
        "  df.writeStream.option('checkpointLocation', 's3://c').foreachBatch(upsert).start().awaitTermination()\n"
        "for attempt in range(3):\n  try:\n    main(attempt)\n    break\n  except Exception:\n    pass",
        ["upsert"],
    ),
    "retries of an object": (
        "class Job:\n  def __init__(self):\n    self.options = {'mode': 'append'}\n  def upsert(self, rows, n):\n    rows.write.save('x')\n"
        "  def main(self):\n    df.writeStream.foreachBatch(self.upsert).start()\n"
        "while True:\n  try:\n    Job().main()\n  except Exception:\n    sleep(10)",
        ["upsert"],
    ),
    "objects with tables of their own": (
        "class Job:\n  def __init__(self, table):\n    self.options = {'table': table}\n  def upsert(self, rows, n):\n    rows.write.save('x')\n"
        "  def main(self):\n    df.writeStream.foreachBatch(self.upsert).start()\nfor table in ('new', 'paid'):\n  Job(table).main()",
        ["upsert", "upsert_2"],
    ),
    "a function with another table each": (
        "import functools\ndef upsert(table, rows, n):\n  rows.write.saveAsTable(table)\n"
        "for table in ('new', 'paid', 'new'):\n  df.writeStream.foreachBatch(functools.partial(upsert, table)).start()",
        ["upsert", "upsert_2"],
    ),
    "a table that a function inside another names": (
        "def write(table):\n  def save(rows):\n    rows.write.saveAsTable(table)\n  def upsert(rows, n):\n    save(rows)\n"
        "  df.writeStream.foreachBatch(upsert).start()\nwrite('new')\nwrite('paid')\nwrite('new')",
        ["upsert", "upsert_2"],
    ),
    "names of 40 characters and more": (
        f"for kind in ('east', 'west'):\n  df.filter(kind).writeStream.format('iceberg').toTable(f'{LONG}{{kind}}')",
        ["orders_of_all_shops_of_the_com", "orders_of_all_shops_of_the_com_2"],
    ),
    "names that are none in Python": (
        "for kind in ('2024', 'class'):\n  df.filter(kind).writeStream.format('iceberg').toTable(f'a.b.{kind}')",
        ["iceberg_2024", "iceberg_class"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("read", [ORDERS, KINESIS])
@pytest.mark.parametrize("shape", SEVERAL)
def test_each_query_on_one_stream_becomes_a_derive_query(shape: str, read: str) -> None:
    text, names = SEVERAL[shape]
    said = settings_of_program(read + text)
    assert [each.name for each in said.written] == names
    [job] = imported(said)["jobs"].values()
    derived = {key: each for key, each in job["queries"].items() if each["kind"] == "derive"}
    assert [each["transform"].rpartition(":")[2] for each in derived.values()] == names
    assert len({each["sink"]["table"] for each in derived.values()}) == len(names)
    assert max(map(len, derived)) <= 40
    made = ast.parse(transforms_module_text("glue:orders", said.written))
    functions = [each.name for each in made.body if isinstance(each, ast.FunctionDef)]
    assert functions[1:] == names
    assert not any(map(keyword.iskeyword, functions))


@pytest.mark.parametrize(
    "sink", ["partial(upsert, table='a')", "partial(upsert, 'a')", "lambda rows, n: upsert('a', rows, n)"]
)
def test_a_function_in_another_one_gives_name_and_lines(sink: str) -> None:
    text = f"from functools import partial\ndef upsert(table, rows, n):\n  rows.write.save(table)\n{ORDERS}df.writeStream.foreachBatch({sink}).start()"
    said = settings_of_program(text)
    [query] = said.written
    assert (query.name, query.line, query.places) == ("upsert", 2, "5, 2 to 3")


def test_queries_of_one_line_are_told_apart_and_counted() -> None:
    text, _ = SEVERAL["a function inside a helper"]
    said = settings_of_program(ORDERS + text)
    assert said.notes[0].startswith("what writes it (line 3, 3 queries) is a derive query")
    made = transforms_module_text("glue:orders", said.written)
    for each in "abc":
        assert f'"""Line 3 of the program for the query in line 5 (s3://c/{each}): return' in made


def test_what_is_printed_is_told_beside_a_query_of_the_same_line() -> None:
    text = (
        "def save(frame, kind):\n  frame.writeStream.format(kind).start()\n"
        "save(df.filter('a'), 'console')\nsave(df.filter('a'), 'kafka')\nsave(df.filter('b'), 'mongodb')"
    )
    said = settings_of_program(ORDERS + text)
    assert [each.sink for each in said.written] == ["kafka", "mongodb"]
    assert "line 3: what it prints, and keeps nowhere, is left out" in said.notes


def test_a_name_in_the_program_is_no_code_of_the_module() -> None:
    place = 's3://b/"""\nimport os\n"""\\'
    for writer in (f"format('kafka').option('path', {place!r})", f"format({place!r})"):
        said = settings_of_program(f"{ORDERS}df.writeStream.{writer}.start()")
        made = ast.parse(transforms_module_text("glue:orders", said.written))
        assert not any(isinstance(each, ast.Import) for each in ast.walk(made))


def test_no_text_of_the_program_is_copied() -> None:
    held = "rows.write.option('password', 'swordfish').save('x')  # swordfish"
    for text in (
        f"def sink(rows, n):\n  {held}\ndf.writeStream.foreachBatch(sink).start()",
        f"df.writeStream.option('password', 'swordfish').foreachBatch(lambda rows, n: {held.partition('#')[0]}).start()",
    ):
        made = transforms_module_text("glue:orders", settings_of_program(ORDERS + text).written)
        assert "swordfish" not in made
        ast.parse(made)
