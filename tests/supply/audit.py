"""What is known against the pinned parts.

Every database is first asked about a part that has a known vulnerability. Where it does not tell of that one it was not
reached, or answers nothing, and the audit has failed: tools that cannot look anything up say that nothing was found.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from ruamel.yaml import YAML

from tests.supply.parts import Part, node_locks, parts, python_locks

OSV = "https://api.osv.dev/v1/querybatch"
PYTHON_CANARY = ("jinja2", "2.4.1")
NODE_CANARY = ("minimist", "0.0.8")
JAR_CANARY = Part("maven", "org.apache.logging.log4j:log4j-core", "2.14.1", "")
"""Parts that have been known to be vulnerable for years."""

_SECONDS = 300


class LookUpError(RuntimeError):
    """A database was not reached, or gave no answer that can be trusted."""


@dataclass(frozen=True, order=True)
class Known:
    """One vulnerability of one part."""

    package: str
    version: str
    id: str
    where: str
    mended_in: str = ""


class Excused(BaseModel):
    """A vulnerability that stands for a reason, until a day.

    Attributes
    ----------
    reason
        Why it does not matter here.
    until
        After that day it has to be looked at again.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    package: str
    reason: str = Field(min_length=20)
    until: date


Run = Callable[[Sequence[str], Path], str]
"""Runs a program in a folder and returns its standard output, whatever its status."""

Ask = Callable[[list[Part]], list[list[str]]]
"""Ids of what is known against each of some jars."""


def run(command: Sequence[str], folder: Path) -> str:
    """Run a program."""
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LookUpError(f"{command[0]}: {error}") from error
    return done.stdout


def ask_osv(jars: list[Part]) -> list[list[str]]:
    """Ask the OSV database about Maven packages (https://google.github.io/osv.dev/post-v1-querybatch/)."""
    body = json.dumps({"queries": [{"package": {"purl": jar.purl}} for jar in jars]}).encode()
    request = urllib.request.Request(OSV, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            results = json.load(answer)["results"]
    except (urllib.error.URLError, TimeoutError, ValueError, KeyError) as error:
        raise LookUpError(f"{OSV}: {error}") from error
    return [[each["id"] for each in result.get("vulns", ())] for result in results]


def python(root: Path, pip_audit: str, run: Run = run) -> Iterator[Known]:
    """Ask about all Python packages, by pip-audit.

    Raises
    ------
    LookUpError
        It does not tell of the canary.
    """
    with tempfile.TemporaryDirectory() as scratch:
        canary = Path(scratch) / "requirements.txt"
        canary.write_text("{}=={}\n".format(*PYTHON_CANARY))
        if not list(_of_lock(canary, pip_audit, run, hashed=False)):
            raise LookUpError(f"pip-audit knows nothing against {PYTHON_CANARY[0]} {PYTHON_CANARY[1]}")
    for lock in python_locks(root):
        yield from _of_lock(lock, pip_audit, run, hashed=True)


def _of_lock(lock: Path, pip_audit: str, run: Run, *, hashed: bool) -> Iterator[Known]:
    command = [pip_audit, "--format", "json", "--progress-spinner", "off", "--disable-pip", "--no-deps"]
    command += ["--require-hashes"] if hashed else []
    told = _parsed("pip-audit", run([*command, "--requirement", str(lock)], lock.parent))
    for each in told["dependencies"]:
        if "skip_reason" in each:
            raise LookUpError(f"pip-audit passed over {each['name']}: {each['skip_reason']}")
        for result in each["vulns"]:
            mended = ", ".join(result["fix_versions"])
            yield Known(each["name"], each["version"], result["id"], lock.name, mended)


def node(root: Path, npm: Sequence[str], run: Run = run) -> Iterator[Known]:
    """Ask about all Node packages, by npm.

    Raises
    ------
    LookUpError
        It does not tell of the canary.
    """
    name, version = NODE_CANARY
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        package = {"name": "canary", "version": "1.0.0", "dependencies": {name: version}}
        lock = package | {
            "lockfileVersion": 3,
            "packages": {"": package, f"node_modules/{name}": {"version": version}},
        }
        (folder / "package.json").write_text(json.dumps(package))
        (folder / "package-lock.json").write_text(json.dumps(lock))
        if not list(_of_folder(folder, npm, run)):
            raise LookUpError(f"npm knows nothing against {name} {version}")
    for file in node_locks(root):
        yield from _of_folder(file.parent, npm, run)


def _of_folder(folder: Path, npm: Sequence[str], run: Run) -> Iterator[Known]:
    told = _parsed("npm audit", run([*npm, "audit", "--json"], folder))
    if "vulnerabilities" not in told:
        raise LookUpError(f"npm audit: {told.get('message') or told.get('error') or 'no answer'}")
    for name, each in told["vulnerabilities"].items():
        for cause in each["via"]:
            if isinstance(cause, dict):  # otherwise the name of the package that is the cause
                yield Known(name, each["range"], str(cause["url"]).rpartition("/")[2], "package-lock.json")


def jars(root: Path, ask: Ask = ask_osv) -> Iterator[Known]:
    """Ask about all JVM jars.

    Raises
    ------
    LookUpError
        The database does not tell of the canary.
    """
    pinned = [part for part in parts(root) if part.kind == "maven"]
    answers = ask([JAR_CANARY, *pinned])
    if len(answers) != len(pinned) + 1 or not answers[0]:
        raise LookUpError(f"the database knows nothing against {JAR_CANARY.name} {JAR_CANARY.version}")
    for part, ids in zip(pinned, answers[1:], strict=True):
        for id_ in ids:
            yield Known(part.name, part.version, id_, part.file)


def _parsed(program: str, text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise LookUpError(f"{program} gave no answer: {text[:300] or 'nothing on its output'}") from None


def excused(file: Path) -> tuple[Excused, ...]:
    """Read the list of vulnerabilities that stand."""
    return TypeAdapter(tuple[Excused, ...]).validate_python(YAML(typ="safe").load(file) or [])


def open_ones(found: Iterable[Known], known: Iterable[Excused], today: date) -> list[Known]:
    """Vulnerabilities that nothing excuses today."""
    valid = {(each.id, each.package) for each in known if each.until >= today}
    return sorted({each for each in found if (each.id, each.package) not in valid})


def forgotten(found: Iterable[Known], known: Iterable[Excused]) -> list[Excused]:
    """Entries that excuse nothing any more."""
    seen = {(each.id, each.package) for each in found}
    return [each for each in known if (each.id, each.package) not in seen]


def pip_audit(root: Path) -> str:
    """Where ``make audit`` puts the program."""
    return str(root / ".millrace" / "audit" / "bin" / "pip-audit")
