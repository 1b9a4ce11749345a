"""Names, logical ids and the bytes of the archive stay the same between versions."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millrace.config import Environment, load
from millrace.infra.errors import InfrastructureError
from millrace.infra.launch.job_assets import jars_that_engine_lacks, write_archive
from millrace.infra.stacks.base import TAGGED_FOR_GOOD
from tests.template.cloudformation_rules import at, created_only
from tests.template.conftest import ROOT, Synthesis, Synthesise


def ids(synthesis: Synthesis) -> set[tuple[str, str]]:
    return {(part, logical) for part, t in synthesis.templates.items() for logical in t["Resources"]}


def made_anew(before: Synthesis, after: Synthesis) -> Iterator[str]:
    """Resources, each with the property that a change of the environment would make it again for."""
    for part, template in before.templates.items():
        for logical, old in template["Resources"].items():
            new = after.templates[part]["Resources"][logical]
            if old.get("Properties") != new.get("Properties"):
                for path in created_only(old["Type"]):
                    if at(old["Properties"], path) != at(new["Properties"], path):
                        yield f"{part}/{logical}: {'/'.join(path)}"


def with_fan_out_and_clusters(environment: Environment, version: str, tags: dict[str, str]) -> Environment:
    """Environment dev with a query on fan-out, a serverless cluster, a Kafka version and tags."""
    assert environment.value_locations.tree is not None
    plain = environment.value_locations.tree.to_json()
    plain.pop("extends", None)
    plain.pop("history", None)
    plain["tags"] = tags
    plain["kafka"]["main"]["version"] = version
    plain["kafka"]["bursts"] = {"kind": "msk", "tier": "serverless"}
    plain["jobs"]["departures"]["queries"]["land-departures"]["fan_out"] = True
    return Environment.model_validate_json(json.dumps({"name": "dev", **plain}))


@pytest.mark.slow
def test_tags_and_kafka_versions_change_without_making_anything_anew(synthesise: Synthesise) -> None:
    dev = load("dev", root=ROOT)
    before = synthesise(with_fan_out_and_clusters(dev, "3.8.x", {"owner": "alice"}))
    after = synthesise(with_fan_out_and_clusters(dev, "3.9.x", {"owner": "bob", "stage": "dev"}))
    assert list(made_anew(before, after)) == []
    cluster = after.the("AWS::MSK::Cluster", "kafka")
    assert cluster["KafkaVersion"] == "3.9.x"
    assert cluster["Tags"]["stage"] == "dev"
    # The bill is asked by these; they cannot change without the names.
    for kind in TAGGED_FOR_GOOD:
        ((path, resource),) = after.resources(kind).items()
        tags = resource["Properties"]["Tags"]
        tags = tags if isinstance(tags, dict) else {tag["Key"]: tag["Value"] for tag in tags}
        own = {"millrace:project": "flights", "millrace:environment": "dev"}
        assert tags == own | ({"millrace:stream": "departures"} if "streams" in path else {}), path


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("copy")
    for package in ("etl", "pipelines"):
        shutil.copytree(ROOT / package, root / package)
    return root


@pytest.mark.slow
def test_another_stream_leaves_every_other_resource_alone(prod: Synthesis, synthesise: Synthesise) -> None:
    environment = prod.environment
    streams = {"arrivals": environment.streams["departures"], **environment.streams}
    more = synthesise(environment.model_copy(update={"streams": streams}))
    added = ids(more) - ids(prod)
    assert ids(prod) <= ids(more)
    assert {part for part, _ in added} == {"streams", "observability"}
    for part in prod.templates:
        if part not in ("streams", "observability"):
            assert more.templates[part] == prod.templates[part], part


def test_another_job_leaves_the_other_jobs_alone(prod: Synthesis, synthesise: Synthesise) -> None:
    environment = prod.environment
    fewer = synthesise(
        environment.model_copy(update={"jobs": {n: j for n, j in environment.jobs.items() if n != "ground"}})
    )
    assert "job-ground" not in fewer.templates
    gone = ids(prod) - ids(fewer)
    assert ids(fewer) <= ids(prod)
    assert {part for part, _ in gone} == {"job-ground", "observability"}


def test_the_same_environment_gives_the_same_templates(local: Synthesis, synthesise: Synthesise) -> None:
    assert synthesise(load("local", root=ROOT)).templates == local.templates


def test_stacks_are_named_after_their_part(each: Synthesis) -> None:
    expected = {"storage", "lifecycle", "observability"}
    expected |= set() if each.plan.network.egress.value == "none" else {"network"}
    expected |= {f"job-{job}" for job in each.environment.jobs}
    assert expected <= set(each.templates) <= expected | {"streams", "kafka", "history", "history-image"}


def test_every_resource_that_can_carries_the_tags(prod: Synthesis) -> None:
    for path, stream in prod.resources("AWS::Kinesis::Stream").items():
        tags = {tag["Key"]: tag["Value"] for tag in stream["Properties"]["Tags"]}
        assert tags.items() >= prod.environment.tags.items(), path
        assert tags["millrace:environment"] == "prod"
        assert prod.names.stream(tags["millrace:stream"]) == stream["Properties"]["Name"]
    job: dict[str, Any] = prod.the("AWS::Glue::Job", "job-ground")
    assert job["Tags"]["millrace:job"] == "ground"


def test_the_archive_depends_on_nothing_but_its_content(copy: Path, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first = write_archive(copy, tmp_path / "a", {}, core=copy / "etl").read_bytes()
    compiled = copy / "etl" / "__pycache__"
    compiled.mkdir(exist_ok=True)
    (compiled / "extra.cpython-311.pyc").write_bytes(b"compiled")
    (copy / "pipelines" / "stray.pyc").write_bytes(b"compiled")
    (copy / "pipelines" / ".hidden").write_text("editor")
    (copy / "etl" / "main.py").touch()
    assert write_archive(copy, tmp_path / "b", {}, core=copy / "etl").read_bytes() == first
    (copy / "etl" / "main.py").write_bytes((copy / "etl" / "main.py").read_bytes() + b"\n")
    assert write_archive(copy, tmp_path / "b", {}, core=copy / "etl").read_bytes() != first


def test_the_archive_holds_packages_and_schemas_at_its_root(tmp_path: Path) -> None:
    with zipfile.ZipFile(write_archive(ROOT, tmp_path, {})) as archive:
        held = set(archive.namelist())
    assert {
        "millrace/__init__.py",
        "millrace/etl/__init__.py",
        "millrace/etl/main.py",
        "pipelines/__init__.py",
    } <= held
    assert "pipelines/flights/schemas/flight.ddl" in held
    assert {name.split("/", 1)[0] for name in held} == {"millrace", "pipelines"}


def test_missing_jars_are_one_clear_message(tmp_path: Path) -> None:
    environment = load("prod", root=ROOT)
    with pytest.raises(InfrastructureError, match="run `make jars`"):
        jars_that_engine_lacks(environment, environment.jobs["flights"], tmp_path)


@pytest.mark.parametrize("version", ["emr-7.13.0", "emr-spark-8.0.0"])
def test_jars_are_those_of_the_spark_that_the_release_runs(version: str) -> None:
    environment = load("prod", root=ROOT)
    job = environment.jobs["flights"].model_copy(update={"version": version})
    names = [jar.name for jar in jars_that_engine_lacks(environment, job, ROOT)]
    line = job.spark_line
    pinned = {
        f"spark-sql-kafka-0-10_{line.scala}-{line.spark}.jar",
        f"kafka-clients-{line.libraries['kafka_clients']}.jar",
        f"commons-pool2-{line.libraries['commons_pool']}.jar",
    }
    assert pinned <= set(names)
    assert all(f"_{line.scala}-" in name for name in names if "_2." in name)


def test_engines_that_lack_nothing_need_no_jars(tmp_path: Path) -> None:
    environment = load("prod", root=ROOT)
    assert jars_that_engine_lacks(environment, environment.jobs["departures"], tmp_path) == ()
