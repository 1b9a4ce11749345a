"""Comparison of a cloud assembly with the deployment: templates and launch documents, stack by stack and job by job."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from millrace.config.names import Names
from millrace.lifecycle.deployed import ignore_missing, outputs, split_url
from millrace.lifecycle.deployment_changes import (
    JobChange,
    StackChange,
    Template,
    differences,
    job_change,
    stack_change,
    stream_names,
)
from millrace.lifecycle.problems import translate_aws_errors
from millrace.lifecycle.stack_exports import StackOrder, changed_exports, importers, stack_order
from millrace.lifecycle.state_machine import Aws

_LASTING = ("kafka", "lifecycle", "network", "storage", "streams")
"""Parts of an environment that hold data, or that everything depends on."""

_NEVER_MADE = ("ROLLBACK_COMPLETE", "ROLLBACK_FAILED")
"""States of a stack whose first creation failed; CDK deletes it and creates it again."""


@dataclass(frozen=True)
class Changes:
    """All that a deployment would change.

    Attributes
    ----------
    numbers
        By job: ``path: old → new`` of its launch document, which holds every planned number.
    order
        Stacks to deploy before all others, and changes that no order makes possible.
    """

    stacks: tuple[StackChange, ...]
    jobs: tuple[JobChange, ...]
    numbers: Mapping[str, tuple[str, ...]]
    order: StackOrder = field(default_factory=StackOrder)

    def __bool__(self) -> bool:
        return any(self.stacks) or any(job.after != "leave" for job in self.jobs)


def without_starts(found: Changes) -> Changes:
    """Return the same changes, but with new jobs deployed without a start."""
    jobs = (replace(job, after="stop") if job.after == "start" else job for job in found.jobs)
    return replace(found, jobs=tuple(jobs))


def compare_with_deployed(aws: Aws, assembly: Path) -> Changes:
    """Compare a cloud assembly with the deployment.

    Parameters
    ----------
    assembly
        The folder that ``cdk synth`` wrote.

    Raises
    ------
    AwsError
        AWS refused a request.
    """
    names = aws.names
    new = {
        file.name.removesuffix(".template.json"): json.loads(file.read_text())
        for file in sorted(assembly.glob(f"{names.prefix}-*.template.json"))
    }
    with translate_aws_errors("reading the deployed templates"):
        old = {stack: _standing(aws.client("cloudformation"), stack) for stack in new}
        around = _around(aws.client("cloudformation"), old, new)
    sources = (_sources(old), _sources(new))
    jobs, numbers = [], {}
    for job in names.environment.jobs:
        stack = names.stack(f"job-{job}")
        url, document = _new_document(new[stack], assembly)
        old_url, old_document = deployed_document(aws, stack) if old[stack] is not None else (None, None)
        jobs.append(
            job_change(
                job,
                stack=(old[stack], new[stack]),
                document=(old_document, document),
                document_url=(old_url, url),
                sources=sources,
            )
        )
        if old_document is not None:
            numbers[job] = tuple(
                f"{path}: {before} → {after}" for path, before, after in differences(old_document, document)
            )
    return Changes(
        stacks=tuple(stack_change(stack, old[stack], template) for stack, template in new.items()),
        jobs=tuple(jobs),
        numbers=numbers,
        order=stack_order(old | around, new, [names.stack(part) for part in _LASTING]),
    )


def job_settings(names: Names, assembly: Path, job: str) -> dict[str, Any]:
    """Return a job's settings, as an assembly would deploy them.

    Parameters
    ----------
    assembly
        The folder that ``cdk synth`` wrote.
    job
        A job of the environment.
    """
    return dict(document_of(names, assembly, job)["settings"])


def document_of(names: Names, assembly: Path, job: str) -> dict[str, Any]:
    """Return a job's launch document, as an assembly would deploy it; the parameters are those of :func:`job_settings`."""
    template = json.loads((assembly / f"{names.stack(f'job-{job}')}.template.json").read_text())
    return _new_document(template, assembly)[1]


def _new_document(template: Template, assembly: Path) -> tuple[str, dict[str, Any]]:
    url = template["Outputs"]["LaunchDocument"]["Value"]
    return url, json.loads((assembly / f"asset.{url.rsplit('/', 1)[1]}").read_text())


def deployed_template(cloudformation: Any, stack: str) -> Template | None:
    """Read a stack's deployed template; None without such a stack."""
    with ignore_missing("does not exist"):
        body = cloudformation.get_template(StackName=stack, TemplateStage="Original")["TemplateBody"]
        return dict(json.loads(body) if isinstance(body, str) else body)
    return None


def _standing(cloudformation: Any, stack: str) -> Template | None:
    """Read the template of a stack that was created; CloudFormation also keeps those of failed creations."""
    template = deployed_template(cloudformation, stack)
    if template is None:
        return None
    status = cloudformation.describe_stacks(StackName=stack)["Stacks"][0].get("StackStatus")
    return None if status in _NEVER_MADE else template


def _around(
    cloudformation: Any, old: Mapping[str, Template | None], new: Mapping[str, Template]
) -> dict[str, Template | None]:
    """Read the stacks outside the assembly that import what it removes or changes."""
    names = {
        stack
        for producer, template in new.items()
        for export in changed_exports(old[producer], template)
        for stack in importers(cloudformation, export)
    }
    return {stack: _standing(cloudformation, stack) for stack in sorted(names - new.keys())}


def _sources(templates: Mapping[str, Template | None]) -> frozenset[str]:
    return frozenset[str]().union(*(stream_names(template) for template in templates.values()))


def deployed_document(aws: Aws, stack: str) -> tuple[str | None, dict[str, Any] | None]:
    """Read a job's deployed launch document with its URL; None twice where its stack names none."""
    with translate_aws_errors(f"reading the launch document of {stack}"):
        url = outputs(aws.client("cloudformation"), stack).get("LaunchDocument")
        if url is None:
            return None, None
        bucket, key = split_url(url)
        return url, json.loads(aws.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read())
