"""Checks of checkpoints against a new version of a job, before anything is stopped."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from millrace.config import find_root
from millrace.config.engines import KINDS
from millrace.etl.checkpoints import manifest, manifest_changes
from millrace.etl.launch import engine_interface_and_registry, settings
from millrace.etl.launch.typed_json import SettingsError
from millrace.lifecycle.account.deployed_environment import DeployedEnvironment
from millrace.lifecycle.aws_error_messages import translating_aws_errors
from millrace.lifecycle.deploy import launch_document_in_assembly
from millrace.lifecycle.jobs.checkpoints import JobCheckpoints


class LaunchDocumentOfOtherReleaseError(ValueError):
    """A launch document of another release of the core; the message says what this one cannot read."""


def checkpoint_lines_of_jobs(
    check: Callable[[DeployedEnvironment, str, Mapping[str, Any]], list[str]],
    aws: DeployedEnvironment,
    assembly: Path,
    jobs: Sequence[str],
) -> list[str]:
    """Return what a check of a job's checkpoints says of each version in an assembly.

    Parameters
    ----------
    check
        :func:`checkpoint_refusals` or :func:`irreversible_checkpoint_lines`.
    assembly
        The folder that ``cdk synth`` wrote.
    jobs
        Jobs that would be started again.
    """
    return [
        line
        for job in jobs
        for line in check(aws, job, launch_document_in_assembly(aws.names, assembly, job))
    ]


def irreversible_checkpoint_lines(
    aws: DeployedEnvironment, job: str, document: Mapping[str, Any]
) -> list[str]:
    """Return a line for each checkpoint of a job that its last writer cannot continue from after a launch document ran."""
    return [
        f"job {job}, query {query}: on this checkpoint it cannot go back: {'; '.join(map(str, incompatible))}"
        for query, _, old, new in _queries_with_old_and_new_manifests(aws, job, document)
        # A version that is refused anyway is reported by `checkpoint_refusals`.
        if isinstance(old, manifest.Manifest)
        and not manifest_changes.incompatible_changes(manifest_changes.find_changes(old, new))
        and (incompatible := manifest_changes.incompatible_changes(manifest_changes.find_changes(new, old)))
    ]


def checkpoint_refusals(aws: DeployedEnvironment, job: str, document: Mapping[str, Any]) -> list[str]:
    """Return a line for each checkpoint of a job that a launch document cannot continue from, by the core's own rules.

    Parameters
    ----------
    document
        Launch document that would start the job. The grouping of a transform is known only at the start.

    Raises
    ------
    LaunchDocumentOfOtherReleaseError
        The document is of a release whose settings this one cannot read.
    AwsError
        AWS refused a call.
    """
    lines: list[str] = []
    for query, where, old, new in _queries_with_old_and_new_manifests(aws, job, document):
        if isinstance(old, manifest.ManifestError):
            lines.append(f"job {job}, query {query}: the manifest of the checkpoint {where}: {old}")
            continue
        wrong = manifest_changes.incompatible_changes(manifest_changes.find_changes(old, new))
        if wrong:
            out = manifest_changes.advice_for_changes(aws.names.environment.name, job, query, wrong)
            lines.append(
                f"job {job}, query {query}: it cannot continue from the checkpoint {where}: "
                f"{'; '.join(map(str, wrong))}; {out}"
            )
    return lines


def _queries_with_old_and_new_manifests(
    aws: DeployedEnvironment, job: str, document: Mapping[str, Any]
) -> Iterator[tuple[str, str, manifest.Manifest | manifest.ManifestError, manifest.Manifest]]:
    """Yield each query with a manifest: name, checkpoint, manifest, and the manifest that a launch document would write."""

    def schema_bytes_or_none(path: str) -> bytes | None:
        file = find_root() / path
        return file.read_bytes() if file.is_file() else None

    try:
        parsed = settings.parse_job_settings(document["settings"])
        conf: Callable[[str], str | None] = document["spark"].get
        planned = KINDS[document["engine"]].spark_of_version(document["engine_version"])
    except (KeyError, SettingsError) as error:
        raise LaunchDocumentOfOtherReleaseError(
            f"its launch document has the format of another release of Millrace ({error})"
        ) from error
    checkpoints = JobCheckpoints(aws.client("s3"), aws.names, job)
    for query in parsed.queries:
        with translating_aws_errors(f"cannot read the checkpoint of {job}/{query.name}"):
            text = checkpoints.manifest_text(query.name)
        if text is None:
            continue
        old: manifest.Manifest | manifest.ManifestError
        try:
            old = manifest.parse_manifest(text)
        except manifest.ManifestError as error:
            old = error
        here, spark = parsed, planned
        if isinstance(old, manifest.Manifest) and old.engine == "sandbox":
            # A sandbox that replaces an engine writes manifests for its own connector.
            here, spark = dataclasses.replace(parsed, engine="sandbox"), old.spark
        new = manifest.make_manifest(here, query, spark=spark, conf=conf, schema_text=schema_bytes_or_none)
        yield query.name, f"{aws.names.checkpoints_url(job)}/{query.name}", old, new


def checkpoint_refusal_on_other_job(
    manifest_text: str, environment: str, job: str, query: str, *, engine: str, spark: str
) -> str:
    """Return why a query's checkpoint cannot be used on another job's engine and Spark; empty if it can.

    Parameters
    ----------
    manifest_text
        Manifest of the checkpoint.
    environment, job, query
        Owner of the checkpoint.
    engine
        As launch documents name it.
    spark
        Spark release of the other job.
    """
    try:
        old = manifest.parse_manifest(manifest_text)
    except manifest.ManifestError as error:
        return str(error)
    connector = engine_interface_and_registry.engine_of(engine).kinesis_format(spark)
    legs = [
        dataclasses.replace(leg, connector=connector) if leg.connector in manifest.KINESIS else leg
        for leg in old.legs
    ]
    there = dataclasses.replace(old, engine=engine, spark=spark, legs=tuple(legs))
    wrong = manifest_changes.incompatible_changes(manifest_changes.find_changes(old, there))
    return (
        f"{'; '.join(map(str, wrong))}; {manifest_changes.advice_for_changes(environment, job, query, wrong)}"
        if wrong
        else ""
    )
