"""Payload formats: what ``infra`` writes is what ``etl`` reads, and Avro's jar travels with the jobs that need it."""

from __future__ import annotations

from pathlib import Path

import pytest

from etl.settings import AvroFormat, CsvFormat, ProtobufFormat, parse
from infra.assets import missing_jars
from infra.errors import InfrastructureError
from infra.settings import job_settings
from millrace.config import Environment, Names, load
from millrace.config import formats as asked
from millrace.sizing import plan
from tests.template.conftest import ROOT, Synthesis
from tests.template.test_contract import plain

FORMATS = {
    "json": (asked.JsonFormat(), "json"),
    "text": (asked.TextFormat(kind="text"), "text"),
    "csv": (asked.CsvFormat(kind="csv", delimiter=";", null="NA"), CsvFormat("csv", ";", '"', "NA")),
    "avro": (asked.AvroFormat(kind="avro"), AvroFormat("avro", "none", None, None, None)),
    "registry": (
        asked.AvroFormat(kind="avro", framing="confluent", registry="https://r.example", subject="s"),
        AvroFormat("avro", "confluent", None, "https://r.example", "s"),
    ),
    "protobuf": (
        asked.ProtobufFormat(kind="protobuf", message="shop.Order"),
        ProtobufFormat("protobuf", "shop.Order"),
    ),
}


def with_format(form: asked.PayloadFormat) -> Environment:
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
    assert settings.queries[0].format == read
    assert plain(settings) == written


def test_avros_jar_travels_with_the_job(prod: Synthesis) -> None:
    [jar] = prod.documents["ground"]["jars"]
    assert (prod.folder / f"asset.{jar.rsplit('/', 1)[1]}").stat().st_size > 100_000
    assert prod.the("AWS::Glue::Job", "job-ground")["DefaultArguments"]["--extra-jars"] == jar
    assert "--extra-jars" not in prod.the("AWS::Glue::Job", "job-departures")["DefaultArguments"]


def test_other_jobs_have_no_jar_and_a_missing_one_is_one_clear_message(tmp_path: Path) -> None:
    with_csv, with_avro = with_format(FORMATS["csv"][0]), with_format(FORMATS["avro"][0])
    assert missing_jars(with_csv, with_csv.jobs["clicks"], tmp_path) == ()
    with pytest.raises(InfrastructureError, match="run `make jars`"):
        missing_jars(with_avro, with_avro.jobs["clicks"], tmp_path)
