"""Changes of the advice in the environment file: comments and order stay, an invalid change writes nothing."""

from __future__ import annotations

import difflib
import json
import re
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter

from millrace.advisor.findings.advised_job_keys_and_cost import AdvisedJob, EnvironmentJob
from millrace.advisor.findings.model import Advice, Change
from millrace.config import ConfigurationError, Environment, Problem, environment_names, load
from millrace.config.document.edit_yaml_text import EditError, remove_key, set_value
from millrace.config.document.explain_validation_errors import shown_value
from millrace.config.document.problems import Path as Key
from millrace.config.document.problems import dotted_path
from millrace.config.document.yaml_tree import DocumentError, Tree, read_document
from millrace.config.units import Size, parse_duration
from millrace.sizing import Plan, plan, total_cost

_SIZE: TypeAdapter[int] = TypeAdapter(Size)
_STEP = re.compile(r"([^.\[\]]+)|\[([^\]]+)\]")


@dataclass(frozen=True)
class EditedFile:
    """One file with changes that are not written yet.

    Attributes
    ----------
    file
        Its path.
    name
        Relative to the project, for people.
    before, after
        Its text.
    """

    file: Path
    name: str
    before: str
    after: str

    def diff(self) -> str:
        """Return the change as a unified diff."""
        lines = difflib.unified_diff(
            self.before.splitlines(keepends=True),
            self.after.splitlines(keepends=True),
            f"a/{self.name}",
            f"b/{self.name}",
        )
        return "".join(
            line if line.endswith("\n") else f"{line}\n\\ no newline at the end\n" for line in lines
        )


@dataclass(frozen=True)
class TriedChanges:
    """Changes of one environment that were tried: it stays valid and can be planned.

    Attributes
    ----------
    files
        The changed files.
    before, after
        Its plan without and with the changes.
    """

    files: tuple[EditedFile, ...]
    before: Plan
    after: Plan

    def write(self) -> None:
        """Replace the files, each atomically.

        Raises
        ------
        ConfigurationError
            A file cannot be written, or was changed in the meantime; the files before it are written.
        """
        for each in self.files:
            try:
                if _read_text(each.file) != each.before:
                    raise _change_error(
                        each.name,
                        "changed by another program while this command ran",
                        "a file that stays as this command read it; repeat the command",
                    )
                with tempfile.NamedTemporaryFile(
                    "w", encoding="utf-8", newline="", dir=each.file.parent, prefix=".", delete=False
                ) as stream:
                    stream.write(each.after)
                new = Path(stream.name)
                new.chmod(each.file.stat().st_mode & 0o777)
                new.replace(each.file)
            except OSError as error:
                raise _change_error(
                    each.name, error.strerror or str(error), "a file that you have permission to write"
                ) from error


class RefusedChangesError(ConfigurationError):
    """The environment would be invalid with the changes, or could not be planned."""


def try_changes(file: Path, changes: Sequence[Change], root: Path) -> TriedChanges:
    """Try changes on an environment without writing anything.

    A value is changed in the file that holds it. Where other environments share that file, the
    environment's own file gets the value, so that the others keep theirs.

    Parameters
    ----------
    changes
        Changes of kind ``environment``, each of another key.

    Raises
    ------
    ConfigurationError
        A value is no longer the one that the advice saw, or a key cannot be changed by a program.
    RefusedChangesError
        The environment would be invalid or could not be planned.
    """
    root = root.resolve()
    environment = load(str(file), root, open_engines=True)
    tree = environment.value_locations.tree
    assert tree is not None
    problems = []
    for change in changes:
        now = _value_at_path(tree, parse_dotted_key(change.key))
        # The values mean the same, as 60s and 1m do.
        if str(now) != str(change.old) and not _possible_numbers(now) & _possible_numbers(change.old):
            file_of_key, line = environment.value_locations.file_and_line(parse_dotted_key(change.key))
            problems.append(
                Problem(
                    file_of_key,
                    line,
                    change.key,
                    _shown_value(now),
                    f"{_shown_value(change.old)}, the value from which the advice was made; make the advice again",
                )
            )
    if problems:
        raise ConfigurationError(problems)
    texts: dict[Path, str] = {}
    paths = [parse_dotted_key(each.key) for each in changes]
    for change, path in zip(changes, paths, strict=True):
        target = _file_to_change(tree, path, file.resolve(), root)
        text = texts.get(target) or _read_text(target)
        try:
            removed = change.new is None
            texts[target] = remove_key(text, path) if removed else set_value(text, path, change.new)
            _check_nothing_else_changed(target, text, texts[target], paths)
        except (EditError, DocumentError) as error:
            raise _edit_by_hand_error(environment, target, change, str(error)) from None
    found = [
        EditedFile(each, environment.value_locations.relative_file_name(each), _read_text(each), text)
        for each, text in texts.items()
    ]
    try:
        changed = load(str(file), root, texts)
        after = plan(changed)
    except ConfigurationError as error:
        raise RefusedChangesError(error.problems) from None
    for change, path in zip(changes, paths, strict=True):
        assert changed.value_locations.tree is not None
        value = _value_at_path(changed.value_locations.tree, path)
        if value != change.new:  # another file or a merge key has the key, too
            name, line = changed.value_locations.file_and_line(path)
            reason = f"it would be {_shown_value(value)}, from {name}:{line}"
            target = _file_to_change(tree, path, file.resolve(), root)
            raise _edit_by_hand_error(environment, target, change, reason)
    return TriedChanges(tuple(found), plan(environment), after)


def advice_with_planned_savings(advice: Advice, subject: AdvisedJob) -> Advice:
    """Return the advice on a job of an environment without changes that its plan refuses, and with the dollars that a plan with each change saves; of others unchanged."""
    if not isinstance(subject, EnvironmentJob):
        return advice
    places = subject.environment.value_locations
    assert places.tree is not None
    findings, notes = [], list(advice.notes)
    for finding in advice.findings:
        saved: dict[Change, float] = {}
        for change in finding.changes:
            saved[change] = 0.0
            if change.kind != "environment":
                continue
            keys = [each for each in (change, *change.also) if each.kind == "environment"]
            try:
                tried = try_changes(places.tree.file, keys, places.root)
            except RefusedChangesError as error:
                del saved[change]
                reasons = "; ".join(
                    f"{each.key} is {each.value}; allowed: {each.allowed}" for each in error.problems
                )
                notes.append(
                    f"{finding.kind}: {change.key} stays {_shown_value(change.old)}: with {_shown_value(change.new)} the plan refuses it ({reasons})"
                )
            except ConfigurationError:  # an edit by hand has no price
                continue
            else:
                before, after = (round(total_cost(each).value, 2) for each in (tried.before, tried.after))
                saved[change] = round(before - after, 2)
        best = next(iter(saved.values()), 0.0)
        findings.append(replace(finding.with_changes(saved), dollars_a_month=best if best > 0 else None))
    ordered = sorted(findings, key=lambda each: each.worth, reverse=True)
    return replace(advice, findings=tuple(ordered), notes=tuple(notes))


def parse_dotted_key(key: str) -> Key:
    """Split a dotted path into its keys.

    Examples
    --------
    >>> parse_dotted_key("jobs.clicks.spark[spark.sql.shuffle.partitions]")
    ('jobs', 'clicks', 'spark', 'spark.sql.shuffle.partitions')
    """
    return tuple(
        int(bracketed) if bracketed.isdecimal() else plain or bracketed
        for plain, bracketed in _STEP.findall(key)
    )


def _value_at_path(tree: Tree, path: Key) -> object:
    node = tree.at(path)
    return None if node is None else node.to_json()


def _possible_numbers(value: object) -> set[float]:
    """Return a value as seconds, bytes or a plain number, by what its text can be read as."""
    result = set()
    for parse in (lambda text: parse_duration(text).total_seconds(), _SIZE.validate_python, float):
        with suppress(ValueError):  # pydantic's error is one, too
            result.add(float(parse(str(value))))
    return result


def _file_to_change(tree: Tree, path: Key, own_file: Path, root: Path) -> Path:
    """Return the file to change: the one with the value, or the environment's own where others share that file."""
    node = tree.nearest_existing(path)
    if _value_at_path(tree, path) is None or node.file == own_file:
        return own_file
    others = [root / "environments" / f"{name}.yaml" for name in environment_names(root)]
    shared = [
        each
        for each in others
        if each != own_file and node.file in _files_of_tree(_tree_of_environment(each, root))
    ]
    return own_file if shared else node.file


def _tree_of_environment(file: Path, root: Path) -> Tree | None:
    """Return another environment's tree; None for an invalid one, which counts as sharing nothing."""
    try:
        return load(str(file), root).value_locations.tree
    except ConfigurationError:
        return None


def _files_of_tree(tree: Tree | None) -> set[Path]:
    if tree is None:
        return set()
    children = tree.value.values() if isinstance(tree.value, dict) else tree.value
    below = map(_files_of_tree, children) if isinstance(tree.value, dict | list) else ()
    return {tree.file}.union(*below)


def _check_nothing_else_changed(file: Path, before: str, after: str, paths: Sequence[Key]) -> None:
    """Check that an edit changed no value but those at some paths."""
    old, new = (dict(read_document(file, text).tree.leaves) for text in (before, after))
    for path in [*old, *new]:
        asked = any(path[: len(each)] == each for each in paths)
        if not asked and (path in old, old.get(path)) != (path in new, new.get(path)):
            raise EditError(f"{dotted_path(path)} would change with it, by a YAML anchor or a merge key")


def _edit_by_hand_error(
    environment: Environment, file: Path, change: Change, reason: str
) -> ConfigurationError:
    name = environment.value_locations.relative_file_name(file)
    place, line = environment.value_locations.file_and_line(parse_dotted_key(change.key))
    allowed = f"an edit by hand, as {reason}"
    return ConfigurationError(
        [Problem(name, line if place == name else 0, change.key, _shown_value(change.old), allowed)]
    )


def _read_text(file: Path) -> str:
    with file.open(encoding="utf-8", newline="") as stream:
        return stream.read()


def _shown_value(value: object) -> str:
    return "not set" if value is None else shown_value(json.loads(json.dumps(value, default=str)))


def _change_error(file: str, value: str, allowed: str) -> ConfigurationError:
    return ConfigurationError([Problem(file, 0, "", value, allowed)])
