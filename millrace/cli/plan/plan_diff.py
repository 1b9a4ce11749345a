"""``millrace plan --diff``: differences in size and cost from another version of the project."""

from __future__ import annotations

import io
import json
import re
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from millrace.cli.plan.report.permission_diff_between_versions import Templates, synthesize_templates
from millrace.config import ConfigurationError, Environment, load
from millrace.config.document.problems import dotted_path, wrong_option_error
from millrace.sizing import plan
from millrace.sizing.alternatives.plan_difference import MONEY, PlanDifference
from millrace.sizing.plan_as_plain_data import VERSION, plan_as_plain_data

_GUARDS = re.compile(
    r"(^|\.)(account|project|name|region|removal|governance|redact|(\w+_)?(role|endpoint)|keys|buckets|image|arn|channels"
    r"|(\w+_|(?<!sink\.)(?<!latest_by\.)(?<!state\.))key|disposable|url|host|secret|bootstrap_servers|authentication|tls|authorities|existing|domain|clients|certificate|database"
    r"|sign_in|network|vpc|subnets|notify|transform|spark|connections|registry|location|lake_formation)(\.|\[|$)"
)
"""Keys that say who may do what, where data goes, what is hidden or kept, and which code runs; a key of rows is a column."""

_ENVIRONMENT = (".yaml", ".yml")
_ALLOWED = "a commit, branch or tag of the project's repository, another environment's file, or a file that `millrace plan --json` wrote"


@dataclass(frozen=True)
class KeyChange:
    """A key whose value differs; None where there is no such key.

    Attributes
    ----------
    guards
        Whether the key guards or opens something.
    """

    key: str
    before: str | None
    after: str | None
    guards: bool

    def __str__(self) -> str:
        before, after = ("-" if each is None else each for each in (self.before, self.after))
        return f"{self.key}: {before} → {after}{' (security)' if self.guards else ''}"


ComparedVersion = tuple[Mapping[str, Any], Mapping[str, str] | None, Templates | None]
"""A version's plan, as ``millrace plan --json`` prints it; values of its environment by key, None for a file, which holds the plan
alone; and its templates, if they were asked for.
"""


def version_to_compare(reference: str, env: str, root: Path, *, with_templates: bool) -> ComparedVersion:
    """Return the version to compare with.

    Parameters
    ----------
    reference
        The file of another environment, a file that ``millrace plan --json`` wrote, or a name that git resolves to a commit.
    env
        As given to the command.

    Raises
    ------
    ConfigurationError
        The reference is neither such a file nor a commit, or the environment did not exist there or was invalid.
    """
    if Path(reference).is_file() and Path(reference).suffix in _ENVIRONMENT:
        return _planned_version(load(reference, root=root), root, with_templates=with_templates)
    if Path(reference).is_file():
        if with_templates:
            raise wrong_option_error(
                "--templates",
                reference,
                "a commit, branch or tag, because --templates cannot compare with a file",
            )
        return _read_plan_document(Path(reference)), None, None

    file, project = Path(env), root.resolve()
    if file.suffix in _ENVIRONMENT and not file.resolve().is_relative_to(project):
        raise wrong_option_error(
            "--diff",
            reference,
            f"another environment's file or one that `millrace plan --json` wrote, as no commit has {env}, which lies outside of "
            "the project",
        )
    with tempfile.TemporaryDirectory() as folder:
        _extract_commit(reference, root, Path(folder))
        # Jars are those of the lock in each version, and only set-up fetches them.
        if not (state := Path(folder) / ".millrace").exists():
            state.symlink_to(root / ".millrace")
        name = Path(folder) / file.resolve().relative_to(project) if file.suffix in _ENVIRONMENT else env
        try:
            environment = load(name, root=Path(folder))
            return _planned_version(environment, Path(folder), with_templates=with_templates)
        except ConfigurationError as error:
            raise wrong_option_error(
                "--diff", reference, f"{_ALLOWED}; at that version {env} cannot be planned: {error}"
            ) from error


def _planned_version(environment: Environment, root: Path, *, with_templates: bool) -> ComparedVersion:
    document = json.loads(json.dumps(plan_as_plain_data(plan(environment))))
    templates = synthesize_templates(environment, root) if with_templates else None
    return document, values_by_key(environment), templates


def values_by_key(environment: Environment) -> dict[str, str]:
    """Return all values of an environment's files, merged, by their dotted keys."""
    tree = environment.value_locations.tree
    leaves = () if tree is None else tree.leaves
    return {dotted_path(path): str(value) for path, value in leaves if path != ("extends",)}


def changed_keys(before: Mapping[str, str], after: Mapping[str, str]) -> list[KeyChange]:
    """Return the keys whose values differ, those that guard or open something first."""
    changes = [
        KeyChange(key, before.get(key), after.get(key), bool(_GUARDS.search(key)))
        for key in dict.fromkeys([*before, *after])
        if before.get(key) != after.get(key)
    ]
    return sorted(changes, key=lambda each: not each.guards)


def _read_plan_document(file: Path) -> Mapping[str, Any]:
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise wrong_option_error("--diff", str(file), f"{_ALLOWED}: {error}") from error
    if not isinstance(document, dict) or document.get("version") != VERSION or "jobs" not in document:
        raise wrong_option_error("--diff", str(file), f"{_ALLOWED}, of version {VERSION}")
    return document


def _extract_commit(reference: str, root: Path, folder: Path) -> None:
    """Extract the project's files of a commit into a folder."""
    # Git would read a leading dash as an option.
    command = ["git", "-C", str(root), "archive", "--format=tar", "--end-of-options", reference, "."]
    try:
        done = subprocess.run(command, capture_output=True, check=False)
    except FileNotFoundError as error:
        raise wrong_option_error(
            "--diff", reference, f"{_ALLOWED}; comparing with a commit needs git, which is not installed"
        ) from error
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise wrong_option_error("--diff", reference, f"{_ALLOWED}: {lines[0] if lines else 'git failed'}")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as packed:
        packed.extractall(folder, filter=_member_if_inside_folder)  # noqa: S202 - the filter is stricter than "data"


def _member_if_inside_folder(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo | None:
    """Leave out what lies or leads outside of the folder, as an absolute link does: no plan is made of that."""
    try:
        return tarfile.data_filter(member, folder)
    except tarfile.FilterError:
        return None


def diff_document(
    differences: Sequence[PlanDifference], keys: Sequence[KeyChange], changes: Sequence[str] | None
) -> dict[str, Any]:
    """Return ``version`` (1), ``differences`` (``key``, ``unit``, ``before``, ``after``, ``more``), ``keys``, ``templates`` if given."""
    rows = [
        {
            "key": each.key,
            "unit": each.unit,
            "before": each.before,
            "after": each.after,
            "more": each.increase,
        }
        for each in differences
    ]
    document = {"version": 1, "differences": rows, "keys": [asdict(each) for each in keys]}
    return document if changes is None else {**document, "templates": list(changes)}


def difference_cells(each: PlanDifference) -> tuple[str, str, str, str]:
    """Return key, before, after and increase, formatted for people."""
    money = each.unit == MONEY

    def format_value(value: float | str | None, *, sign: bool = False) -> str:
        if value is None:
            return "-"
        if isinstance(value, str):
            return value
        plus = "+" if sign and value > 0 else "-" if value < 0 else ""
        if money:
            return f"{plus}${abs(value):,.2f}"
        number = f"{abs(value):,}" if isinstance(value, int) else f"{abs(value):,.6g}"
        unit = each.unit.removesuffix("s") if value == 1 and len(each.unit) > 1 else each.unit
        return f"{plus}{number}" if sign else f"{plus}{number} {unit}".rstrip()

    more = each.increase
    whole = isinstance(each.before, int) and isinstance(each.after, int)
    return (
        each.key,
        format_value(each.before),
        format_value(each.after),
        "" if more is None else format_value(int(more) if whole else more, sign=True),
    )


def changed_keys_as_markdown(key_changes: Sequence[KeyChange]) -> str:
    """Return a table of changed keys for a pull request; marked ones guard or open something."""
    if not key_changes:
        return ""

    def markdown_cell(value: str | None) -> str:
        # Whoever writes the file writes no table, link or mention of the comment.
        return (
            "-"
            if value is None
            else f"`{value.replace('`', ' ').replace('|', ' ').replace(chr(10), ' ')[:200]}`"
        )

    rows = ["", "| key | before | after | |", "|---|---|---|---|"]
    rows += [
        f"| {markdown_cell(each.key)} | {markdown_cell(each.before)} | {markdown_cell(each.after)} | {'**security**' if each.guards else ''} |"
        for each in key_changes
    ]
    return "\n".join(rows) + "\n"


def differences_as_markdown(differences: Sequence[PlanDifference], reference: str) -> str:
    """Return a table for a pull request."""
    if not differences:
        return f"No size and no cost differs from the plan of `{reference}`.\n"
    rows = ["| | before | after | |", "|---|---|---|---|"]
    rows += [
        f"| `{key}` | {before} | {after} | {more} |"
        for key, before, after, more in map(difference_cells, differences)
    ]
    return "\n".join(rows) + "\n"
