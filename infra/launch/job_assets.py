"""The files that travel with a job: entry script, archive, JVM jars, launch document."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path

from aws_cdk import Stack, Stage, Token
from aws_cdk.aws_s3_assets import Asset
from constructs import Construct

import millrace
from millrace.config.engines.versions import jar_set_name
from millrace.config.model import Environment, Job

from .carried_boto3 import boto3_files_by_archive_path
from .jars import locked_jars
from .launch_document import AssetUrls
from .launch_settings import connected_kafka_clusters, source_streams_of_job
from .project_files_to_pack import files_of_package, pipeline_files

_TOOL = Path(millrace.__file__).parent
_CORE = _TOOL / "etl"
_EARLIEST_ZIP_TIME = (1980, 1, 1, 0, 0, 0)


def add_job_file_assets(scope: Construct, *, environment: Environment, job: Job, root: Path) -> AssetUrls:
    """Make assets of the files that a job needs; return their S3 URLs.

    Parameters
    ----------
    root
        The project, which holds ``pipelines/`` and the resolved jars.

    Raises
    ------
    InfrastructureError
        A jar that the job needs has not been resolved.
    """
    archive = write_archive(
        root, _staging_folder(scope), boto3_files_by_archive_path() if job.carries_libraries else {}
    )
    return AssetUrls(
        entry_script=_add_file_asset(scope, "EntryScript", (_CORE / "main.py").resolve()),
        archive=_add_file_asset(scope, "Archive", archive),
        jars=tuple(
            _add_file_asset(scope, f"Jar-{jar.stem}", jar)
            for jar in jars_that_engine_lacks(environment, job, root)
        ),
    )


def _add_file_asset(scope: Construct, construct_id: str, file: Path) -> str:
    """Make an asset of a file; return its ``s3://`` URL as text that can be written into a file.

    CDK knows an asset's address as a template expression; inside a file no template
    is evaluated, so account and region of the stack are filled in here; each stack has both (``infra/stacks/base.py``).
    """
    # The CDK's own fingerprint also covers what a job does not know: with this one it can check what it loads (etl/main.py).
    content_digest = hashlib.sha256(file.read_bytes()).hexdigest()
    asset = Asset(scope, construct_id, path=str(file), asset_hash=content_digest)
    stack = Stack.of(asset)
    expression = stack.resolve(asset.s3_object_url)
    text = expression["Fn::Sub"] if isinstance(expression, dict) else expression
    return str(text.replace("${AWS::AccountId}", stack.account).replace("${AWS::Region}", stack.region))


def add_text_asset(scope: Construct, construct_id: str, name: str, text: str) -> str:
    """Write a text into the cloud assembly and make an asset of it; return its S3 URL."""
    assert not Token.is_unresolved(text), f"{name}: a file holds no template expression"
    path = _staging_folder(scope) / name
    path.write_text(text, encoding="utf-8")
    return _add_file_asset(scope, construct_id, path)


def jars_that_engine_lacks(environment: Environment, job: Job, root: Path) -> tuple[Path, ...]:
    """Return the JVM jars that the job's engine does not ship, of the job's Spark line, sorted by name.

    Glue ships Spark's Kafka source, MSK's IAM library and, with ``--datalake-formats``,
    Iceberg; EMR Serverless ships Iceberg and the Kinesis source but nothing for Kafka. Neither has
    Spark's Avro functions on its class path. Glue has PostgreSQL's JDBC driver, EMR Serverless none.

    Raises
    ------
    InfrastructureError
        The jars have not been resolved, or are not those of the lock.
    """
    read = source_streams_of_job(environment, job).values()
    needed = [
        *(each.jars for each in job.sinks),
        *(each.jars for each in job.formats),
        *(each.jars for each in read),
    ]
    reasons = {group: why for asked in needed for group, why in asked.items()}
    if connected_kafka_clusters(environment, job):
        reasons["kafka-client"] = "EMR Serverless lacks and a job with Kafka needs"
    jars = [
        jar
        for group, why in reasons.items()
        if group not in job.ships
        for jar in locked_jars(root, jar_set_name(group, job.spark_line), why)
    ]
    return tuple(sorted(jars, key=lambda jar: jar.name))


def write_archive(root: Path, folder: Path, others: Mapping[str, Path], *, core: Path = _CORE) -> Path:
    """Zip the core and ``pipelines/`` so that the same content always gives the same bytes.

    Entries are sorted, stored without compression (its result differs between zlib
    versions) and carry one date; compiled Python and hidden files stay outside.

    Parameters
    ----------
    root
        The project, whose ``pipelines/`` are packed.
    folder
        Folder of the archive.
    others
        Other files, by their path in the archive.
    core
        The package ``millrace.etl``: it has this name on the engines too, below a package that holds nothing else.

    Returns
    -------
    Path
        ``folder/job.zip``, with both packages at its root; ``job-with-libraries.zip`` when there are others.

    Raises
    ------
    InfrastructureError
        A file of ``pipelines/`` may not travel.
    """
    files = {
        "millrace/__init__.py": _TOOL / "__init__.py",
        **{f"millrace/etl/{file.relative_to(core).as_posix()}": file for file in files_of_package(core)},
        **{file.relative_to(root).as_posix(): file for file in pipeline_files(root)},
        **others,
    }
    archive = folder / ("job-with-libraries.zip" if others else "job.zip")
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as target:
        for name, file in sorted(files.items()):
            entry = zipfile.ZipInfo(name, _EARLIEST_ZIP_TIME)
            entry.external_attr = 0o644 << 16
            target.writestr(entry, file.read_bytes())
    return archive


def _staging_folder(scope: Construct) -> Path:
    stage = Stage.of(scope)
    assert stage is not None, "a stack without an app"
    folder = Path(stage.asset_outdir) / "launch"
    folder.mkdir(exist_ok=True)
    return folder
