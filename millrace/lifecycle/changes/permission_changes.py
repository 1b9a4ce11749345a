"""Permissions in a template: each statement, trust, managed policy and boundary as one line, and what widens them.

Pure functions over templates: policies of roles, trust of roles, policies of keys, buckets, topics and endpoints.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from millrace.config.aws.resource_names import Names
from millrace.lifecycle.changes.refused_updates import Template, values_of_key

POLICIES = ("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy")
"""Types of resources that hold permissions alone: a role with many has managed policies."""

_LIMITS = ("Deny", "permissions boundary")
"""Beginnings of what takes permissions away; whoever removes it widens them."""


_RUNS_AS = re.compile(r"Role(Arn)?")
"""Properties that name the role of a resource, such as ``Role`` of a Glue job and ``ExecutionRoleArn`` of a task."""


def permission_lines(template: Template) -> Iterator[str]:
    """Yield each permission of a template as a line, ``KIND NAME: ...``, those of a policy for each role that has it."""
    for name, resource in template.get("Resources", {}).items():
        kind, properties = resource["Type"], resource.get("Properties", {})
        whose = f"{kind} {name}: "
        if kind == "AWS::IAM::Role":
            yield from (
                f"{whose}managed policy {_shown_value(arn)}"
                for arn in properties.get("ManagedPolicyArns", ())
            )
            limit = properties.get("PermissionsBoundary")
            yield f"{whose}{'no permissions boundary' if limit is None else f'permissions boundary {_shown_value(limit)}'}"
        for key, value in properties.items():
            if isinstance(value, str) and _RUNS_AS.fullmatch(key.removeprefix("Execution")):
                yield f"{whose}runs as {value}"
        holders = [whose]
        if kind in POLICIES and (roles := properties.get("Roles")):
            principals = (
                _shown_value(role) if isinstance(role, str) else role.get("Ref") or _shown_value(role)
                for role in roles
            )
            holders = [f"AWS::IAM::Role {role}: " for role in principals]
        statements = chain.from_iterable(map(_as_list, values_of_key(properties, "Statement")))
        yield from (
            f"{holder}{line}" for each in statements for line in _statement_lines(each) for holder in holders
        )


_BEFORE_A_JOB = ("job", "jobs", "Millrace", "_erasures")
"""Parts of ARNs and of namespaces of metrics that a job's name follows, as its own name may be that of a topic or table."""


JOB_RIGHTS = Path(__file__).with_name("rights_of_new_job.json")
"""Kinds of permission that come with the first job of an engine or of a kind of source, drawn from templates."""


@functools.cache
def permission_kinds_of_new_job() -> frozenset[str]:
    """Return the kinds that Millrace gives a new job, its endpoints included, on things of the environment alone."""
    return frozenset(json.loads(JOB_RIGHTS.read_text()))


class DeployedPermissionKinds:
    """Kinds of permission that the jobs of an environment have: what a new job has of the same kinds gives nobody more.

    A kind is a permission without the names that belong to one job: the job's own name, and what follows the environment's
    own name in an ARN or a condition. Names of other jobs, of other things, and wildcards stay, so they are kinds of their own.
    What is new, such as the role of the first job of an engine, may also have :func:`permission_kinds_of_new_job`.

    Parameters
    ----------
    templates
        What is deployed, by stack.
    """

    def __init__(self, names: Names, templates: Mapping[str, Template | None]) -> None:
        self._names = names
        prefix, database = re.escape(names.prefix), re.escape(names.database)
        self._own = re.compile(rf"(?:{prefix}(?![a-z0-9])|{database}(?:\.db)?$)[^*?]*")
        aws = names.aws_partition
        self._common = {
            f'project": "{names.environment.project}"': 'project": "<project>"',
            f'environment": "{names.environment.name}"': 'environment": "<environment>"',
            f"{names.prefix}-": "<environment>-",
            f"{names.prefix}/": "<environment>/",
            names.database: "<database>",
            names.account: "<account>",
            names.environment.region: "<region>",
            f"arn:{aws}:": "arn:<partition>:",
        }
        self._deployed = {
            (stack, name)
            for stack, template in templates.items()
            for name in (template or {}).get("Resources", {})
        }
        self.kinds = frozenset(
            kind
            for stack, template in templates.items()
            for line in permission_lines(template or {})
            for kind in self._permission_kinds_of_line(stack, line)
        )

    def usual_permission_lines(self, stack: str, changes: Iterable[str]) -> frozenset[str]:
        """Return those of the lines ``+ PERMISSION`` of a stack that are of a kind that is deployed, or a new job's."""
        return frozenset(
            line
            for line in changes
            if line[0] == "+"
            and self._permission_kinds_of_line(stack, line[2:]) <= self._usual_kinds_for_line(stack, line[2:])
        )

    def _usual_kinds_for_line(self, stack: str, line: str) -> frozenset[str]:
        name = line.partition(": ")[0].split()[-1]
        return self.kinds if (stack, name) in self._deployed else self.kinds | permission_kinds_of_new_job()

    def _permission_kinds_of_line(self, stack: str, line: str) -> set[str]:
        """Return the kinds of a line, one for each action."""
        if line.partition(": ")[2].partition("permissions boundary")[0] in ("", "no "):
            return {_without_resource_name(line)}  # whichever role has it
        own = self._placeholders_of_own_job_names(stack)
        head, allows, rest = line.partition(": Allow ")
        actions, on, target = re.split(r"( on | to |$)", rest, maxsplit=1)
        target = re.sub(r'[^\s",\[\]{}]+', lambda found: self._replace_own_names(found[0], own), target)
        # A job with more tables has a longer list of the same values.
        target = re.sub(r'\["[^][]*"\]', lambda found: json.dumps(sorted(set(json.loads(found[0])))), target)
        for name, common in self._common.items():
            target = target.replace(name, common)
        return {f"{head}{allows}{action}{on}{target}" for action in actions.split(", ")}

    def _placeholders_of_own_job_names(self, stack: str) -> dict[str, str]:
        """Return placeholders by the names in a stack that are of its job alone, such as those of its checkpoints."""
        job = stack.removeprefix(self._names.stack("job-"))
        deployed = self._names.job(job)
        now = self._names.environment.jobs.get(job)
        own = {stack: "<stack>", job: "<job>", deployed: "<job>", f"{job}-{deployed}*": "<logs>"}
        return own | ({} if now is None or now.renamed_from is None else {now.renamed_from: "<job>"})

    def _replace_own_names(self, word: str, own: Mapping[str, str]) -> str:
        """Replace the names in an ARN, or in a value of a condition, that belong to one job; exports have none."""
        if ":Exports" in word:
            return word
        words = re.split("([/:])", word)
        parts, inside = list(words), False
        in_bucket = not word.startswith("arn:") or "s3" in words[:6]
        for place, part in enumerate(words):
            before = words[place - 2] if place > 1 else ""
            of_job = before in _BEFORE_A_JOB or (in_bucket and not before.endswith(".db"))
            if of_job and part in own:
                parts[place] = own[part]
            elif self._own.match(part):
                inside = True
                # A bucket's name says what is in it, and a job's whose it is.
                if not of_job or "/" in words[:place]:
                    parts[place] = self._own.sub("<own>", part)
            elif inside and part not in ("/", ":") and not part.startswith("_"):
                parts[place] = re.sub(r"[^*?]+", "<name>", part)
        return "".join(parts)


def widening_lines(changes: Iterable[str], usual: frozenset[str] = frozenset()) -> list[str]:
    """Return those of the lines ``+ PERMISSION`` and ``- PERMISSION`` that give somebody more.

    Parameters
    ----------
    usual
        Lines that do not, see :class:`DeployedPermissionKinds`.
    """
    lines = list(changes)
    return [line for line in lines if line not in usual and _widens_permission(line, lines)]


def _widens_permission(line: str, changes: Collection[str]) -> bool:
    whose, _, permission = line[2:].rpartition(": permissions boundary ")
    if line[0] == "+" and whose and permission:
        # Of a new role, whatever the limit is; of one without, it takes permissions away.
        return f"- {whose}: no permissions boundary" not in changes
    return (line[0] == "-") == (_without_resource_name(line[2:]).startswith(_LIMITS))


def _without_resource_name(line: str) -> str:
    """Return a permission's line without the name of its resource."""
    return line.split(": ", 1)[1] if line.startswith("AWS::") else line


def _statement_lines(statement: Mapping[str, Any]) -> Iterator[str]:
    """Yield what one statement says of each of its resources."""
    lines = [
        statement["Effect"],
        *_element_text_if_present(statement, "Action"),
        *_element_text_if_present(statement, "NotAction"),
    ]
    to = [
        *_element_text_if_present(statement, "Principal", "to"),
        *_element_text_if_present(statement, "NotPrincipal", "to"),
    ]
    if condition := statement.get("Condition"):
        to.append(f"when {_shown_value(condition)}")
    for target in [*_as_list(statement.get("Resource", [])), *_as_list(statement.get("NotResource", []))]:
        without = "all but " if "NotResource" in statement else ""
        yield " ".join([*lines, f"on {without}{_shown_value(target)}", *to])
    if "Resource" not in statement and "NotResource" not in statement:
        yield " ".join([*lines, *to])


def _element_text_if_present(statement: Mapping[str, Any], key: str, word: str = "") -> list[str]:
    """Return the values of a statement's element in one text, none without it."""
    if key not in statement:
        return []
    values = ", ".join(map(_shown_value, _as_list(statement[key])))
    return [" ".join(filter(None, (word, "all but" if key.startswith("Not") else "", values)))]


def _shown_value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
