"""The flights job synthesises on every engine version, with the jars of its Spark line only."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from millrace.config import load
from millrace.config.engines import KINDS
from millrace.config.engines.versions import VERSIONS, EngineVersion, jar_set_name
from tests.template.conftest import ROOT, Synthesise


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
def test_a_kafka_job_has_the_jars_that_its_engine_lacks(
    version: EngineVersion, synthesise: Synthesise, tmp_path: Path
) -> None:
    file = tmp_path / "lines.yaml"
    job = {"engine": version.engine, "version": version.name}
    file.write_text(json.dumps({"extends": "local", "jobs": {"flights": job}}))
    result = synthesise(load(str(file), root=ROOT))
    document = result.documents["flights"]
    assert (document["engine"], document["engine_version"]) == (version.engine, version.name)
    brought = {
        hashlib.sha256((result.folder / f"asset.{url.rsplit('/', 1)[1]}").read_bytes()).hexdigest()
        for url in document["jars"]
    }
    lacking = {"kafka-client"} - KINDS[version.engine].ships
    locked = json.loads((ROOT / "toolchain" / "jars.lock.json").read_text())
    assert brought == {
        jar["sha256"] for name in lacking for jar in locked[jar_set_name(name, version.spark_line)]
    }
