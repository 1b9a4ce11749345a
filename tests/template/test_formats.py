"""Payload formats: what ``infra`` writes is what ``etl`` reads, and Avro's jar travels with the jobs that need it."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.config import Environment, Names, load
from millrace.config.formats import PayloadFormat, avro, csv, json, protobuf, text
from millrace.etl.formats.avro import AvroFormat
from millrace.etl.formats.csv import CsvFormat
from millrace.etl.formats.json import JsonFormat
from millrace.etl.formats.protobuf import ProtobufFormat
from millrace.etl.formats.text import TextFormat
from millrace.etl.launch.settings import parse
from millrace.infra.assets import missing_jars
from millrace.infra.errors import InfrastructureError
from millrace.infra.launch_settings import job_settings
from millrace.sizing import plan
from tests.documents import plain
from tests.template.conftest import ROOT, Synthesis

FORMATS = {
    "json": (json.JsonFormat(), JsonFormat()),
    "text": (text.TextFormat(kind="text"), TextFormat()),
    "csv": (csv.CsvFormat(kind="csv", delimiter=";", null="NA"), CsvFormat("csv", ";", '"', "NA")),
    "avro": (avro.AvroFormat(kind="avro"), AvroFormat("avro", "none", None, None, None)),
    "registry": (
        avro.AvroFormat(kind="avro", framing="confluent", registry="https://r.example", subject="s"),
        AvroFormat("avro", "confluent", None, "https://r.example", "s"),
    ),
    "protobuf": (
        protobuf.ProtobufFormat(kind="protobuf", message="shop.Order"),
        ProtobufFormat("protobuf", "shop.Order"),
    ),
}


def with_format(form: PayloadFormat) -> Environment:
    environment = load("minimal", root=ROOT)
    job = environment.jobs["clicks"]
    query = job.queries["land-clicks"].model_copy(update={"format": form})
    jobs = {"clicks": job.model_copy(update={"queries": {"land-clicks": query}})}
    return environment.model_copy(update={"jobs": jobs})


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_survives_the_core_unchanged(name: str) -> None:
    form, read = FORMATS[name]
    environment = with_format(form)
    written = job_settings(environment, plan(environment).jobs["clicks"], Names(environment, "111122223333"))
    settings = parse(written)
    assert settings.queries[0].routes[0].format == read
    assert plain(settings) == written


def test_avros_jar_travels_with_the_job(prod: Synthesis) -> None:
    [jar] = prod.documents["ground"]["jars"]
    assert (prod.folder / f"asset.{jar.rsplit('/', 1)[1]}").stat().st_size > 100_000
    assert prod.the("AWS::Glue::Job", "job-ground")["NonOverridableArguments"]["--extra-jars"] == jar
    assert "--extra-jars" not in prod.the("AWS::Glue::Job", "job-departures")["NonOverridableArguments"]


def test_other_jobs_have_no_jar_and_a_missing_one_is_one_clear_message(tmp_path: Path) -> None:
    with_csv, with_avro = with_format(FORMATS["csv"][0]), with_format(FORMATS["avro"][0])
    assert missing_jars(with_csv, with_csv.jobs["clicks"], tmp_path) == ()
    with pytest.raises(InfrastructureError, match="run `make jars`"):
        missing_jars(with_avro, with_avro.jobs["clicks"], tmp_path)
