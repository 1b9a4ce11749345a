"""The format of a program's payload is in the imported file, open in it, or in a note."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.advisor.settings_of_program import settings_of_program
from tests.unit.advisor.test_import_loses_nothing import ORDERS, TABLE
from tests.unit.advisor.test_program_reader import TWO, imported

AVRO = "from pyspark.sql.avro.functions import from_avro\n"
PAYLOADS = {
    "JSON": (f"df.select(F.from_json(F.col('value').cast('string'), 'a INT').alias('v')).{TABLE}", None),
    "Avro": (f"{AVRO}rows = df.select(from_avro(F.col('value'), S, {{}}).alias('v')).select('v.*')\nrows.{TABLE}", "avro"),
    "Avro in a column": (f"{AVRO}df.withColumn('v', from_avro('value', S)['id']).{TABLE}", "avro"),
    "Avro, and JSON in a field of it": (
        f"{AVRO}df = df.withColumn('v', from_avro('value', S))\ndf.withColumn('w', F.from_json('v.text', 'a INT')).{TABLE}",
        "avro",
    ),
    "Avro in a function for each batch": (
        f"{AVRO}def decode(rows):\n  return rows.select(from_avro('value', S))\ndef save(rows, n):\n  decode(rows).write.save()\n"
        "df.writeStream.foreachBatch(save).start()",
        "avro",
    ),
    "Avro behind Confluent's header": (
        f"{AVRO}df = df.withColumn('v', F.expr('substring(value, 6, length(value)-5)'))\ndf.select(from_avro('v', S)).{TABLE}",
        {"kind": "avro", "framing": "confluent", "registry": "(open)", "subject": "(open)"},
    ),
    "Avro that a function reads with a registry": (
        f"{AVRO}df.select(from_avro(options=O, data=df.value, subject='t-value', schemaRegistryAddress='https://r:8081')).{TABLE}",
        {"kind": "avro", "framing": "confluent", "registry": "https://r:8081", "subject": "t-value"},
    ),
    "Avro that a function reads with a registry of an unknown address": (
        f"{AVRO}df.select(from_avro('value', None, {{}}, 't-value', where())).{TABLE}",
        {"kind": "avro", "framing": "confluent", "registry": "(open)", "subject": "t-value"},
    ),
    "Avro behind Glue's header": (
        f"{AVRO}df.select(from_avro(F.expr('substring(value, 19)'), S)).{TABLE}",
        {"kind": "avro", "framing": "glue", "writers": "(open)"},
    ),
    "Avro behind a header cut by a column's method": (
        f"{AVRO}df.select(from_avro(F.col('value').substr(F.lit(6), F.length('value') - F.lit(5)), S)).{TABLE}",
        {"kind": "avro", "framing": "confluent", "registry": "(open)", "subject": "(open)"},
    ),
    "Avro behind a header of a constant's length": (
        f"{AVRO}H = 5\ndf.select(from_avro(F.expr(f'substring(value, {{H + 1}}, length(value) - {{H}})'), S)).{TABLE}",
        {"kind": "avro", "framing": "confluent", "registry": "(open)", "subject": "(open)"},
    ),
    "Avro behind a header cut by a function": (
        f"{AVRO}@F.udf('binary')\ndef strip(b):\n  return b[5:]\ndf.select(from_avro(strip('value'), S)).{TABLE}", "(open)",
    ),
    "Avro behind a header cut by a lambda": (
        f"{AVRO}strip = F.udf(lambda b: b[5:], 'binary')\ndf.select(from_avro(strip(df.value), S)).{TABLE}", "(open)",
    ),
    "Avro behind another header": (f"{AVRO}df.select(from_avro(F.expr('substring(value, 11)'), S)).{TABLE}", "(open)"),
    "Avro, and a month of a date": (f"{AVRO}df.select(from_avro('value', S)).withColumn('m', F.substring('day', 6, 2)).{TABLE}", "avro"),
    "Avro, and JSON in its field data": (
        f"{AVRO}df = df.select(from_avro('value', S).alias('v')).select('v.*')\ndf.select(F.from_json('data', 'a INT')).{TABLE}", "avro",
    ),
    "a key in JSON": (
        f"{AVRO}df.select(F.from_json(F.col('key').cast('string'), 'a INT'), from_avro('value', S)).{TABLE}", "avro",
    ),
    "a header in JSON, with a name": (
        f"df = df.withColumn('h', F.col('headers')[0]['value'].cast('string'))\n"
        f"df.select(F.from_json('h', 'a INT'), F.from_csv(df['value'].cast('string'), 'a INT')).{TABLE}", "csv",
    ),
    "a key in JSON, and no other call": (f"df.select(F.from_json('key', 'a INT')).{TABLE}", None),
    "a named column": (f"df.selectExpr('CAST(value AS STRING) AS text').select(F.from_csv('text', 'a INT')).{TABLE}", "csv"),
    "a column named without AS": (f"df.selectExpr('key', 'CAST(value AS STRING) text').select(F.from_csv(F.col('text'), 'a INT')).{TABLE}", "csv"),
    "a named column of SQL": (
        "df.createOrReplaceTempView('v')\nrows = spark.sql('SELECT key, decode(value, \"utf-8\") AS text FROM v')\n"  # noqa: S608
        f"rows.select(F.from_csv(F.col('text'), 'a INT')).{TABLE}", "csv",
    ),
    "a renamed column": (f"df.withColumnRenamed('value', 'text').select(F.from_csv(F.col('text').astype('string'), 'a INT')).{TABLE}", "csv"),
    "named columns": (f"df.withColumns({{'text': df.value.cast('string')}}).select(F.from_csv('text', 'a INT')).{TABLE}", "csv"),
    "bytes that a function decompressed": (
        f"import gzip\nunzip = F.udf(lambda b: gzip.decompress(b).decode())\ndf.select(F.from_json(unzip(F.col('value')), 'a INT')).{TABLE}",
        "(open)",
    ),
    "text of another character set": (
        f"df.select(F.from_csv(F.decode('value', 'UTF-16'), 'a INT')).{TABLE}", "(open)",
    ),
    "text of another character set in SQL": (f"df.selectExpr(\"from_csv(decode(value, 'UTF-16LE'), 'a INT') v\").{TABLE}", "(open)"),
    "text of Spark's character set": (f"df.select(F.from_csv(F.decode(df.value, 'utf-8'), 'a INT')).{TABLE}", "csv"),
    "base64": (f"df = df.withColumn('value', F.unbase64('value').cast('string'))\ndf.select(F.from_json('value', 'a INT')).{TABLE}", "(open)"),
    "one of two columns": (
        f"if flag():\n  df = df.withColumn('value', F.unbase64('value'))\ndf.select(F.from_csv('value', 'a INT')).{TABLE}", "(open)",
    ),
    "what Glue reads": (f"df.select(F.from_csv(F.col('$json$data_infer_schema$_temporary$').cast('string'), 'a INT')).{TABLE}", "csv"),
    "Protobuf": (
        "from pyspark.sql.protobuf.functions import from_protobuf\n"
        f"df.select(from_protobuf(df.value, 'shop.Order', 's3://b/x.desc')).{TABLE}",
        {"kind": "protobuf", "message": "shop.Order"},
    ),
    "Protobuf of an unknown message": (
        f"from pyspark.sql.protobuf.functions import from_protobuf\ndf.select(from_protobuf(df.value, M)).{TABLE}",
        {"kind": "protobuf", "message": "(open)"},
    ),
    "CSV": (f"df.select(F.from_csv(df.value.cast('string'), 'a INT', {{'sep': ';'}})).{TABLE}", {"kind": "csv", "delimiter": ";"}),
    "CSV with options in another case, and one with Spark's default": (
        f"df.select(F.from_csv('value', 'a INT', {{'SEP': '|', 'nullValue': 'NA', 'quote': \"'\", 'mode': 'PERMISSIVE'}})).{TABLE}",
        {"kind": "csv", "delimiter": "|", "null": "NA", "quote": "'"},
    ),
    "CSV with a delimiter that is not known": (
        f"df.select(F.from_csv('value', 'a INT', {{'sep': D}})).{TABLE}", {"kind": "csv", "delimiter": "(open)"},
    ),
    "CSV in either of two ways": (
        f"if flag():\n  df = df.select(F.from_csv('value', 'a INT', {{'sep': ';'}}))\n"
        f"else:\n  df = df.select(F.from_csv('value', 'a INT', {{'sep': '|'}}))\ndf.{TABLE}",
        {"kind": "csv", "delimiter": "(open)"},
    ),
    "CSV in SQL": (f"df.selectExpr(\"from_csv(CAST(value AS STRING), 'a INT') v\").{TABLE}", "csv"),
    "a cast by colons in SQL": (f"df.selectExpr(\"from_csv(value::string, 'a INT') v\").{TABLE}", "csv"),
    "a cast by colons in an expression": (f"df.select(F.from_csv(F.expr('`value` :: STRING'), 'a INT')).{TABLE}", "csv"),
    "a column that is cast by colons": (f"df.selectExpr('value::string AS text').select(F.from_csv('text', 'a INT')).{TABLE}", "csv"),
    "a column that is cast by colons, without AS": (
        f"df.selectExpr('key::string k', 'value::string text', 'offset').select(F.from_csv('text', 'a INT')).{TABLE}", "csv",
    ),
    "a column of SQL that is cast by colons": (
        "df.createOrReplaceTempView('v')\nrows = spark.sql('SELECT value::binary::string AS text FROM v')\n"  # noqa: S608
        f"rows.select(F.from_csv('text', 'a INT')).{TABLE}", "csv",
    ),
    "a header that is cast by colons": (
        f"df.selectExpr('headers[0].value::string AS h', 'value').select(F.from_json('h', 'a INT'), F.from_csv('value', 'a INT')).{TABLE}",
        "csv",
    ),
    "text that is cast by colons": (f"df.selectExpr(\"from_csv(decode(value, 'UTF-8')::string, 'a INT') v\").{TABLE}", "csv"),
    "base64 that is cast by colons": (
        f"df.selectExpr(\"from_csv(unbase64(value::string)::string, 'a INT') v\").{TABLE}", "(open)",
    ),
    "text in another character set with a type after it": (
        f"df.selectExpr(\"from_csv(decode(value, 'UTF-16')::varchar(10), 'a INT') v\").{TABLE}", "(open)",
    ),
    "XML": (f"df.select(F.from_xml(df.value, 'a INT')).{TABLE}", "(open)"),
    "either of two": (
        f"{AVRO}if flag():\n  df = df.select(from_avro('value', S))\nelse:\n  df = df.select(F.from_json('value', 'a INT'))\ndf.{TABLE}",
        "(open)",
    ),
}  # fmt: skip


def up_to_open(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: up_to_open(each) for key, each in value.items()}
    return "(open)" if str(value).startswith("(open)") else value


@pytest.mark.parametrize("shape", PAYLOADS)
def test_the_payload_format_is_that_of_the_program(shape: str) -> None:
    text, expected = PAYLOADS[shape]
    said = settings_of_program(ORDERS + text)
    [job] = imported(said)["jobs"].values()
    land = job["queries"]["land-orders"]
    assert up_to_open(land.get("format")) == expected
    assert not any("whether it is the payload" in each for each in said.notes)


UNCLEAR = {
    "a part": ("F.from_json(F.get_json_object(F.col('value').cast('string'), '$.Message'), 'a INT')", "json", "decodes a part of the payload again"),
    "a column of no known name": ("F.from_csv('text', 'a INT')", "csv", "does not tell whether it is the payload"),
    "a computed column": ("F.from_csv(F.col('a') + F.col('value'), 'a INT')", "csv", "does not tell whether it is the payload"),
}  # fmt: skip


@pytest.mark.parametrize("shape", UNCLEAR)
def test_a_call_that_may_not_decode_the_payload_is_noted(shape: str) -> None:
    call, payload, note = UNCLEAR[shape]
    said = settings_of_program(f"{ORDERS}df.select({call}).{TABLE}")
    assert said.payload == payload
    assert [each for each in said.notes if note in each and each.startswith("line 3 ")]


def test_the_payload_of_kinesis_is_its_column_data() -> None:
    text = (
        "from pyspark.sql import functions as F\ndf = spark.readStream.format('kinesis').option('streamName', 'clicks').load()\n"
        f"df.selectExpr('CAST(data AS STRING) AS text').select(F.from_csv('text', 'a INT')).{TABLE}"
    )
    said = settings_of_program(text)
    assert said.payload == "csv"
    assert not any("whether it is the payload" in each for each in said.notes)


def test_a_function_of_another_module_may_change_the_payload() -> None:
    text = (
        f"{ORDERS}from shop import unpack\ndf = unpack(df)\ndf.select(F.from_csv('value', 'a INT')).{TABLE}"
    )
    notes = settings_of_program(text).notes
    assert any("does not tell whether it is the payload" in each for each in notes)


def test_each_of_two_streams_has_its_format() -> None:
    text = (
        f"{TWO}{AVRO}from pyspark.sql import functions as F\na = a.select(from_avro('value', S))\n"
        f"b = b.select(F.from_json('value', 'a INT'))\na.join(b, 'id').{TABLE}"
    )
    [job] = imported(settings_of_program(text))["jobs"].values()
    assert [each.get("format") for each in job["queries"].values() if each["kind"] == "land"] == [
        "avro",
        None,
    ]


OPTIONS = {
    "JSON": (
        "F.from_json('value', 'a INT', {'timestampFormat': 'dd/MM/yyyy', 'mode': 'FAILFAST'})",
        ("json", ("timestampFormat", "mode")),
    ),
    "CSV of two characters": ("F.from_csv('value', 'a INT', {'sep': '||', 'quote': '~'})", ("csv", ("sep",))),
    "Avro": ("from_avro('value', S, {'mode': 'PERMISSIVE', 'datetimeRebaseMode': 'LEGACY'})", ("avro", ("datetimeRebaseMode",))),
    "Protobuf": ("from_protobuf('value', 'a.B', 'x.desc', {'emit.default.values': 'true'})", ("protobuf", ("emit.default.values",))),
}  # fmt: skip


@pytest.mark.parametrize("shape", OPTIONS)
def test_an_option_of_a_decoder_without_a_key_is_noted(shape: str) -> None:
    call, (kind, names) = OPTIONS[shape]
    text = (
        f"{ORDERS}{AVRO}from pyspark.sql.protobuf.functions import from_protobuf\ndf.select({call}).{TABLE}"
    )
    notes = [each for each in settings_of_program(text).notes if "has no key for its" in each]
    line = text.count("\n") + 1
    assert [each.partition(":")[0] for each in notes] == [f"line {line}"] * len(names)
    assert [
        each.partition(f": format {kind} has no key for its ")[2].partition(":")[0] for each in notes
    ] == [*names]


@pytest.mark.parametrize(
    ("delimiter", "kept"), [("", "csv"), ("'delimiter': '|', ", {"kind": "csv", "delimiter": "|"})]
)
def test_the_classification_of_glue_is_the_format_with_its_delimiter(delimiter: str, kept: Any) -> None:
    text = (
        f"options = {{{delimiter}'typeOfData': 'kinesis', 'streamARN': 'arn:aws:kinesis:us-east-1:123456789012:stream/orders', "
        "'classification': 'csv'}\n"
        "frame = glue.create_data_frame.from_options(connection_type='kinesis', connection_options=options)\n"
        "glue.forEachBatch(frame=frame, batch_function=write, options={'windowSize': '10 seconds'})"
    )
    said = settings_of_program(text)
    [job] = imported(said)["jobs"].values()
    assert job["queries"]["land-orders"]["format"] == kept
    assert not any("classification" in each or "delimiter" in each for each in said.notes)
