"""Streams and settings of a program, read from its source: branches, run arguments, and open questions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from millrace.advisor.existing.environment_of_imported_job import environment_document
from millrace.advisor.existing.stream_candidates_of_program import ImportedStreamSettings, StreamAnswers
from millrace.advisor.programs.library_functions import LaunchArguments
from millrace.config import ConfigurationError
from tests.unit.advisor.settings_of_program import ARN, NO_ARGUMENTS, settings_of_program
from tests.unit.advisor.test_job_import import CLUSTER, SCHEMA, _kafka

KAFKA = 's.readStream.format("kafka").option("kafka.bootstrap.servers", "b-1:9092")'


def imported(said: ImportedStreamSettings, partitions: int | None = 1) -> dict[str, Any]:
    return environment_document(
        replace(_kafka(), program=said), env="moved", project="p", schema=SCHEMA, start="2026-12-01T08:00:00Z", rate=1.0,
        record_size="1KiB", twin=None, offsets=None, partitions=partitions, cluster=CLUSTER,
    )  # fmt: skip


RUN = LaunchArguments(
    ("--topic", "orders", "--arn", f"{ARN}/orders", "--database", "db", "--table_name", "orders")
)
WRITE = '.load().writeStream.trigger(processingTime="10 seconds").start()'
BATCH = 'glue.forEachBatch(frame=frame, batch_function=write, options={"windowSize": "10 seconds"})'

FOUND = {
    "a sink is no source": f'{KAFKA}.option("subscribe", "orders").load().writeStream.format("aws-kinesis")'
    '.option("kinesis.streamName", "alerts").trigger(processingTime="10 seconds").start()',
    "a dictionary that nothing reads": f'OLD = {{"subscribe": "payments", "kafka.bootstrap.servers": "x:1"}}\n{KAFKA}.option("subscribe", "orders"){WRITE}',
    "an argument of argparse": "import argparse\np = argparse.ArgumentParser()\np.add_argument('-t', '--topic', required=True)\n"
    f"a, _ = p.parse_known_args()\n{KAFKA}.option('subscribe', a.topic){WRITE}",
    "an argument of argparse that may be repeated": "import argparse\np = argparse.ArgumentParser()\n"
    f"p.add_argument('--topic', action='append')\n{KAFKA}.option('subscribe', p.parse_args().topic[0]){WRITE}",
    "a default of argparse": "from argparse import ArgumentParser as P\np = P()\np.add_argument('--in', dest='t', default='or' + 'ders')\n"
    f"a = vars(p.parse_args())\n{KAFKA}.option('subscribe', a['t']){WRITE}",
    "an argument by its place": f"import sys\nif len(sys.argv) < 2:\n    sys.exit(1)\nname = sys.argv[2]\n{KAFKA}.option('subscribe', name){WRITE}",
    "getopt": "import getopt, sys\nopts, rest = getopt.getopt(sys.argv[1:], 't:', ['topic=', 'arn=', 'database=', 'table_name='])\n"
    f"for o, a in opts:\n  if o in ('-t', '--topic'):\n    topic = a.replace('\"', '')\n{KAFKA}.option('subscribe', topic){WRITE}",
    "functions, and options in a dictionary": "def options(topic, **more):\n  base = {'kafka.bootstrap.servers': 'b-1:9092', 'subscribe': topic}\n"
    "  base.update(more)\n  return base\ndef read(spark, topic='payments'):\n"
    "  return spark.readStream.format('kafka').options(**options(topic, failOnDataLoss='true')).load()\n"
    "def main():\n  df = transform(read(spark, topic='orders')).select('*')\n  df.writeStream.trigger(processingTime='10 seconds').start()\n"
    "if __name__ == '__main__':\n  main()",
    "a class": "class Job:\n  topic = 'payments'\n  def __init__(self, topic):\n    self.topic = topic\n  @property\n  def options(self):\n"
    "    return {'subscribe': self.topic, 'kafka.bootstrap.servers': 'b-1:9092'}\n  def run(self):\n"
    "    self.write(spark.readStream.format('kafka').options(**self.options).load())\n  def write(self, df):\n"
    "    df.writeStream.trigger(processingTime='10 seconds').start()\nJob('orders').run()",
    "a data class": "@dataclass\nclass Settings:\n  topic: str\n  servers: str = 'b-1:9092'\nc = Settings(topic='orders')\n"
    f"spark.readStream.format('kafka').option('kafka.bootstrap.servers', c.servers).option('subscribe', c.topic){WRITE}",
    "fields of a data class": "@dataclass\nclass Settings:\n  topic: str = field(default_factory=lambda: os.getenv('T', 'orders'))\n"
    f"  servers: str = field(default='b-1:9092')\nc = Settings()\n{KAFKA}.option('subscribe', c.topic){WRITE}",
    "a class above, and a factory": "class Base:\n  def __init__(self, topic):\n    self.topic = topic\n  def run(self):\n"
    f"    {KAFKA}.option('subscribe', self.name()){WRITE}\n"
    "class Job(Base):\n  def __init__(self, topic):\n    super().__init__(topic)\n  @classmethod\n  def of(cls, topic):\n"
    "    return cls(topic)\n  def run(self):\n    super().run()\n  def name(self):\n    return self.topic.lower()\nJob.of('ORDERS').run()",
    "a loop over options": "r = spark.readStream.format('kafka')\nfor k, v in {'subscribe': 'orders', 'kafka.bootstrap.servers': 'b-1:9092'}.items():\n"
    f"  r = r.option(k, v)\nr{WRITE}",
    "an option that its reader takes": f"r = {KAFKA}\nif True:\n  r.option('subscribe', 'orders')\nr{WRITE}",
    "a known condition": f"env = 'prod'\nif env == 'prod':\n  t = 'orders'\nelse:\n  t = 'payments'\n{KAFKA}.option('subscribe', t){WRITE}",
    "a view": f'{KAFKA}.option("subscribe", "orders").load().createOrReplaceTempView("raw")\n'
    'spark.sql("FROM raw").writeStream.trigger(processingTime="10 seconds").start()',
    "Glue's options": "args = getResolvedOptions(sys.argv, ['arn'])\noptions = {'typeOfData': 'kinesis', 'streamARN': args['arn']}\n"
    f"frame = glue.create_data_frame.from_options(connection_type='kinesis', connection_options=options)\n{BATCH}",
    "a name out of an ARN": "import re\nargs = getResolvedOptions(sys.argv, ['arn'])\n"
    "name = re.compile(r'arn:aws:kinesis:([a-z0-9-]+):(\\d+):stream/([a-zA-Z0-9-_]+)').match(args['arn']).group(3)\n"
    f"spark.readStream.format('kinesis').option('streamName', name){WRITE}",
    "a name by splitting an ARN": "args = getResolvedOptions(sys.argv, ['arn'])\n"
    f"spark.readStream.format('kinesis').option('streamName', args['arn'].split('/')[-1]){WRITE}",
    "a table of the Data Catalog": "args = getResolvedOptions(sys.argv, ['database', 'table_name'])\nframe = glue.create_data_frame.from_catalog("
    f"database=args['database'], table_name=args['table_name'], additional_options={{}})\n{BATCH}",
    "a table behind a connection": f"frame = glue.create_data_frame_from_catalog('db', 'events', additional_options={{}})\n{BATCH}",
    "a table of files beside it": f"static = glue.create_data_frame.from_catalog(database='db', table_name='files')\n{KAFKA}.option('subscribe', 'orders')"
    ".load().join(static, 'id').writeStream.trigger(processingTime='10 seconds').start()",
    "a loop that ends early": f"for t in ['orders', 'payments']:\n  name = t\n  break\n{KAFKA}.option('subscribe', name){WRITE}",
    "a default behind a variable that is not set": "import os\nname = os.environ.get('NAME') or os.getenv('TOPIC') or 'orders'\n"
    f"every = os.getenv('EVERY') or '10 seconds'\n{KAFKA}.option('subscribe', name).load().writeStream.trigger(processingTime=every).start()",
    "a default behind an argument that is not given": "import argparse\np = argparse.ArgumentParser()\np.add_argument('--name')\n"
    f"a, _ = p.parse_known_args()\n{KAFKA}.option('subscribe', a.name or 'orders'){WRITE}",
    "a key that is there": "args = getResolvedOptions(sys.argv, ['topic', 'nowhere'])\n"
    f"name = args['topic'] if 'topic' in args else 'payments'\n{KAFKA}.option('subscribe', name){WRITE}",
    "a program that ends with its main function": f"import sys\ndef main():\n  {KAFKA}.option('subscribe', 'orders'){WRITE}\n  return 0\nif __name__ == '__main__':\n  sys.exit(main())",
    "a program that raises with its main function": f"def main(topic):\n  {KAFKA}.option('subscribe', topic){WRITE}\nraise SystemExit(main('orders'))",
    "a chain of formats": f"t = '{{}}'.format('or') + 'DERS'.lower()\nt = f\"{{t}}\" if True else None\n{KAFKA}.option('subscribe', '%s' % t.strip()){WRITE}",
}  # fmt: skip
NAMES = {
    "Glue's options": f"{ARN}/orders",
    "a table of the Data Catalog": f"{ARN}/orders",
    "a table behind a connection": "events",
}
"""Of the others the stream is ``orders``."""


@pytest.mark.parametrize("shape", FOUND)
def test_the_stream_is_the_one_that_reaches_a_query(shape: str) -> None:
    said = settings_of_program(FOUND[shape], RUN)
    assert (said.name, said.trigger, said.open, said.also) == (NAMES.get(shape, "orders"), 10.0, {}, ())
    assert len(said.notes) == len(said.written)  # a derive query has its note


TWO = (
    f"a = {KAFKA}.option('subscribe', 'orders').load()\nb = {KAFKA}.option('subscribe', 'payments').load()\n"
)

OPEN = {
    "either of two streams": (
        f"{TWO}df = a if flag() else b\ndf.writeStream.start()",
        "the program reads several: line 1: orders, or line 2: payments; give it with --topic NAME",
    ),
    "either of two queries": (
        f"def run(topic):\n  {KAFKA}.option('subscribe', topic).load().writeStream.start()\n"
        "if flag():\n  run('orders')\nelse:\n  run('payments')",
        "the program reads several: line 4: orders, or line 6: payments; give it with --topic NAME",
    ),
    "a loop that may end early": (
        f"for t in ['orders', 'payments']:\n  name = t\n  if ok(t):\n    break\n{KAFKA}.option('subscribe', name){WRITE}",
        "the program reads several: line 1: orders, or line 1: payments; give it with --topic NAME",
    ),
    "an endless loop that may end": (
        f"name = 'orders'\nwhile True:\n  if ok():\n    break\n  name = 'payments'\n{KAFKA}.option('subscribe', name){WRITE}",
        "the program reads several: line 1: orders, or line 5: payments; give it with --topic NAME",
    ),
    "a branch": (
        f"if flag():\n  t = 'orders'\nelse:\n  t = 'payments'\n{KAFKA}.option('subscribe', t){WRITE}",
        "the program reads several: line 2: orders, or line 4: payments; give it with --topic NAME",
    ),
    "a missing argument": (
        f"args = getResolvedOptions(sys.argv, ['name'])\n{KAFKA}.option('subscribe', args['name']){WRITE}",
        "the program does not name it: line 2: subscribe is the argument --name, which the job does not have; give it with --topic NAME",
    ),
    "a file of settings": (
        f"import yaml\nc = yaml.safe_load(open('c.yaml'))\n{KAFKA}.option('subscribe', c['t']){WRITE}",
        "the program does not name it: line 2: subscribe is yaml.safe_load(); give it with --topic NAME",
    ),
    "a constant of another module": (
        f"from shop.constants import TOPIC\n{KAFKA}.option('subscribe', TOPIC){WRITE}",
        "the program does not name it: line 1: subscribe is shop.constants.TOPIC; give it with --topic NAME",
    ),
    "options from elsewhere": (
        f"from settings import options\n{KAFKA}.options(**options()){WRITE}",
        "the program does not name it: line 2: settings.options(); give it with --topic NAME",
    ),
    "a gap of a sample": (
        f"{KAFKA}.option('subscribe', '<your topic>'){WRITE}",
        "the program does not name it: line 1: <your topic>, which is no name of a stream or topic; give it with --topic NAME",
    ),
}  # fmt: skip


@pytest.mark.parametrize("shape", OPEN)
def test_what_the_program_does_not_tell_is_a_question_with_its_lines_and_its_option(shape: str) -> None:
    text, said = OPEN[shape]
    assert settings_of_program(text, RUN).open["name"] == said
    answered = settings_of_program(text, RUN, StreamAnswers(topic="orders"))
    assert (answered.name, answered.open.get("name")) == ("orders", None)
    assert answered.first_option("kafka.bootstrap.servers") == "b-1:9092"


SEVERAL = {
    "a query each": f"{TWO}a.writeStream.start()\nb.writeStream.start()",
    "a thread": f"import threading\n{TWO}a.writeStream.start()\ndef run(frame):\n  frame.writeStream.start()\n"
    "threading.Thread(target=run, args=(b,)).start()",
    "a pool": f"def run(topic):\n  {KAFKA}.option('subscribe', topic).load().writeStream.start()\nrun('orders')\npool.submit(run, 'payments')",
    "a loop over topics": f"for t in ['orders', 'payments']:\n  {KAFKA}.option('subscribe', t).load().writeStream.start()",
    "a loop over pairs": f"for n, (t, p) in enumerate(zip(['orders', 'payments'], 'ab')):\n  {KAFKA}.option('subscribe', t){WRITE}",
    "a list of topics": f"{KAFKA}.option('subscribe', 'orders, payments'){WRITE}",
    "a join": f"{TWO}a.join(b, 'id').writeStream.start()",
    "a union": f"from functools import reduce\n{TWO}reduce(DataFrame.unionByName, [a, b]).writeStream.start()",
    "a batch function of a class": f"{TWO}class Sink:\n  def __init__(self, table):\n    self.table = table\n  def write(self, rows, n):\n    pass\n"
    "  def run(self, df):\n    df.writeStream.foreachBatch(self.write).start()\nSink('o').run(a)\nSink('p').run(b)",
}  # fmt: skip


@pytest.mark.parametrize("shape", SEVERAL)
def test_each_of_several_streams_has_its_query(shape: str) -> None:
    said = settings_of_program(SEVERAL[shape], RUN)
    assert [(each.name, each.open) for each in said.settings_of_all_streams] == [
        ("orders", {}),
        ("payments", {}),
    ]
    made = imported(said)
    assert [each["topic"] for each in made["streams"].values()] == ["orders", "payments"]
    assert list(made["kafka"]) == ["theirs"]
    [job] = made["jobs"].values()
    sources = [each["source"] for each in job["queries"].values()]
    assert sources[:2] == ["orders", "payments"]
    if shape in ("a join", "a union", "a list of topics"):
        assert sources[2:] == ["orders_landed"]
        assert any("its derive query has the first of them" in each for each in said.notes)
    elif "class" in shape:
        assert sources[2:] == ["orders_landed", "payments_landed"]
    else:
        assert not said.written


def test_the_streams_that_an_answer_leaves_out_are_named_and_another_one_is_refused() -> None:
    text = f"{TWO}a.writeStream.trigger(processingTime='10 seconds').start()\nb.writeStream.trigger(processingTime='30 seconds').start()"
    said = settings_of_program(text, RUN, StreamAnswers(topic="payments"))
    assert said.trigger == 30.0
    assert said.notes == ("it reads other streams too, which are not in this file: line 1: orders",)
    with pytest.raises(
        ConfigurationError,
        match="--topic is sales; allowed: a stream that the program reads, one of line 1: orders, or line 2",
    ):
        settings_of_program(text, RUN, StreamAnswers(topic="sales"))


def test_a_role_and_a_stream_of_other_accounts_are_allowed_in_the_file() -> None:
    read = "s.readStream.format('kinesis').option('streamName', 'orders').option('awsSTSRoleARN', '{}').load().writeStream.start()"
    made = imported(settings_of_program(read.format("arn:aws:iam::210987654321:role/reader")))
    assert made["governance"] == {"other_accounts": ["210987654321"]}
    assert made["streams"]["orders"]["read_role"].endswith("role/reader")
    assert "governance" not in imported(
        settings_of_program(read.format("arn:aws:iam::123456789012:role/reader"))
    )


def test_a_topic_of_two_clusters_is_two_streams() -> None:
    text = "".join(
        f"a = {KAFKA.replace('b-1', broker)}.option('subscribe', 'orders').load()\n"
        f"a.writeStream.foreachBatch(lambda rows, n: rows.write.save('{broker}')).start()\n"
        for broker in ("b-1", "c-1", "b-1")
    )
    both = imported(settings_of_program(text))
    assert {key: each["bootstrap_servers"] for key, each in both["kafka"].items()} == {
        "theirs": "b-1:9092",
        "theirs-2": "c-1:9092",
    }
    assert [(each["topic"], each["cluster"]) for each in both["streams"].values()] == [
        ("orders", "theirs"),
        ("orders", "theirs-2"),
    ]
    [job] = both["jobs"].values()
    derived = [each["source"] for each in job["queries"].values() if each["kind"] == "derive"]
    assert derived == ["orders_landed", "orders_2_landed", "orders_landed"]
    for topic in (None, "orders"):
        one = settings_of_program(text, NO_ARGUMENTS, StreamAnswers(topic=topic, brokers="c-1:9092"))
        assert (one.name, one.also, [each.line for each in one.written]) == ("orders", (), [4])
        left = "it reads other streams too, which are not in this file: line 1: orders, or line 5: orders"
        assert left in one.notes
        other = settings_of_program(text, NO_ARGUMENTS, StreamAnswers(topic=topic, brokers="d-1:9092"))
        assert (other.name, other.also, len(other.written)) == ("orders", (), 3)
        assert "it reads from several clusters, and this file from d-1:9092 alone" in other.notes


def test_a_stream_of_another_kind_and_a_fan_out_are_told() -> None:
    text = (
        "a = spark.readStream.format('kinesis').option('streamName', 'orders').option('kinesis.consumerType', 'SubscribeToShard').load()\n"
        "b = spark.readStream.format('delta').load('s3://b/t')\n"
        "a.join(b, 'id').writeStream.trigger(processingTime='10 seconds').start()"
    )
    assert settings_of_program(text).notes == (
        "line 2 reads delta (line 2) too, which is not in this file",
        "what writes it (line 3) is a derive query of a transform to be finished, and an Iceberg table until you name its sink",
        "it reads by enhanced fan-out: fan_out: true in the land query keeps that",
    )


@pytest.mark.parametrize(
    ("writer", "name", "note"),
    [
        ("foreachBatch(write)", "query_4", "what writes it (line 4) is a derive query"),
        ("foreachBatch(partial(write, t='a'))", "query_4", "what writes it (line 4) is a derive query"),
        ("foreachBatch(Sink())", "call", "what writes it (line 2) is a derive query"),
        ("foreach(Sink())", "call", "what writes it (line 2) is a derive query"),
        ("format('kafka')", "kafka_4", "what writes it (line 4: kafka) is a derive query"),
        ("format('delta')", "", "line 4: delta: the landing table"),
        ("format('console')", "", "line 4: what it prints"),
    ],
)
def test_what_a_query_writes_is_never_left_out_without_a_note(writer: str, name: str, note: str) -> None:
    text = f"class Sink:\n  def __call__(self, rows, n):\n    pass\n{KAFKA}.option('subscribe', 'orders').load().writeStream.{writer}.start()"
    said = settings_of_program(text)
    assert [each.name for each in said.written] == [name] * bool(name)
    told, at_once = sorted(said.notes, key=lambda each: "trigger" in each)
    assert told.startswith(note)
    assert at_once.startswith("line 4: without a trigger a batch follows the other at once")


def test_patterns_and_assigned_partitions_keep_their_meaning() -> None:
    pattern = settings_of_program(f"{KAFKA}.option('subscribePattern', 'shop.*'){WRITE}")
    assert (pattern.name, pattern.pattern) == ("shop.*", True)
    assigned = settings_of_program(
        f"import json\n{KAFKA}.option('assign', json.dumps({{'orders': [0, 2]}})){WRITE}"
    )
    assert (assigned.name, assigned.partitions) == ("orders", (0, 2))


@pytest.mark.parametrize(
    ("text", "why_not"),
    [
        ("print('a batch job')", "no readStream and no create_data_frame in it"),
        ("object GlueApp {\n  def main(a: Array[String]) {}\n}", "a program in Scala, and only Python is read"),
        ("print 'two'", "no Python 3."),
        ("import sys, getopt\nif len(sys.argv) < 2:\n    sys.exit('usage')\n" + KAFKA + ".load().writeStream.start()",
         "a run with the job's arguments does not reach its readStream in line 4"),
        ("s.readStream.format('delta').load('x').writeStream.start()", "line 1 reads delta (line 1)"),
        ("frame = glue.create_data_frame.from_catalog(database='db', table_name='theirs')\n" + BATCH,
         "line 1: table db.theirs of the Data Catalog (AccessDenied)"),
        ("glue.forEachBatch(frame=None, batch_function=f, options={})", "line 1 writes a stream that is read outside"),
    ],
)  # fmt: skip
def test_a_program_without_a_stream_tells_why_and_an_answer_takes_its_place(text: str, why_not: str) -> None:
    said = settings_of_program(text)
    assert (said.kind, said.name) == (None, None)
    assert said.why_not.startswith(why_not)
    answered = settings_of_program(text, NO_ARGUMENTS, StreamAnswers(topic="orders", brokers="b-1:9092"))
    assert (answered.kind, answered.name, answered.open) == ("kafka", "orders", {})
    assert answered.notes  # what else is not known


PARSED = "from_json(col('value').cast('string'), 'id long, items array<string>').alias('o')"
RESHAPED = {
    "a generator": f"select({PARSED}).select('o.id', explode('o.items').alias('i')).select('id', 'i')",
    "a generator of a module": f"select({PARSED}).withColumn('i', F.posexplode_outer(F.split(F.col('o.items'), ',')))",
    "a generator in a list": "select(*[F.col('id'), F.inline('items')])",
    "a generator for each column": "select([F.explode(c) for c in df.columns])",
    "a generator in a text": "selectExpr('id', 'explode(items) as i')",
    "a generator in an expression": "select(expr('stack(2, a, b)'))",
    "a generator in another function": "select(F.upper(F.coalesce(F.explode('items'), F.lit('x'))))",
    "a generator in a variable": "withColumns({'i': item})",
    "an operator": "select(F.lit(1) + F.sum('n'))",
    "an aggregate": "select(F.count('*'))",
    "an aggregate in a text": "selectExpr('max(n) AS most')",
    "a text that is not known": "selectExpr(sql())",
    "columns that are not known": "select(*columns())",
    "a method": "flatMap(lambda row: row.items)",
    "a function of the program": "transform(lambda d: d.select(explode('items')))",
    "an aggregate of later versions": "select(F.try_sum('n'), F.try_avg('n'))",
    "an aggregate of another name": "select(F.array_agg('n'))",
    "an aggregate of bits": "selectExpr('bit_or(n)')",
    "a histogram": "select(F.histogram_numeric('n', F.lit(3)))",
    "a generator of variants": "selectExpr('variant_explode(v)')",
    "rows by a column": "select('a')[df['a'] > 1]",
    "rows by two columns": "select('a')[(df['a'] > 1) & (df.b == 2)]",
    "rows by a function": "select('a')[F.col('a') > 1]",
    "rows by a column's method": "select('a')[df.a.isNotNull()]",
    "rows by a condition of a name": "select('a')[condition]",
    "a generator among chosen columns": "select('a')[['a', explode('items')]]",
    "rows without nulls": "na.drop()",
    "rows with another value for nulls": "na.fill(0)",
    "rows with another value": "na.replace({'a': 'b'})",
}
PLAIN_COLUMNS = {
    "columns": f"select({PARSED}).select('o.*').withColumn('day', F.to_date('at')).withColumnRenamed('a', 'count')",
    "columns in a list": "select(*[F.col(c).cast('string') for c in ['a', 'b']])",
    "the frame's columns": "select([F.lower(c) for c in df.columns])",
    "a tuple of JSON": "select(F.json_tuple('value', 'a', 'b'))",
    "texts": "selectExpr('CAST(value AS STRING)', 'upper(inline) AS b')",
    "chosen columns": "select('a', 'b')[['a', 'b']]",
    "columns of the frame": "select(df['a'], df.b, df[0], df.c.cast('string'), df['d'].alias('e'))",
    "a column of the frame in a function": "withColumn('a', F.upper(df['a']) + df.b.substr(0, 3))",
}


@pytest.mark.parametrize(
    ("shape", "shaped"), [*((each, True) for each in RESHAPED), *((each, False) for each in PLAIN_COLUMNS)]
)
def test_a_query_that_makes_other_rows_is_not_replaced_by_the_landing_table(shape: str, shaped: bool) -> None:
    text = (
        "from shop.helpers import columns, sql\nfrom pyspark.sql import functions as F\nfrom pyspark.sql.functions import *\n"
        f"item = explode('items')\ncondition = F.col('a') > 1\ndf = {KAFKA}.option('subscribe', 'orders').load()\n"
        f"df.{ {**RESHAPED, **PLAIN_COLUMNS}[shape] }.writeStream.format('delta').start()"
    )  # fmt: skip
    said = settings_of_program(text)
    assert [each.name for each in said.written] == ["delta_7"] * shaped


REGIONS = """
for r in ["us-east-1", "eu-west-1"]:
    d = spark.readStream.format("aws-kinesis").option("kinesis.endpointUrl", f"https://kinesis.{r}.amazonaws.com")
    d = d.option("kinesis.streamName", "clicks").load()
    d.writeStream.format("parquet").option("path", f"s3://b/{r}").trigger(processingTime="5 seconds").start()
"""


def test_one_name_in_two_regions_is_two_streams_and_the_other_regions_is_open() -> None:
    said = settings_of_program(REGIONS)
    assert [(each.name, each.regions) for each in said.settings_of_all_streams] == [
        ("clicks", ("us-east-1",)),
        ("clicks", ("eu-west-1",)),
    ]
    streams = imported(said, partitions=None)["streams"]
    assert streams["clicks"]["existing"] == "clicks"
    assert streams["clicks-2"]["existing"].startswith("(open) clicks is in eu-west-1, and")
    assert streams["clicks-2"]["shards"].startswith("(open)")


def test_a_list_of_streams_is_several() -> None:
    """Databricks' reader of Kinesis takes "A comma-separated list of stream names" (its documentation)."""
    text = "spark.readStream.format('kinesis').option('streamName', 'orders, clicks').load().writeStream.toTable('raw')"
    said = settings_of_program(text)
    assert [each.name for each in said.settings_of_all_streams] == ["orders", "clicks"]


def test_a_name_of_two_streams_is_no_answer_and_an_arn_is() -> None:
    """The sinks and triggers of both streams went into one land query, and the other region's was read as ours."""
    with pytest.raises(ConfigurationError) as refused:
        settings_of_program(REGIONS, answers=StreamAnswers(stream="clicks"))
    (problem,) = refused.value.problems
    assert (problem.key, problem.value) == ("--stream", "clicks")
    assert problem.allowed.startswith("the ARN of one of the streams of this name")
    assert problem.allowed.endswith(": eu-west-1, us-east-1")
    for region, other in (("us-east-1", "eu-west-1"), ("eu-west-1", "us-east-1")):
        arn = f"arn:aws:kinesis:{region}:123456789012:stream/clicks"
        said = settings_of_program(REGIONS, answers=StreamAnswers(stream=arn))
        assert [(each.name, each.regions) for each in said.settings_of_all_streams] == [(arn, (region,))]
        assert any("reads other streams too" in each for each in said.notes)
        assert not any(other in each for each in said.notes)
        (stream,) = imported(said, partitions=None)["streams"].values()
        assert (stream["existing"] == arn) == (region == "us-east-1")


def test_an_answer_keeps_the_region_that_the_program_names() -> None:
    """With the name as an answer, the stream of that name in the job's own region was read."""
    text = REGIONS.replace('"us-east-1", ', "")
    said = settings_of_program(text, answers=StreamAnswers(stream="clicks"))
    assert imported(said)["streams"]["clicks"]["existing"].startswith("(open) clicks is in eu-west-1, and")


def test_an_arn_is_a_stream_of_its_account() -> None:
    arns = [
        f"arn:aws:kinesis:us-east-1:{account}:stream/clicks" for account in ("111122223333", "444455556666")
    ]
    text = "\n".join(
        f"d{n} = spark.readStream.format('kinesis').option('streamARN', '{arn}').load()\nd{n}.writeStream.trigger(processingTime='{n} seconds').start()"
        for n, arn in enumerate(arns, 1)
    )
    with pytest.raises(ConfigurationError, match=", ".join(arns)):
        settings_of_program(text, answers=StreamAnswers(stream="clicks"))
    said = settings_of_program(text, answers=StreamAnswers(stream=arns[1]))
    assert (said.name, said.trigger, said.also) == (arns[1], 2.0, ())


@pytest.mark.parametrize(
    ("place", "regions"),
    [
        ("'streamARN', 'arn:aws:kinesis:eu-west-1:123456789012:stream/clicks'", ("eu-west-1",)),
        ("'awsRegion', os.environ['SOURCE']", ("the environment variable SOURCE (line 2)",)),
        ("'x', 'y'", ()),
    ],
)
def test_the_region_of_a_stream_is_that_of_its_arn_or_its_reader(
    place: str, regions: tuple[str, ...]
) -> None:
    text = f"import os\nspark.readStream.format('kinesis').option('streamName', 'clicks').option({place}).load().writeStream.start()"
    [each] = settings_of_program(text).settings_of_all_streams
    assert each.regions == regions
