"""Comparison of a cloud assembly with the deployment: templates and launch documents, stack by stack and job by job."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from millrace.config.aws.resource_names import Names
from millrace.lifecycle.account.deployed_environment import (
    DeployedEnvironment,
    read_s3_object,
    read_stack_outputs,
)
from millrace.lifecycle.aws_error_messages import translating_aws_errors
from millrace.lifecycle.changes.data_loss import (
    data_loss_lines,
    shorter_job_retention_lines,
    shorter_retention_lines,
)
from millrace.lifecycle.changes.deployment_changes import (
    JobChange,
    StackChange,
    build_job_change,
    compare_templates,
    consequence_lines,
    document_differences,
    source_names_in_templates,
)
from millrace.lifecycle.changes.permission_changes import DeployedPermissionKinds
from millrace.lifecycle.changes.refused_updates import (
    Template,
    creates_lasting_resource,
    refused_change_lines,
    successive_templates,
    template_with_open_shards,
)
from millrace.lifecycle.changes.stack_exports import (
    StackOrder,
    changed_exports,
    importing_stacks,
    stack_order,
)
from millrace.lifecycle.changes.table_writer_changes import (
    WritingQuery,
    checkpoints_url,
    output_writer_changes,
    query_checkpoints,
)
from millrace.lifecycle.changes.undeclared_stacks import (
    NEVER_MADE,
    StackRemoval,
    build_stack_removal,
    deployed_template,
    stacks_beside_assembly,
)
from millrace.lifecycle.jobs.checkpoints import has_batches_at

_LASTING = ("kafka", "lifecycle", "network", "storage", "streams")
"""Parts of an environment that hold data, or that everything depends on."""


@dataclass(frozen=True)
class DeploymentChanges:
    """All that a deployment would change.

    Attributes
    ----------
    numbers
        By job: ``path: old → new`` of its launch document, which holds every planned number.
    order
        Stacks to deploy before all others, and changes that no order makes possible.
    removals
        Deployed stacks that the file no longer has.
    refused
        A line for each change that AWS refuses, or that would write a table from two positions.
    stages
        By stack: what each of several updates changes, with its template, where AWS takes them one after the other only.
    shorter
        A line for each retention that becomes shorter, after which older data is deleted.
    consequences
        A line for each change of a job that leaves earlier records as they are, or apart from later ones.
    may_import
        Whether a resource is created that outlives its stack, so that an earlier stack may have left one of that name.
    """

    stacks: tuple[StackChange, ...]
    jobs: tuple[JobChange, ...]
    numbers: Mapping[str, tuple[str, ...]]
    order: StackOrder = field(default_factory=StackOrder)
    removals: tuple[StackRemoval, ...] = ()
    refused: tuple[str, ...] = ()
    stages: Mapping[str, list[tuple[str, Template]]] = field(default_factory=dict)
    may_import: bool = False
    shorter: tuple[str, ...] = ()
    consequences: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return (
            any(self.stacks)
            or any(job.after != "leave" for job in self.jobs)
            or any(not each.protected for each in self.removals)
        )


def changes_without_start_of_new_jobs(changes: DeploymentChanges) -> DeploymentChanges:
    """Return the same changes, but with new jobs deployed without a start; a renamed job is none."""
    jobs = (
        replace(job, after="stop") if job.after == "start" and job.continues is None else job
        for job in changes.jobs
    )
    return replace(changes, jobs=tuple(jobs))


def compare_with_deployed(aws: DeployedEnvironment, assembly: Path) -> DeploymentChanges:
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
    cloudformation = aws.client("cloudformation")
    with translating_aws_errors("cannot list the deployed stacks"):
        left = {each.name: each for each in stacks_beside_assembly(aws, new)}
    with translating_aws_errors("cannot read the deployed templates"):
        old = {stack: _template_if_created(cloudformation, stack) for stack in new}
        old |= {stack: each.template for stack, each in left.items()}
        around = _importing_stacks(cloudformation, old, new)
    documents = _deployed_documents(aws, old)
    started = {
        job: _launch_document_url_and_content(new[names.stack(f"job-{job}")], assembly)
        for job in names.environment.jobs
    }
    gone = {job: documents.get(job, (None, None))[1] for stack in left if (job := job_of_stack(names, stack))}
    heirs = {
        earlier: job
        for job, (_, will) in started.items()
        for earlier, (_, document) in documents.items()
        if earlier != job and checkpoints_url(will) == checkpoints_url(document)
    }
    with translating_aws_errors("cannot read the checkpoints"):
        resumed = _queries_on_checkpoints_of_no_deployed_job(aws, documents, started)
    sources = (source_names_in_templates(old.values()), source_names_in_templates(new.values()))
    jobs = [
        JobChange(
            job, "drain", "remove", (f"is {heirs[job]} now" if job in heirs else "is no longer in the file",)
        )
        for job in gone
    ]
    numbers = {}
    shorter = [*shorter_retention_lines(old, new)]
    consequences: list[str] = []
    for job, (url, document) in started.items():
        stack = names.stack(f"job-{job}")
        old_url, old_document = documents.get(job, (None, None))
        change = build_job_change(
            job,
            stack=(old[stack], new[stack]),
            document=(old_document, document),
            document_url=(old_url, url),
            sources=sources,
            continues=next((earlier for earlier, heir in heirs.items() if heir == job), None),
            heir=heirs.get(job),
        )
        jobs.append(replace(change, resumes=resumed[job]))
        if old_document is not None:
            numbers[job] = tuple(
                f"{path}: {before} → {after}"
                for path, before, after in document_differences(old_document, document)
            )
            shorter += shorter_job_retention_lines(job, old_document, document)
            consequences += consequence_lines(job, old_document, document)
    order = stack_order(old | around, new, [names.stack(part) for part in _LASTING], left)
    with translating_aws_errors("cannot count the open shards of a stream that becomes provisioned"):
        deployed = {
            stack: template_with_open_shards(old[stack], template, partial(_count_open_shards, aws))
            for stack, template in new.items()
        }
    rights = DeployedPermissionKinds(names, old)
    return DeploymentChanges(
        stacks=tuple(
            compare_templates(stack, old[stack], template, rights) for stack, template in new.items()
        ),
        jobs=tuple(jobs),
        numbers=numbers,
        order=order,
        removals=tuple(
            build_stack_removal(
                stack,
                old[stack] or {},
                document=gone.get(job_of_stack(names, stack) or ""),
                job=job_of_stack(names, stack),
                renamed_to=heirs.get(job_of_stack(names, stack) or ""),
                protected=each.protected,
                first=stack in order.remove or job_of_stack(names, stack) in gone,
            )
            for stack, each in left.items()
        ),
        refused=(
            *_output_writer_change_lines(aws, documents, started),
            *refused_change_lines(deployed, new),
            *data_loss_lines(names, old, new),
        ),
        shorter=tuple(shorter),
        consequences=tuple(consequences),
        may_import=any(map(creates_lasting_resource, deployed.values(), new.values())),
        stages={
            stack: way for stack, was in deployed.items() if (way := successive_templates(was, new[stack]))
        },
    )


def _count_open_shards(aws: DeployedEnvironment, stream: str) -> int:
    summary = aws.client("kinesis").describe_stream_summary(StreamName=stream)["StreamDescriptionSummary"]
    return int(summary["OpenShardCount"])


def job_of_stack(names: Names, stack: str) -> str | None:
    """Return the job of a stack; None for a stack that several jobs share."""
    prefix = names.stack("job-")
    return stack.removeprefix(prefix) if stack.startswith(prefix) else None


def _deployed_documents(
    aws: DeployedEnvironment, templates: Mapping[str, Template | None]
) -> dict[str, tuple[str | None, dict[str, Any]]]:
    """Read the deployed launch documents of all jobs, with their URLs."""
    deployed = {
        job: read_deployed_url_and_document(aws, stack)
        for stack, template in templates.items()
        if template is not None and (job := job_of_stack(aws.names, stack)) is not None
    }
    return {job: (url, document) for job, (url, document) in deployed.items() if document is not None}


def _output_writer_change_lines(
    aws: DeployedEnvironment,
    deployed: Mapping[str, tuple[str | None, dict[str, Any]]],
    new: Mapping[str, tuple[str, dict[str, Any]]],
) -> Iterator[str]:
    """Yield a line for each output that another job would write, unless the position was carried over to it."""
    changes = output_writer_changes(
        {job: document for job, (_, document) in deployed.items()},
        {job: document for job, (_, document) in new.items()},
    )
    s3 = aws.client("s3")
    for output, owner, writer in changes:
        with translating_aws_errors(f"cannot read the checkpoint of {writer.job}/{writer.query}"):
            # `checkpoint move` leaves nothing behind; beside the owner's, a checkpoint is one of an earlier job.
            begun = has_batches_at(s3, writer.checkpoint)
            if begun and not has_batches_at(s3, owner.checkpoint):
                continue
        remains = any(owner.checkpoint.startswith(f"{checkpoints_url(each)}/") for _, each in new.values())
        ways = _ways_to_keep_position(aws.names, owner, writer, begun=begun, remains=remains)
        yield (
            f"job {writer.job}, query {writer.query}: {output} is written by query {owner.query} of job "
            f"{owner.job}, and {writer.job} would not continue from its position, but from a checkpoint of its own; "
            f"{'; '.join(ways)}"
        )


def _ways_to_keep_position(
    names: Names, owner: WritingQuery, writer: WritingQuery, *, begun: bool, remains: bool
) -> Iterator[str]:
    """Yield what to do about a query that would write an output of another without its position.

    Parameters
    ----------
    begun, remains
        Whether the query has a checkpoint already, and whether the owner's job is still in the file, under any name.
    """
    env = names.environment.name
    (bucket, folder, _), (other_bucket, own, _) = (each.checkpoint.rsplit("/", 2) for each in (owner, writer))
    if owner.source != writer.source:
        yield f"give {writer.query} another table or target, as this one would get the records of the same stream again"
        yield f"if it is to have them twice, deploy without query {writer.query} first"
    elif owner.partitions != writer.partitions:
        yield (
            f"set `kafka.start_offsets` of {writer.query}, in the place of `start`, to the positions that `millrace checkpoint "
            f"show {owner.job} --env {env}` prints after `millrace drain`"
        )
    elif bucket != other_bucket:
        yield (
            f"`aws s3 mv --recursive {bucket}/{folder} {other_bucket}/{own}` while the job is stopped, or revert the change of "
            "the bucket"
        )
    elif not remains:
        yield f"if it is the same job, write `renamed_from: {folder}` into job {writer.job}"
        yield f"if it is not, deploy without {writer.job}, which removes {owner.job}; then deploy {writer.job}"
    else:
        if begun:
            yield f"`millrace checkpoint reset {writer.job} {writer.query} --env {env}` puts that checkpoint aside"
        jobs = " and ".join(dict.fromkeys((owner.job, writer.job)))
        yield (
            f"if it is to continue, stop {jobs}, then `millrace checkpoint move {owner.job} {owner.query} "
            f"{writer.job}/{writer.query} --env {env}`, deploy, and start"
        )
        yield f"if it is to begin again, deploy without query {writer.query} first"


def _queries_on_checkpoints_of_no_deployed_job(
    aws: DeployedEnvironment,
    deployed: Mapping[str, tuple[str | None, dict[str, Any]]],
    new: Mapping[str, tuple[str, dict[str, Any]]],
) -> dict[str, tuple[str, ...]]:
    """Return by job the queries that would continue from a checkpoint which no deployed query has."""
    owned = {url for _, document in deployed.values() for url in query_checkpoints(document).values()}
    s3 = aws.client("s3")
    return {
        job: tuple(
            query
            for query, url in query_checkpoints(document).items()
            if url not in owned and has_batches_at(s3, url)
        )
        for job, (_, document) in new.items()
    }


def launch_document_in_assembly(names: Names, assembly: Path, job: str) -> dict[str, Any]:
    """Return a job's launch document, as an assembly would deploy it.

    Parameters
    ----------
    assembly
        The folder that ``cdk synth`` wrote.
    job
        A job of the environment.
    """
    template = json.loads((assembly / f"{names.stack(f'job-{job}')}.template.json").read_text())
    return _launch_document_url_and_content(template, assembly)[1]


def _launch_document_url_and_content(template: Template, assembly: Path) -> tuple[str, dict[str, Any]]:
    url = template["Outputs"]["LaunchDocument"]["Value"]
    return url, json.loads((assembly / f"asset.{url.rsplit('/', 1)[1]}").read_text())


def _template_if_created(cloudformation: Any, stack: str) -> Template | None:
    """Read the template of a stack that was created; CloudFormation also keeps those of failed creations."""
    if (template := deployed_template(cloudformation, stack)) is None:
        return None
    status = cloudformation.describe_stacks(StackName=stack)["Stacks"][0].get("StackStatus")
    return None if status in NEVER_MADE else template


def _importing_stacks(
    cloudformation: Any, old: Mapping[str, Template | None], new: Mapping[str, Template]
) -> dict[str, Template | None]:
    """Read the stacks outside the assembly that import what it removes or changes."""
    names = {
        stack
        for producer, template in new.items()
        for export in changed_exports(old[producer], template)
        for stack in importing_stacks(cloudformation, export)
    }
    return {stack: _template_if_created(cloudformation, stack) for stack in sorted(names - new.keys())}


def read_deployed_url_and_document(
    aws: DeployedEnvironment, stack: str
) -> tuple[str | None, dict[str, Any] | None]:
    """Read a job's deployed launch document with its URL; None twice where its stack names none."""
    with translating_aws_errors(f"cannot read the launch document of {stack}"):
        if (url := read_stack_outputs(aws.client("cloudformation"), stack).get("LaunchDocument")) is None:
            return None, None
        return url, json.loads(read_s3_object(aws.client("s3"), url))
