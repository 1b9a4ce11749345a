"""Transforms of an imported job: one for each query of its program, and none of its secrets."""

from __future__ import annotations

import ast
import keyword
import time

import pytest

from millrace.advisor.existing.import_transform_stubs import transforms_module_text
from millrace.advisor.existing.program_lines_without_secrets import lines_without_secrets
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
    assert (query.name, query.line) == ("upsert", 2)
    assert "rows.write.save(table)" in query.text


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


HELD = {
    "black's layout": 'rows.write.option(\n    "password",\n    "swordfish",\n).save()',
    "a value in the next line": 'password = (\n    "swordfish"\n)',
    "an option of Elasticsearch": 'rows.write.options(**{"es.net.http.auth.pass": "swordfish"}).save()',
    "a key pass": 'conf = {\n  "url": u,\n  "pass":\n    "swordfish",\n}',
    "a keyword": 'conf = dict(\n  user="u",\n  sfPassword=\n    "swordfish")',
    "an attribute": 'settings.apiKey = "swordfish"',
    "an item": 'conf["db_pwd"] = "swordfish"',
    "a tuple": 'user, pw = "bob", "swordfish"',
    "a percent format": 'jaas = \'Login required username="%s" password="%s";\' % (\n  "bob",\n  "swordfish")',
    "a format": 'x = "user={} pass={}".format(\n  "bob", "swordfish")',
    "a text in parts": 'x = ("jdbc:mysql://h/db?user=u&pass"\n  "word=swordfish")',
    "a sum": 'x = "https://bob:" + \\\n  "swordfish" + "@h/x"',
    "an f-string": 'x = f"https://bob:{n}"\\\n  f"swordfish@h/x"',
    "a connection string": 'x = connect("h", "bob",\n  "swordfish")',
    "a URL": 'x = "mongodb+srv://u:swordfish@cluster0.x.mongodb.net/db"',
    "a header": 'requests.post(u, headers={"X-Auth": "swordfish"})',
    "a word of a command": 'subprocess.run(["mysql", "-u", "x",\n  "-pswordfish"])',
    "a pair": 'requests.post(u, auth=("bob",\n "swordfish"))',
    "letters and digits": 'x = f("swordfish1x")',
    "a name that is used as one": 's = "swordfish"\nt = s\nrows.write.option("password", t).save()',
    "a loop": 'for p in ["swordfish"]:\n  login(p)',
    "a default": 'def save(rows, password="swordfish"):\n  pass',
    "a with": 'with open(password="swordfish") as c:\n  pass',
    "bytes": 'token = b"swordfish"',
    "a user of a command": 'subprocess.run("curl -u bob:swordfish http://h", shell=True)',
    "a user of a command in parts": 'subprocess.run(["curl", "-u", "bob:swordfish", "http://h"])',
    "a URL in an f-string": "x = create_engine(f\"postgresql://bob:{'swordfish'}@h/db\")",
    "a URL with a value in it": 'x = f"amqp://bob:swordfish@{host}/x"',
    "a client with a pair": 'es = Elasticsearch(["h"], ("bob", "swordfish"))',
    "a client by places": 'r = redis.Redis(host, 6379, 0, "swordfish")',
    "a client with a user": 'c = InfluxDBClient(host, 8086, user, "swordfish", "db")',
    "a class of its own": 'ftp = FTP(host, user, "swordfish")',
    "a client of a function": 'c = boto3.client("s3", None, None, True, None, None, "bob", "swordfish")',
    "a session": 'c = boto3.Session("bob", "swordfish")',
    "a provider": 'c = PlainTextAuthProvider("bob", "swordfish")',
    "a name that may be a secret's": 'api = "swordfish"',
    "a key": 'key = "swordfish"\nf(key)',
    "a salt": 'salt: bytes = b"swordfish"',
    "a comment": "x = 1  # the password is swordfish",
    "commented code": '# x.option(\n#   "password",\n#   "swordfish")\nx = 1',
    "a docstring": '"""Log in.\n\nThe password is\nswordfish\n"""',
    "a key of AWS in parts": 'x = "AKIA" + \\\n  "IOSFODNN7EXAMPLE"  # swordfish',
    "another end of lines": 'a = 1\r\r  rows.write.option("password",\r  "swordfish")',
}  # fmt: skip


@pytest.mark.parametrize("shape", HELD)
def test_a_statement_that_may_hold_a_secret_is_not_quoted(shape: str) -> None:
    body = HELD[shape]
    text = (
        "def sink(rows, n):\n  before(rows)\n"
        + "\n".join(f"  {each}" for each in body.split("\n"))
        + "\n  after(rows)\n"
    )
    ast.parse(text)
    shown = "\n".join(lines_without_secrets(text))
    assert "swordfish" not in shown
    assert "IOSFODNN7" not in shown
    assert ("before(rows)" in shown, "after(rows)" in shown) == (True, True)
    said = settings_of_program(f"{ORDERS}{text}df.writeStream.foreachBatch(sink).start()")
    made = transforms_module_text("glue:orders", said.written)
    assert "swordfish" not in made
    ast.parse(made)


def test_what_holds_no_secret_is_quoted() -> None:
    text = (
        "def sink(rows, number):\n"
        "    # one of theirs\n"
        "    trips = rows.filter(\"passenger_count > 0\").withColumn('author', F.col('a'))\n"
        "    for kind in ('new', 'paid'):\n"
        "        if number:\n"
        "            pass\n"
        '        trips.write.format("iceberg").mode("append").save(f"glue.db.{kind}_v2")\n'
        "    url = 'jdbc:postgresql://h/db'\n"
        "    trips.write.jdbc(url, 'trips')\n"
        "    boto3.client('dynamodb').put_item(TableName='trips')\n"
        "    schema = StructType([StructField('id', LongType()), StructField('at', TimestampType())])\n"
        "    url = f'http://{host}:{port}/x', f'http://h:8080/{path}', 's3://b/k:v'\n"
        "    for key, value in table.items():\n"
        "        pass\n"
        "    keyed = trips.withColumn('key', F.concat_ws('-', 'a', 'b')).orderBy('key')\n"
    )
    assert lines_without_secrets(text) == text.split("\n")


def test_a_lambda_is_quoted_without_the_secrets_of_its_statement() -> None:
    text = f"{ORDERS}df.writeStream.option('password', 'swordfish').foreachBatch(lambda d, n: d.write.save('x')).start()"
    made = transforms_module_text("glue:orders", settings_of_program(text).written)
    assert "swordfish" not in made


def test_long_programs_are_looked_through_in_time_of_their_length() -> None:
    chain = "".join(f"x{n} = 'a' + x{n - 1} if x{n} else y\n" for n in range(4000))
    begun = time.process_time()
    assert lines_without_secrets(f"{chain}password = x3999\n").count("(this line may hold a secret)") == 4001
    assert time.process_time() - begun < 10
