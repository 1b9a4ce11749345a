"""``millrace plan --diff``: differences in size and cost from another version of the project."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from millrace.config import ConfigurationError, load
from millrace.config.problems import wrong_option
from millrace.sizing import plan
from millrace.sizing.export import VERSION, to_json
from millrace.sizing.plan_difference import MONEY, Difference

_ALLOWED = "a commit, branch or tag of the project's repository, or a file that `millrace plan --json` wrote"


def plan_to_compare(reference: str, env: str, root: Path) -> Mapping[str, Any]:
    """Return the plan to compare with, as ``millrace plan --json`` prints it.

    Parameters
    ----------
    reference
        A file, or a name that git resolves to a commit.
    env
        As given to the command.

    Raises
    ------
    ConfigurationError
        The reference is neither such a file nor a commit, or the environment did not exist there or was invalid.
    """
    if Path(reference).is_file():
        return _of_file(Path(reference))

    with tempfile.TemporaryDirectory() as folder:
        _unpack(reference, root, Path(folder))
        given = Path(env)
        name = Path(folder) / given.resolve().relative_to(root) if given.suffix in (".yaml", ".yml") else env
        try:
            found: Mapping[str, Any] = json.loads(json.dumps(to_json(plan(load(name, root=Path(folder))))))
        except ConfigurationError as error:
            raise wrong_option(
                "--diff", reference, f"{_ALLOWED}; there {env} has no plan: {error}"
            ) from error
    return found


def _of_file(file: Path) -> Mapping[str, Any]:
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise wrong_option("--diff", str(file), f"{_ALLOWED}: {error}") from error
    if not isinstance(document, dict) or document.get("version") != VERSION or "jobs" not in document:
        raise wrong_option("--diff", str(file), f"{_ALLOWED}, of version {VERSION}")
    return document


def _unpack(reference: str, root: Path, folder: Path) -> None:
    """Extract the project's files of a commit into a folder."""
    # Git would read a leading dash as an option.
    asked = ["git", "-C", str(root), "archive", "--format=tar", "--end-of-options", reference, "."]
    try:
        done = subprocess.run(asked, capture_output=True, check=False)
    except FileNotFoundError as error:
        raise wrong_option("--diff", reference, f"{_ALLOWED}: there is no git here") from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise wrong_option("--diff", reference, f"{_ALLOWED}: {said[0] if said else 'git failed'}")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as packed:
        members = [member for member in packed if _is_inside(member, str(folder))]
        packed.extractall(folder, members=members, filter="data")


def _is_inside(member: tarfile.TarInfo, folder: str) -> bool:
    """Return whether it neither lies nor leads outside of the folder, as an absolute link does: no plan is made of that."""
    try:
        tarfile.data_filter(member, folder)
    except tarfile.FilterError:
        return False
    return True


def as_json(found: Sequence[Difference]) -> dict[str, Any]:
    """Return ``version`` (1) and ``differences``: objects of ``key``, ``unit``, ``before``, ``after`` and ``more``."""
    rows = [
        {
            "key": each.key,
            "unit": each.unit,
            "before": each.before,
            "after": each.after,
            "more": each.increase,
        }
        for each in found
    ]
    return {"version": 1, "differences": rows}


def cells(each: Difference) -> tuple[str, str, str, str]:
    """Return key, before, after and increase, formatted for people."""
    money = each.unit == MONEY

    def shown(value: float | str | None, *, sign: bool = False) -> str:
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
        shown(each.before),
        shown(each.after),
        "" if more is None else shown(int(more) if whole else more, sign=True),
    )


def markdown_table(found: Sequence[Difference], reference: str) -> str:
    """Return a table for a pull request."""
    if not found:
        return f"No difference from the plan of `{reference}`.\n"
    rows = ["| | before | after | |", "|---|---|---|---|"]
    rows += [f"| `{key}` | {before} | {after} | {more} |" for key, before, after, more in map(cells, found)]
    return "\n".join(rows) + "\n"
