"""Changes by a deployment: numbers, resources, permissions, and their effect on running jobs.

Pure functions over templates and launch documents, deployed and new.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from millrace.lifecycle.changes.permission_changes import (
    POLICIES,
    DeployedPermissionKinds,
    permission_lines,
    widening_lines,
)
from millrace.lifecycle.changes.refused_updates import (
    Template,
    referenced_logical_ids,
    replaced_resources,
)
from millrace.lifecycle.changes.table_writer_changes import checkpoints_url

_SOURCES = {
    "AWS::Kinesis::Stream": "Name",
    "AWS::Kinesis::StreamConsumer": "ConsumerName",
    "AWS::MSK::Topic": "TopicName",
}
"""Types of resources that jobs read, and the property with the name."""

_DATA = {
    "AWS::ECR::Repository": "RepositoryName",
    "AWS::Glue::Database": "DatabaseInput.Name",
    "AWS::KMS::Key": "Description",
    "AWS::Kinesis::Stream": "Name",
    "AWS::Logs::LogGroup": "LogGroupName",
    "AWS::MSK::Cluster": "ClusterName",
    "AWS::MSK::ServerlessCluster": "ClusterName",
    "AWS::MSK::Topic": "TopicName",
    "AWS::APS::Workspace": "Alias",
    "AWS::S3::Bucket": "BucketName",
}
"""Types of resources that hold data, and the property that names them."""

_END_OF_DATA = {
    "-": {
        None: "",
        True: " (stays and is paid for; CloudFormation no longer knows it)",
        False: " (is deleted with its data)",
    },
    "~": {
        None: " (is replaced)",
        True: " (is replaced; the old one stays and is paid for)",
        False: " (is replaced; its data is deleted)",
    },
}
"""By sign of a line, and by whether the data outlives the resource (None: it has none)."""


@dataclass(frozen=True)
class JobChange:
    """Effect of a deployment on one job.

    Attributes
    ----------
    before
        ``drain``: its application, its network, its role or a stream that it reads is changed or replaced, or its name
        belongs to another job now.
    after
        ``start``: a new job, perhaps in the stack of one whose name it takes. ``restart``: a job that would otherwise keep
        running its old version. ``stop``: a new job that stays stopped. ``remove``: a job that is no longer in the file.
    why
        Reasons, for people.
    continues
        The job whose checkpoints a renamed job takes over.
    resumes
        Queries that no deployed job has, and whose checkpoints exist: an earlier job left them, or somebody moved them here.
    """

    job: str
    before: Literal["drain", "leave"]
    after: Literal["start", "restart", "stop", "leave", "remove"]
    why: tuple[str, ...]
    continues: str | None = None
    resumes: tuple[str, ...] = ()

    @property
    def predecessors(self) -> frozenset[str]:
        """The deployed jobs that it was: it runs after the deployment if one of them runs before."""
        before = () if self.after in ("start", "stop") else (self.job,)
        return frozenset((*before, *(() if self.continues is None else (self.continues,))))


@dataclass(frozen=True)
class StackChange:
    """Changes of one stack; each line names a resource or a statement.

    Attributes
    ----------
    usual
        Changes of permissions that give nobody more: of a kind that the environment's jobs have, or of a role that goes.
    lost
        Resources that are deleted with their data.
    """

    stack: str
    new: bool
    resources: tuple[str, ...]
    permissions: tuple[str, ...]
    usual: frozenset[str] = frozenset()
    lost: tuple[str, ...] = ()

    @property
    def data_lines(self) -> list[str]:
        """Resources with data that go or are replaced."""
        ends = tuple(
            end for ends in _END_OF_DATA.values() for stays, end in ends.items() if stays is not None
        )
        return [line for line in self.resources if line.endswith(ends)]

    @property
    def wider_permission_lines(self) -> list[str]:
        """Permissions that give somebody more than is deployed."""
        return widening_lines(self.permissions, self.usual)

    def __bool__(self) -> bool:
        return self.new or bool(self.resources or self.permissions)


def build_job_change(
    job: str,
    *,
    stack: tuple[Template | None, Template],
    document: tuple[Mapping[str, Any] | None, Mapping[str, Any]],
    document_url: tuple[str | None, str],
    sources: tuple[frozenset[str], frozenset[str]],
    continues: str | None = None,
    heir: str | None = None,
) -> JobChange:
    """Return the effect of a deployment on one job.

    Parameters
    ----------
    stack, document, document_url
        Deployed (``None``: does not exist) and new.
    sources
        Names of the streams, fan-out consumers and topics that the environment owns, deployed and new.
    continues
        The deployed job whose checkpoints it has now.
    heir
        The job that has its deployed checkpoints now.
    """
    old, new = stack
    origin = () if continues is None else (f"continues from the checkpoints of {continues}",)
    if old is None or document[0] is None:
        return JobChange(job, "leave", "start", origin or ("is new",), continues)
    replaced = replaced_resources(old.get("Resources", {}), new.get("Resources", {})).keys()

    def does_change(before: Any, after: Any) -> bool:
        """Tell whether the text of a value changes, or a resource that it refers to is replaced."""
        return bool(before != after) or not replaced.isdisjoint(referenced_logical_ids(after))

    def does_type_change(kind: str) -> bool:
        return does_change(resources_of_type(old, kind), resources_of_type(new, kind))

    drain = []
    takes_name = checkpoints_url(document[0]) != checkpoints_url(document[1])
    if takes_name:
        drain.append(
            f"what is deployed as {job} is {heir} now"
            if heir
            else f"its checkpoints {checkpoints_url(document[0])} are used no longer"
        )
    if does_type_change("AWS::EMRServerless::Application"):
        drain.append("its application changes, which EMR Serverless refuses while it runs")
    if does_type_change("AWS::Glue::Connection"):
        # Rules of the groups that it had may go before the new ones are in use.
        drain.append("its connections to the network change, below a run that has the old ones")
    if does_change(*(each.get("Outputs", {}).get("RoleArn") for each in (old, new))):
        drain.append("its role changes, and the old one may go below a run")
    drain += [
        f"source {name} goes"
        for name in sorted(_source_names_in_launch_document(document[0]) & sources[0] - sources[1])
    ]
    restart = []
    if document_url[0] != document_url[1]:
        restart.append("its launch document changes")
    if does_type_change("AWS::Glue::Job"):
        restart.append("its job definition changes")
    if drain or restart or origin:
        after: Literal["start", "restart"] = "start" if takes_name and origin else "restart"
        return JobChange(job, "drain" if drain else "leave", after, (*drain, *restart, *origin), continues)
    return JobChange(job, "leave", "leave", ())


def does_data_outlive_resource(
    resource: Mapping[str, Any], replacement: Mapping[str, Any] | None = None
) -> bool | None:
    """Tell whether a resource's data stays when it is removed from its stack, or replaced; None for one without data."""
    if resource["Type"] not in _DATA:
        return None
    policies = [resource.get("DeletionPolicy")]
    if replacement is not None:
        # Which of the two templates decides is not documented.
        policies = [each.get("UpdateReplacePolicy") for each in (resource, replacement)]
    return all(str(policy).startswith("Retain") for policy in policies)


def resource_title(logical: str, resource: Mapping[str, Any]) -> str:
    """Return type and name of a resource."""
    value: Any = resource.get("Properties", {})
    for key in _DATA.get(resource["Type"], "").split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return f"{resource['Type']} {value if isinstance(value, str) else logical}"


def source_names_in_templates(templates: Iterable[Template | None]) -> frozenset[str]:
    """Return the names of the streams, fan-out consumers and topics in templates."""
    return frozenset(
        str(resource["Properties"][key])
        for template in templates
        for kind, key in _SOURCES.items()
        for resource in resources_of_type(template or {}, kind).values()
        if key in resource.get("Properties", {})
    )


def compare_templates(
    stack: str, old: Template | None, new: Template, deployed: DeployedPermissionKinds | None = None
) -> StackChange:
    """Compare two templates of a stack, resource by resource and statement by statement."""
    before = (old or {}).get("Resources", {})
    after = new.get("Resources", {})
    lines, lost = [], []
    gone = replaced_resources(before, after)
    for name in sorted(before.keys() | after.keys()):
        kind = (after.get(name) or before[name])["Type"]
        if kind in POLICIES or kind == "AWS::CDK::Metadata":
            continue  # reported as permissions, or not at all
        if name not in before:
            lines.append(f"+ {kind} {name}")
            continue
        will = after.get(name)
        survives = None
        if will is None or name in gone:
            survives = does_data_outlive_resource(before[name], will)
        if will is None:
            shown = name if survives is None else resource_title(name, before[name]).removeprefix(f"{kind} ")
            lines.append(f"- {kind} {shown}{_END_OF_DATA['-'][survives]}")
        elif changed := _changed_properties(before[name], will, gone.get(name, ())):
            end = _END_OF_DATA["~"][survives] if name in gone else ""
            lines.append(f"~ {kind} {name}: {', '.join(changed)}{end}")
        if survives is False:
            lost.append(resource_title(name, before[name]))
    was, will = set(permission_lines(old or {})), set(permission_lines(new))
    permissions = [f"- {line}" for line in sorted(was - will)] + [f"+ {line}" for line in sorted(will - was)]
    usual = frozenset[str]() if deployed is None else deployed.usual_permission_lines(stack, permissions)
    usual |= frozenset(line for line in permissions if line.startswith(_removed_role_prefixes(before, after)))
    return StackChange(stack, old is None, tuple(lines), tuple(permissions), usual, tuple(lost))


def _removed_role_prefixes(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the beginnings of the removed lines of roles that go; none where a new role may take the place of one."""
    was, will = (
        {name for name, each in some.items() if each["Type"] == "AWS::IAM::Role"} for some in (before, after)
    )
    return () if will - was else tuple(f"- AWS::IAM::Role {name}: " for name in was - will)


def _changed_properties(
    old: Mapping[str, Any], new: Mapping[str, Any], replacing: Iterable[str]
) -> list[str]:
    """Return the names of a resource's properties and attributes that differ, such as its removal policy.

    Parameters
    ----------
    replacing
        Paths of properties that replace it: its own text may stay the same, as where its cluster is replaced.
    """
    was, will = (
        {key: value for key, value in each.items() if key not in ("Properties", "Metadata")}
        for each in (old, new)
    )
    paths = (
        *document_differences(was, will),
        *document_differences(old.get("Properties", {}), new.get("Properties", {})),
    )
    return sorted({path.split(".")[0] for path, *_ in paths} or {path.split("/")[0] for path in replacing})


def document_differences(old: Any, new: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Walk two JSON values and yield path, old and new value of each leaf that differs (``None``: absent)."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted(old.keys() | new.keys()):
            yield from document_differences(old.get(key), new.get(key), f"{path}.{key}" if path else str(key))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (left, right) in enumerate(zip(old, new, strict=True)):
            yield from document_differences(left, right, f"{path}[{index}]")
    elif old != new:
        yield path, old, new


_KEYED_PARTS = {
    "kafka": ("topic", "partition", ", and a compacted topic keeps the last message of each earlier key"),
    "kinesis": ("stream", "shard", ""),
}
"""By kind of a sink whose records have a key: its target's key in the launch document, what a key chooses, what else follows."""


def consequence_lines(job: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each change of a job that leaves earlier records as they are, or apart from later ones.

    Parameters
    ----------
    old, new
        Launch documents, deployed and new.
    """
    before = {query["name"]: query for query in old["settings"]["queries"]}
    for query in new["settings"]["queries"]:
        where, was = f"job {job}, query {query['name']}", before.get(query["name"], {})
        letters = was.get("dead_letters")
        if letters not in (None, query.get("dead_letters")):
            yield (
                f"{where}: the dead letters until now stay in {letters}, which `millrace replay`, `millrace erase` and the retention of "
                "dead letters leave alone from then on; replay them before"
            )
        legs = _legs_by_route(was)
        for route, leg in _legs_by_route(query).items():
            if route in legs:
                yield from (f"{where}: {line}" for line in _consequences_for_leg(legs[route], leg))


def _legs_by_route(query: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the parts of a query in a launch document that have a source or a sink, by route."""
    return {str(leg.get("name")): leg for leg in (query, *query.get("routes", ()))}


def _consequences_for_leg(was: Mapping[str, Any], leg: Mapping[str, Any]) -> Iterator[str]:
    earlier, sink = was.get("sink") or {}, leg.get("sink") or {}
    target, part, more = _KEYED_PARTS.get(sink.get("kind", ""), ("", "", ""))
    if target and earlier.get(target) == sink[target] and earlier.get("key") != sink.get("key"):
        was_key, key = (each.get("key") or "the identity" for each in (earlier, sink))
        yield (
            f"records in {target} {sink[target]} have the key {key}, until now {was_key}: later ones go to another {part}, so readers "
            f"get them in no order with earlier ones{more}"
        )
    if fields := sorted({*leg.get("redact", ())} - {*was.get("redact", ())}):
        yield f"{', '.join(fields)} will be null in later rows and removed from later dead letters; earlier ones keep the values"
    starts = [
        (source.get("start"), (source.get("reading") or {}).get("start_offsets"))
        for source in (each.get("source") or {} for each in (was, leg))
    ]
    if starts[0] != starts[1]:
        yield "its start counts only until it has a checkpoint; `millrace checkpoint reset` lets it begin there"


def resources_of_type(template: Template, kind: str) -> dict[str, Any]:
    """Return the resources of a type, by logical id, with their properties alone."""
    return {
        name: {"Type": kind, "Properties": resource.get("Properties", {})}
        for name, resource in template.get("Resources", {}).items()
        if resource["Type"] == kind
    }


def _source_names_in_launch_document(document: Mapping[str, Any]) -> frozenset[str]:
    sources = (
        route["source"] for query in document["settings"]["queries"] for route in query.get("routes", ())
    )
    return frozenset(
        str(source[key])
        for source in sources
        for key in ("stream", "consumer", "topic")
        if source.get(key) is not None
    )
