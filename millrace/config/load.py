"""Loading of environment files: one checked environment, or all problems at once."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path as FilePath
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from millrace.config.aws import foreign_accounts_and_hosts
from millrace.config.checks import run_environment_checks as checks
from millrace.config.document import explain_validation_errors, plain_text_secrets
from millrace.config.document.locations import Locations
from millrace.config.document.placeholders_left_by_import import findings_of_placeholders
from millrace.config.document.problems import (
    MISSING,
    ConfigurationError,
    Finding,
    Path,
    Problem,
    dotted_path,
    first_finding_of_each_path,
)
from millrace.config.document.yaml_tree import DocumentError, Tree, is_file, merge_trees, read_document
from millrace.config.engines import KINDS
from millrace.config.model import Environment
from millrace.config.valid_parts import (
    environment_of_valid_parts,
    section_adapter,
    value_at,
    without_consequential_findings,
)

EXTENDS = "extends"
"""Key that names the file which this one extends."""


def find_root() -> FilePath:
    """Return the project's folder: the nearest one upward that holds ``environments``, or the working directory."""
    here = FilePath.cwd().resolve()
    return next((each for each in (here, *here.parents) if (each / "environments").is_dir()), here)


def environment_names(root: FilePath | None = None) -> tuple[str, ...]:
    """Return the names of a project's environments.

    A file that others extend is none if it is called ``base``, or extends nothing and has no jobs.

    Parameters
    ----------
    root
        Folder of the project; found upward from the working directory if left out.
    """
    folder = (root or find_root()) / "environments"
    parents: set[str] = set()
    names, parts = [], {"base"}
    for file in sorted(filter(is_file, folder.glob("*.yaml"))):
        names.append(file.stem)
        try:
            tree = read_document(file).tree
        except DocumentError:
            continue
        if (parent := tree.child(EXTENDS)) is not None:
            parents.add(str(parent.value))
        elif tree.child("jobs") is None:
            parts.add(file.stem)
    return tuple(name for name in names if name not in parents & parts)


def load(
    name_or_path: str | FilePath,
    root: FilePath | None = None,
    texts: Mapping[FilePath, str] = MappingProxyType({}),
    *,
    open_engines: bool = False,
) -> Environment:
    """Load and check an environment.

    Parameters
    ----------
    name_or_path
        A name (``prod`` is ``environments/prod.yaml``) or the path of a YAML file.
    root
        Folder of the project, for names, schemas and transforms; found upward from the
        working directory if left out.
    texts
        Texts in the place of those on disk, by absolute path: a file that is not written yet.
    open_engines
        Whether jobs may leave `engine` out: such a job has the first one that takes its keys.

    Returns
    -------
    Environment
        Frozen; its name is the file's.

    Raises
    ------
    ConfigurationError
        With every problem of the file and of those it extends.

    Examples
    --------
    >>> load("prod").streams["departures"].kind
    'kinesis'
    """
    root = (root or find_root()).resolve()
    file = _environment_file(str(name_or_path), root, texts)
    problems: list[Problem] = []
    tree = _read_file_and_extended_ones(file, root, problems, (), texts)
    places = Locations(tree, root)
    plain = {key: value for key, value in tree.to_json().items() if key != EXTENDS}
    findings = [*findings_of_placeholders(tree), *plain_text_secrets.findings_of_secrets(tree)]
    if "name" in plain:
        findings.append(
            Finding(("name",), str(plain.pop("name")), "no name: the file's name is the environment's")
        )
    plain["name"] = file.stem
    if open_engines:
        _set_missing_engines(plain)
    environment, wrong = _environment_or_findings(plain, tree)
    findings += wrong
    findings += _shared_resource_findings(file, plain, root)
    checked, known = environment_of_valid_parts(plain) if environment is None else (environment, frozenset())
    later = checks.run_checks(
        checked, _declared_names(plain, "streams"), _declared_names(plain, "kafka"), root
    )
    findings += without_consequential_findings(later, findings, known)
    findings += without_consequential_findings(foreign_accounts_and_hosts.port_findings(tree), findings)
    other_accounts_are_known = not any(
        each.path in (("governance",), ("governance", "other_accounts")) for each in findings
    )
    if checked.account is not None and other_accounts_are_known:
        foreign = foreign_accounts_and_hosts.foreign_account_findings(
            tree, checked.account, checked.governance.other_accounts
        )
        findings += without_consequential_findings(foreign, findings)
    if not any(each.path == ("region",) for each in findings):
        elsewhere = foreign_accounts_and_hosts.foreign_region_findings(tree, checked.region)
        findings += without_consequential_findings(elsewhere, findings)
    problems += [places.problem_of_finding(finding) for finding in first_finding_of_each_path(findings)]
    if problems or environment is None:
        raise ConfigurationError(problems)
    environment._places = places
    return environment


def declared_job_names(name_or_path: str) -> tuple[str, ...]:
    """Return the jobs of an environment's files, which may have mistakes; none of a file that cannot be read."""
    root = find_root()
    try:
        file = _environment_file(name_or_path, root, {})
        tree = _read_file_and_extended_ones(file, root, [], (), {})
    except ConfigurationError:
        return ()
    return tuple(_declared_names(tree.to_json(), "jobs"))


def _environment_file(name: str, root: FilePath, texts: Mapping[FilePath, str]) -> FilePath:
    if name.endswith((".yaml", ".yml")) or "/" in name:
        file = FilePath(name).resolve()
        if file not in texts and not is_file(file):
            hint = explain_validation_errors.did_you_mean_text(file.stem, environment_names(root))
            raise ConfigurationError([Problem(name, 0, "", "no such file", "an existing YAML file", hint)])
        return file
    file = root / "environments" / f"{name}.yaml"
    if not is_file(file):
        known = environment_names(root)
        allowed = f"one of {', '.join(known)}" if known else "a file in environments/"
        shown = Locations(None, root).relative_file_name(file)
        hint = explain_validation_errors.did_you_mean_text(name, known)
        raise ConfigurationError([Problem(shown, 0, "", f"no environment {name!r}", allowed, hint)])
    return file


def _read_file_and_extended_ones(
    file: FilePath,
    root: FilePath,
    problems: list[Problem],
    above: tuple[FilePath, ...],
    texts: Mapping[FilePath, str],
) -> Tree:
    name = Locations(None, root).relative_file_name(file)
    try:
        document = read_document(file, texts.get(file))
    except DocumentError as error:
        raise ConfigurationError(
            [*problems, Problem(name, error.line, "", str(error), error.allowed)]
        ) from error
    problems += [
        Problem(name, line, dotted_path(finding.path), finding.value, finding.allowed)
        for finding, line in document.mistakes
    ]
    tree = document.tree
    if (extends := tree.child(EXTENDS)) is None:
        return tree
    parent = next(
        (
            each
            for folder in (file.parent, root / "environments")
            if isinstance(extends.value, str) and is_file(each := folder / f"{extends.value}.yaml")
        ),
        None,
    )
    if parent is None or parent in (file, *above):
        known = sorted(each.stem for each in file.parent.glob("*.yaml") if each != file)
        hint = explain_validation_errors.did_you_mean_text(str(extends.value), known)
        allowed = "the name of another file beside this one that does not extend it in turn"
        problems.append(
            Problem(
                name,
                extends.line,
                EXTENDS,
                explain_validation_errors.shown_value(extends.to_json()),
                allowed,
                hint,
            )
        )
        return tree
    return merge_trees(_read_file_and_extended_ones(parent, root, problems, (*above, file), texts), tree)


def _shared_resource_findings(file: FilePath, plain: dict[str, Any], root: FilePath) -> Iterator[Finding]:
    """Yield a finding for each existing bucket or database that another environment also uses: jobs of both would write there."""
    alone = _existing_buckets_and_database(plain)
    if not alone or file.parent != root / "environments":
        return
    for name in environment_names(root):
        other = file.parent / f"{name}.yaml"
        if other == file:
            continue
        try:
            theirs = _read_file_and_extended_ones(other, root, [], (), {}).to_json()
        except ConfigurationError:
            continue  # reported when that environment is loaded
        # Neither file has been checked: an account may be anything.
        accounts = value_at(plain, "account"), value_at(theirs, "account")
        if None not in accounts and accounts[0] != accounts[1]:
            continue
        names = _existing_buckets_and_database(theirs)
        for path, value in alone.items():
            if names.get(path) == value:
                allowed = (
                    f"a bucket or database that no other environment uses: jobs of {name} write there too"
                )
                yield Finding(path, value, allowed)


def _existing_buckets_and_database(plain: dict[str, Any]) -> dict[Path, str]:
    """Return the existing buckets and the database that only one environment may have; the file may be invalid."""
    paths = (("database",), ("buckets", "checkpoints"), ("buckets", "event-logs"))
    values = {("storage", *path): value_at(plain, "storage", *path) for path in paths}
    return {path: value for path, value in values.items() if isinstance(value, str)}


def _set_missing_engines(plain: dict[str, Any]) -> None:
    """Give each job without an engine the one that its keys fit best, the first of equal ones."""
    jobs = plain.get("jobs")
    for name, job in jobs.items() if isinstance(jobs, dict) else ():
        if isinstance(job, dict) and "engine" not in job:
            _set_tag_that_fits_best(plain, ("jobs", name, "engine"), [*KINDS])


def _environment_or_findings(plain: dict[str, Any], tree: Tree) -> tuple[Environment | None, list[Finding]]:
    """Return the environment, or the findings of all its values.

    Where a kind or an engine is none of the allowed ones, ``plain`` gets the one whose keys fit best, so that the other keys beside it
    are checked too.
    """
    findings: dict[Path, Finding] = {}
    guessed: set[Path] = set()
    while True:
        try:
            # From JSON and strict: YAML has typed its scalars, so "4" is no number and true is not 1.
            environment = Environment.model_validate_json(json.dumps(plain), strict=True)
            return (None, [*findings.values()]) if findings else (environment, [])
        except ValidationError as error:
            wrong = explain_validation_errors.findings_of_validation_error(
                error, Environment, tree.scalar_text
            )
            replaced = False
            for each, one in zip(error.errors(include_url=False), wrong, strict=True):
                is_tag = each["type"] in ("union_tag_invalid", "union_tag_not_found")
                if is_tag and one.path not in findings:
                    replaced |= _set_tag_that_fits_best(plain, one.path, one.allowed.split(" or "))
                    guessed.add(one.path[:-1])
                # Which keys there may be beside a kind, and which must, follows from the kind that was meant.
                if each["type"] not in ("extra_forbidden", "missing") or one.path[:-1] not in guessed:
                    findings.setdefault(one.path, replace(one, hint=_hint_for_finding(one)))
            if not replaced:
                return None, [*findings.values()]


def _set_tag_that_fits_best(plain: dict[str, Any], path: Path, tags: Sequence[str]) -> bool:
    """Put the kind, or engine, into a file's plain values with which they have the fewest mistakes; False if its holder is no mapping."""
    holder = value_at(plain, *path[:-1])
    if not isinstance(holder, dict):
        return False
    # Of a member alone: a file may have hundreds of them.
    section = {path[1]: value_at(plain, *path[:2])} if len(path) > 2 else plain[str(path[0])]

    def mistakes(tag: str) -> int:
        holder[path[-1]] = tag
        try:
            section_adapter(str(path[0])).validate_json(json.dumps(section), strict=True)
        except ValidationError as error:
            return error.error_count()
        return 0

    holder[path[-1]] = min(tags, key=mistakes)
    return True


def _hint_for_finding(finding: Finding) -> str | None:
    if finding.path == ("name",):
        return "the name of the file"
    of_engine = finding.path[::2] == ("jobs", "engine") and finding.value == MISSING
    return "`millrace plan` takes the cheaper one" if of_engine else finding.hint


def _declared_names(plain: dict[str, Any], section: str) -> Set[str]:
    """Return the names of all members of a section, also of broken ones."""
    members = plain.get(section)
    return members.keys() if isinstance(members, dict) else frozenset()
