"""A job's role reads its own assets of the bootstrap bucket only, and jars are those of the lock."""

from __future__ import annotations

import base64
import fnmatch
import hashlib
import json
import shutil
import zipfile
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest

from millrace.config import load
from millrace.etl.main import matches_digest_in_name
from millrace.infra.errors import InfrastructureError
from millrace.infra.launch import carried_boto3
from millrace.infra.launch.jars import locked_jars
from millrace.infra.launch.job_assets import jars_that_engine_lacks, write_archive
from tests.template.conftest import ROOT, Synthesis, Synthesise
from tests.template.test_security import listed


def statements(found: Synthesis, job: str) -> list[dict[str, Any]]:
    policies = [
        *found.resources("AWS::IAM::Policy", f"job-{job}").values(),
        *found.resources("AWS::IAM::ManagedPolicy", f"job-{job}").values(),
    ]
    return [each for p in policies for each in p["Properties"]["PolicyDocument"]["Statement"]]


def reached(found: Synthesis, job: str) -> list[str]:
    """Patterns of objects that a job's roles may read in the bootstrap's bucket."""
    return [
        text.removeprefix("arn:aws:s3:::")
        for each in statements(found, job)
        for resource in listed(each["Resource"])
        for text in [resource if isinstance(resource, str) else json.dumps(resource)]
        if "assets" in text
    ]


def test_a_job_reads_its_own_assets_and_nobody_elses(each: Synthesis) -> None:
    for job, document in each.documents.items():
        patterns = reached(each, job)
        assert patterns, job
        own = [document["entry_script"], document["archive"], *document["jars"]]
        for url in own:
            assert any(fnmatch.fnmatchcase(url.removeprefix("s3://"), pattern) for pattern in patterns), url
        others = [
            url
            for name, other in each.documents.items()
            if name != job
            for url in (other["entry_script"], other["archive"], *other["jars"])
        ]
        for url in others:
            assert not any(fnmatch.fnmatchcase(url.removeprefix("s3://"), pattern) for pattern in patterns), (
                url
            )
        assert not any(
            fnmatch.fnmatchcase("cdk-hnb659fds-assets-1-us-east-1/0.json", each_) for each_ in patterns
        )


def test_what_a_job_loads_is_named_by_its_content(each: Synthesis) -> None:
    for job, document in each.documents.items():
        url = each.templates[f"job-{job}"]["Outputs"]["LaunchDocument"]["Value"]
        for loaded in (url, document["entry_script"], document["archive"], *document["jars"]):
            content = (each.folder / f"asset.{loaded.rpartition('/')[2]}").read_bytes()
            assert matches_digest_in_name(loaded, content), loaded
            assert not matches_digest_in_name(loaded, content + b" "), loaded


def test_a_job_deletes_below_prefixes_of_its_own_name_alone(each: Synthesis) -> None:
    for job in each.documents:
        for statement in statements(each, job):
            if statement["Effect"] == "Deny" or "s3:DeleteObject" not in listed(statement["Action"]):
                continue
            for resource in listed(statement["Resource"]):
                text = resource if isinstance(resource, str) else json.dumps(resource)
                if "event-logs" in text or "checkpoints" in text:
                    assert f"/{job}/*" in text, (job, text)


def test_no_job_writes_a_metric_that_another_jobs_alarms_rest_on(each: Synthesis) -> None:
    watched: dict[str, str] = {}
    for alarm in each.resources("AWS::CloudWatch::Alarm").values():
        dimensions = {d["Name"]: d["Value"] for d in alarm["Properties"].get("Dimensions", [])}
        if "job" in dimensions:
            watched[dimensions["job"]] = alarm["Properties"]["Namespace"]
    assert len(set(watched.values())) == len(each.documents)
    for job, document in each.documents.items():
        result = [s for s in statements(each, job) if "cloudwatch:PutMetricData" in listed(s["Action"])]
        (spaces,) = [listed(s["Condition"]["StringEquals"]["cloudwatch:namespace"]) for s in result]
        assert set(spaces) - {"Glue"} == {watched[document["name"]]}, job
        assert ("Glue" in spaces) is (document["engine"] == "glue"), job


def test_a_jar_that_was_changed_after_set_up_is_no_asset(tmp_path: Path) -> None:
    environment = load("prod", root=ROOT)
    shutil.copytree(Path(ROOT, ".millrace/jars/kafka-client"), tmp_path / ".millrace/jars/kafka-client")
    jars = jars_that_engine_lacks(environment, environment.jobs["flights"], tmp_path)
    (tmp_path / ".millrace/jars/kafka-client/stray.jar").write_bytes(b"not of the lock")
    assert jars_that_engine_lacks(environment, environment.jobs["flights"], tmp_path) == jars
    with jars[0].open("ab") as changed:
        changed.write(b"\0")
    with pytest.raises(
        InfrastructureError, match=rf"{jars[0].name} is not the file that jars\.lock\.json pins"
    ):
        jars_that_engine_lacks(environment, environment.jobs["flights"], tmp_path)
    jars[0].unlink()
    with pytest.raises(InfrastructureError, match="run `make jars`"):
        locked_jars(tmp_path, "kafka-client", "a test needs")


def test_a_bootstrap_with_a_key_of_its_own_lets_jobs_read_their_files(
    dev: Synthesis, synthesise: Synthesise
) -> None:
    key = "arn:aws:kms:us-east-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"
    governance = dev.environment.governance.model_copy(update={"bootstrap_key": key})
    result = synthesise(dev.environment.model_copy(update={"governance": governance}))

    def readers(of: Synthesis, wanted: str, action: str) -> set[str]:
        return {
            part
            for part, each in of.statements()
            if action in listed(each["Action"]) and wanted in json.dumps(each["Resource"])
        }

    jobs = {f"job-{job}" for job in dev.environment.jobs}
    # Whoever reads the bootstrap's bucket, and nobody else, decrypts with its key, through S3 alone.
    assert readers(result, "-assets-", "s3:GetObject") == jobs
    assert readers(result, key, "kms:Decrypt") == jobs
    for _, each in result.statements():
        if key in json.dumps(each["Resource"]):
            assert each["Condition"] == {"StringEquals": {"kms:ViaService": "s3.us-east-1.amazonaws.com"}}
    assert readers(dev, key, "kms:Decrypt") == set()


def test_what_is_carried_to_an_engine_is_the_locks_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    files = carried_boto3.boto3_files_by_archive_path()
    # Its digests are those of the wheels, whose own record is a second witness.
    for name, wanted in json.loads(carried_boto3.LOCK.read_text()).items():
        installed = distribution(name)
        assert wanted["version"] == installed.version
        for file in installed.files or ():
            if (path := files.get(f"carried/{file.as_posix()}")) is not None and file.hash is not None:
                digest = base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest())
                assert digest.rstrip(b"=").decode() == file.hash.value, path
    changed = tmp_path / "session.py"
    changed.write_bytes(files["carried/boto3/session.py"].read_bytes() + b"import os\n")
    real = carried_boto3._package_files
    monkeypatch.setattr(
        carried_boto3,
        "_package_files",
        lambda name: real(name) | ({"carried/boto3/session.py": changed} if name == "boto3" else {}),
    )
    with pytest.raises(
        InfrastructureError,
        match=r"boto3 .* are not those of .* in the lock file, .* pip install --require-hashes",
    ):
        carried_boto3.boto3_files_by_archive_path()


def test_what_may_not_travel_is_refused_all_at_once(tmp_path: Path) -> None:
    """A private key, credentials, a link to a file outside with its content, and a size that every worker would load."""
    (tmp_path / "elsewhere").write_text("secret of the machine")
    root = tmp_path / "project"
    packed = root / "pipelines"
    (packed / "shop").mkdir(parents=True)
    fine = """password = row.password
token: str = options["token"]
password_column = columns["order_password_2"]
SAFE = "arn:aws:secretsmanager:us-east-1:111122223333:secret:shop-AbCdEf"
"""
    (packed / "shop" / "transforms.py").write_text(fine)
    (packed / "shop" / "again.py").symlink_to(packed / "shop" / "transforms.py")
    archive = write_archive(root, tmp_path, {})
    assert "pipelines/shop/again.py" in zipfile.ZipFile(archive).namelist()
    key = "AKIA" + "Q3EGRIYZ7JPFN4XS"
    begin = "-----BEGIN " + "PRIVATE KEY-----"
    (packed / "credentials.json").write_text("{}")
    (packed / "server.PEM").write_bytes(b"\0")
    (packed / "linked.txt").symlink_to(tmp_path / "elsewhere")
    (packed / "folder").symlink_to(tmp_path)
    (packed / "wide.txt").write_text("password: hunter2hunter2", encoding="utf-16")
    (packed / "shop" / "login.py").write_text('connect(user="x", password="hunter2hunter2")')
    (packed / "notes").write_text(f"x\n{begin}\n")
    (packed / "shop" / "client.py").write_text(f"# a client\nID = '{key}'\n")
    (packed / "shop" / "options.json").write_text('{"url": "x", "db_password": "hunter2hunter2"}')
    with pytest.raises(InfrastructureError) as caught:
        write_archive(root, tmp_path, {})
    told = str(caught.value).splitlines()[1:]
    assert [line.partition(": ")[0] for line in told] == [
        "pipelines/credentials.json",
        "pipelines/folder",
        "pipelines/linked.txt",
        "pipelines/notes",
        "pipelines/server.PEM",
        "pipelines/shop/client.py",
        "pipelines/shop/login.py",
        "pipelines/shop/options.json",
        "pipelines/wide.txt",
    ]
    assert "line 2 holds a secret" in told[3]
    assert "leads out of the project" in told[2]
    for left in (
        "credentials.json",
        "server.PEM",
        "linked.txt",
        "folder",
        "wide.txt",
        "shop/login.py",
        "notes",
        "shop/client.py",
        "shop/options.json",
    ):
        (packed / left).unlink()
    with (packed / "model.bin").open("wb") as file:
        file.truncate(60_000_000)
    with pytest.raises(
        InfrastructureError, match=r"60,000,\d+ bytes; allowed: 33,554,432.*model\.bin \(60,000,000\)"
    ):
        write_archive(root, tmp_path, {})
