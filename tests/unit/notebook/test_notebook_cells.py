"""Cells of a generated notebook."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pytest

from millrace.cli.run.notebook import build_notebook
from millrace.config import Names, environment_names, load
from millrace.config.kafka.login import PasswordLogin
from millrace.etl.engines.glue_kinesis_connector import Glue
from millrace.etl.sources.kafka import login as kafka_login
from millrace.infra.launch.launch_settings import job_settings
from millrace.sizing import plan

ROOT = Path(__file__).parents[3]


def code(notebook: dict[str, Any]) -> list[str]:
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


@pytest.fixture(autouse=True)
def _in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize("name", environment_names(ROOT))
def test_every_job_has_a_notebook_of_valid_python(name: str) -> None:
    environment = load(name, root=ROOT)
    for job in environment.jobs:
        notebook = build_notebook(environment, job, {})
        assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
        assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
        for text in code(notebook):
            if not text.startswith("%"):
                ast.parse(text)


def test_magics_are_of_the_job_and_its_plan() -> None:
    environment = load("prod", root=ROOT)
    magics, configure = code(build_notebook(environment, "positions", {}))[:2]
    workers = plan(environment).jobs["positions"].max_workers.value
    assert magics.splitlines()[0] == "%streaming"
    for line in ("%glue_version 5.1", "%worker_type G.2X", f"%number_of_workers {workers}"):
        assert line in magics.splitlines()
    arguments = json.loads(configure.removeprefix("%%configure\n"))
    assert arguments["--enable-spark-ui"] == arguments["--enable-spark-ui-legacy-path"] == "true"
    assert arguments["--spark-event-logs-path"].startswith("s3://flights-prod-event-logs-")
    assert "spark.sql.catalog.lake=" in arguments["--conf"]


def test_the_source_cell_has_the_options_of_the_core() -> None:
    environment = load("prod", root=ROOT)
    names = Names(environment, environment.account or "")
    settings = job_settings(environment, plan(environment).jobs["departures"], names)
    wanted = Glue().kinesis_options(settings.queries[0].routes[0].source, None)
    source = code(build_notebook(environment, "departures", {}))[3]
    tree = ast.parse(source)
    assert isinstance(tree.body[0], ast.Assign)
    assert ast.literal_eval(tree.body[0].value) == wanted


def test_brokers_are_looked_up_unless_they_are_given() -> None:
    environment = load("prod", root=ROOT)
    looked_up = "\n".join(code(build_notebook(environment, "flights", {})))
    assert "brokers('flights-prod-operations', 'BootstrapBrokerStringSaslIam')" in looked_up
    assert "AWS_MSK_IAM" in looked_up
    given = {
        "kafka.operations.bootstrap": "127.0.0.1:1",
        "kafka.operations.authentication": "none",
    }
    bound = "\n".join(code(build_notebook(environment, "flights", given)))
    assert "'kafka.bootstrap.servers': '127.0.0.1:1'" in bound
    assert "AWS_MSK_IAM" not in bound
    assert "boto3" not in bound


def test_a_secret_is_read_where_the_notebook_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    arn = "arn:aws:secretsmanager:us-east-1:111122223333:secret:AmazonMSK_shop-AbCdEf"
    login = PasswordLogin(kind="scram-sha-512", secret=arn)
    environment = load("prod", root=ROOT)
    cluster = environment.kafka["operations"].model_copy(update={"authentication": login})
    spoilt = environment.model_copy(update={"kafka": {"operations": cluster}})
    text = next(each for each in code(build_notebook(spoilt, "flights", {})) if "OPTIONS = " in each)
    assert "'BootstrapBrokerStringSaslScram'" in text
    # What reads, without the part that needs a session and AWS.
    signing = text[text.index("import json") : text.index("records = ")]
    held = {"username": 'u"', "password": "p\\"}
    client = SimpleNamespace(get_secret_value=lambda **_: {"SecretString": json.dumps(held)})
    monkeypatch.setattr(boto3, "client", lambda *_, **__: client)
    space: dict[str, Any] = {"OPTIONS": {}}
    exec(signing, space)  # noqa: S102 - what was just generated
    assert space["OPTIONS"] == kafka_login.options_with_secret("scram-sha-512", held)
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    assert space["OPTIONS"]["kafka.sasl.jaas.config"] == (
        f'{module} required username="u\\"" password="p\\\\";'
    )
