"""Avro's jar is an asset of the jobs that need it, and of no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.config import Environment, load
from millrace.config.formats import PayloadFormat
from millrace.config.formats.avro import AvroFormat
from millrace.config.formats.csv import CsvFormat
from millrace.infra.errors import InfrastructureError
from millrace.infra.launch.job_assets import jars_that_engine_lacks
from tests.template.conftest import ROOT, Synthesis


def with_format(form: PayloadFormat) -> Environment:
    environment = load("minimal", root=ROOT)
    job = environment.jobs["clicks"]
    query = job.queries["land-clicks"].model_copy(update={"format": form})
    jobs = {"clicks": job.model_copy(update={"queries": {"land-clicks": query}})}
    return environment.model_copy(update={"jobs": jobs})


def test_avros_jar_travels_with_the_job(prod: Synthesis) -> None:
    [jar] = prod.documents["ground"]["jars"]
    assert (prod.folder / f"asset.{jar.rsplit('/', 1)[1]}").stat().st_size > 100_000
    assert prod.the("AWS::Glue::Job", "job-ground")["NonOverridableArguments"]["--extra-jars"] == jar
    assert "--extra-jars" not in prod.the("AWS::Glue::Job", "job-departures")["NonOverridableArguments"]


def test_other_jobs_have_no_jar_and_a_missing_one_is_one_clear_message(tmp_path: Path) -> None:
    with_csv, with_avro = with_format(CsvFormat(kind="csv")), with_format(AvroFormat(kind="avro"))
    assert jars_that_engine_lacks(with_csv, with_csv.jobs["clicks"], tmp_path) == ()
    with pytest.raises(InfrastructureError, match="run `make jars`"):
        jars_that_engine_lacks(with_avro, with_avro.jobs["clicks"], tmp_path)
