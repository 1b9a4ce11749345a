"""A format from another distribution needs two files, two registry entries and no change of the product.

It is validated, planned, synthesised, records of it are made, and a Spark job decodes and lands them.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from millrace.etl.formats.decoding import decoder_per_topic
from millrace.etl.launch.formats import Format
from millrace.etl.launch.settings import LandSettings, parse_job_settings
from millrace.etl.launch.typed_json import SettingsError
from millrace.etl.record.tables import Table
from tests.spark.source_batches import Events, frame, kafka_rows, lander
from tests.spark.toy_projects import project, refused, registered, synthesised, tool

# PySpark 3.5 compares versions of pandas in a way that Python calls old.

ASKED = '''
"""What may be asked for."""
from collections.abc import Mapping
from typing import ClassVar, Literal

import toy_launch
from pydantic import Field

from millrace.config.formats.base import FormatConfig


class ToyFormat(FormatConfig):
    """Pairs of name and value."""

    suffix = ".toy"
    in_python = True
    jars: ClassVar[Mapping[str, str]] = {"avro": "a job with toys needs"}

    kind: Literal["toy"]
    between: str = Field(default="|", max_length=1, description="What stands between pairs.", examples=[";"])

    def launch_settings(self):
        return toy_launch.ToyFormat(self.between)

    def check_schema_text(self, use, text):
        if not text.split():
            yield use.wrong_schema_finding("a name at least")


def made(form, path):
    from pyspark.sql.types import StringType, StructField, StructType
    from millrace.sandbox.payloads import PayloadWriters

    schema = StructType([StructField(name, StringType()) for name in path.read_text().split()])

    def encode(values):
        return form.between.join(f"{name}={value}" for name, value in values.items()).encode()

    return PayloadWriters(schema, encode, lambda values, choose: (b"no pair", "broken"))
'''

LAUNCH = '''
"""What both sides know."""
from dataclasses import dataclass
from typing import Literal

from millrace.etl.launch.formats import Format


@dataclass(frozen=True)
class ToyFormat(Format):
    MODULE = "toy_runs"

    between: str
    kind: Literal["toy"] = "toy"
'''

RUNS = '''
"""What runs."""
from dataclasses import dataclass

from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from millrace.etl.formats.decoding import decoder_output_and_checks as shared
from millrace.etl.formats import schema_files
from millrace.etl.formats.base import Decoder


def open_decoder(form, spark, schema, open_up_to):
    names = schema_files.read_text_schema_file(spark, schema).split()
    return Toy(form, StructType([StructField(name, StringType()) for name in names]))


@dataclass(frozen=True)
class Toy(Decoder):
    settings: object
    schema: StructType

    def decode(self, rows):
        pairs = F.str_to_map(F.col("payload").cast("string"), F.lit(f"[{self.settings.between}]"), F.lit("="))
        record = F.struct(*(pairs[name].alias(name) for name in self.schema.fieldNames()))
        bad = F.coalesce(F.exists(F.map_values(pairs), lambda value: value.isNull()), F.lit(True))
        held = rows.withColumns(
            {"_record": record, "_verdict": F.when(bad, shared.dead_letter_verdict("decode", "a pair without a value"))}
        )
        return shared.decoded_or_dead_letter(held, self.schema, "_record", "_verdict")
'''

ENVIRONMENT = """\
project: pairs
account: "111122223333"
streams:
  clicks: {kind: kinesis, traffic: {records_per_second: 2000, peak_factor: 2, record_size: 1KiB}}
jobs:
  clicks:
    engine: glue
    latency: 5m
    rate: {records_per_second_per_core: 5000}
    queries:
      land: {kind: land, source: clicks, table: clicks_landed, schema: pipelines/pairs.toy, format: FORMAT}
"""

RECORDS = """
import json, random, sys
from pathlib import Path
from millrace.config import load
from millrace.sandbox import payloads

query = load("toy").jobs["clicks"].queries["land"]
made = payloads.payload_writers_of_query(query, Path.cwd())
chosen = [{"page": str(n), "user": f"u{n}"} for n in range(5)]
print(json.dumps([made.encode(each).decode() for each in chosen] + [made.spoil({}, random.Random(1))[0].decode()]))
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = project(
        tmp_path,
        environment=ENVIRONMENT.replace("FORMAT", '{kind: toy, between: ";"}'),
        entry="millrace.formats toy toy_asked:ToyFormat\nmillrace.payloads toy toy_asked:made",
        asked=ASKED,
        launch=LAUNCH,
        runs=RUNS,
    )
    (made / "pipelines").unlink()
    (made / "pipelines").mkdir()
    (made / "pipelines" / "pairs.toy").write_text("page\nuser\n")
    return made


@pytest.mark.slow
def test_a_mistake_in_it_is_told_as_any_other(home: Path) -> None:
    (home / "pipelines" / "pairs.toy").write_text("\n")
    (home / "environments" / "toy.yaml").write_text(
        ENVIRONMENT.replace("FORMAT", "{kind: toy, between: abc, colour: red}")
    )
    told = refused(home)
    assert "jobs.clicks.queries.land.format.colour" in told
    assert "one of kind, between" in told
    assert "jobs.clicks.queries.land.format.between" in told
    (home / "environments" / "toy.yaml").write_text(ENVIRONMENT.replace("FORMAT", "toy"))
    told = refused(home)
    assert "a name at least" in told
    (home / "environments" / "toy.yaml").write_text(ENVIRONMENT.replace("FORMAT", "toyy"))
    assert "did you mean toy?" in refused(home)
    (home / "environments" / "toy.yaml").write_text(ENVIRONMENT.replace("FORMAT", "csv"))
    assert "a .ddl file below pipelines/" in refused(home)


@pytest.mark.slow
def test_it_is_validated_planned_synthesised_made_and_decoded(
    home: Path, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = synthesised(home)
    job = made.job
    (deployed,) = (each for each in job["Resources"].values() if each["Type"] == "AWS::Glue::Job")
    assert "--extra-jars" in deployed["Properties"]["NonOverridableArguments"]
    settings = json.loads(made.launch_document)["settings"]
    assert settings["queries"][0]["routes"][0]["format"] == {"kind": "toy", "between": ";"}
    done = tool(home, "-c", RECORDS)
    assert done.returncode == 0, done.stderr
    payloads = [text.encode() for text in json.loads(done.stdout)]

    # The core does not know it, until its registry does.
    with pytest.raises(SettingsError, match="'toy' is not one of 'json'"):
        parse_job_settings(settings)
    registered(monkeypatch, home, Format.KINDS, "toy_launch:ToyFormat")
    (query,) = parse_job_settings(settings).queries
    assert isinstance(query, LandSettings)
    result = decoder_per_topic.route_decoder(
        spark,
        dataclasses.replace(
            query.routes[0],
            schema=str(home / "pipelines" / "pairs.toy"),
            decompress_up_to=1 << 20,
            redact=("user",),
        ),
    )
    table, events = Table.from_name("lake", query.table), Events()
    write = dataclasses.replace(lander(spark, table, events, ddl="page STRING, user STRING"), decoder=result)
    write(frame(spark, kafka_rows(0, 0, payloads)), 0)
    assert events.accounts() == (6, 0, 6, 5, 1)
    rows = spark.table(str(table)).orderBy("_id").collect()
    assert [(row["page"], row["user"], row["_error"] is None) for row in rows] == [
        *((str(n), None, True) for n in range(5)),
        (None, None, False),
    ]
    assert [(row["_stage"], row["_bytes"]) for row in rows][-1] == ("decode", None)
