"""Pins of dependencies, patterns of secrets, and audits that fail without an answer."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.sandbox.programs.toolchain import ROOT
from tests.supply import vulnerability_audit
from tests.supply.bill_of_materials import bill
from tests.supply.pinned_parts import Part, parts
from tests.supply.secret_scan import find
from tests.supply.vulnerability_audit import Excused, Known, LookUpError


def test_everything_that_is_pinned_is_in_the_bill_with_its_hash() -> None:
    pinned = parts(ROOT)
    assert {"pypi", "maven", "npm"} == {part.kind for part in pinned}
    written = json.loads(bill(ROOT, "1.2.3"))
    assert written["metadata"]["component"]["version"] == "1.2.3"
    assert {each["purl"] for each in written["components"]} == {part.purl for part in pinned}
    assert all(each["hashes"] for each in written["components"])
    nag = next(each for each in written["components"] if each["purl"].startswith("pkg:pypi/cdk-nag@"))
    _, _, block = (ROOT / "requirements.txt").read_text().partition("cdk-nag==")
    assert {each["content"] for each in nag["hashes"]} == set(
        re.findall("sha256:([0-9a-f]{64})", block.partition("==")[0])
    )


def test_a_secret_in_a_file_is_found_and_named_without_being_told(tmp_path: Path) -> None:
    key = "AKIA" + "Q3EGRIYZ7JPFN4XS"
    (tmp_path / "job.py").write_text(f'ID = "{key}"\n')
    (result,) = find(tmp_path, ["job.py"])
    assert (result.at, result.line) == ("job.py", 1)
    assert key not in str(result)


Programs = Callable[[Sequence[str], Path], str]


def pip(*, canary: bool = True, known: dict[str, str] | None = None, skipped: str = "") -> Programs:
    """pip-audit, as it answers."""

    def run(command: Sequence[str], _folder: Path) -> str:
        lock = Path(command[-1]).read_text()
        dependencies: list[dict[str, Any]] = []
        if "jinja2==2.4.1" in lock:
            vulnerable = [{"id": "PYSEC-1", "fix_versions": ["2.8.1"]}] if canary else []
            dependencies.append({"name": "jinja2", "version": "2.4.1", "vulns": vulnerable})
        for name, result in (known or {}).items():
            if f"\n{name}==" in lock:
                dependencies.append(
                    {"name": name, "version": "1", "vulns": [{"id": result, "fix_versions": ["2"]}]}
                )
        if skipped:
            dependencies.append({"name": skipped, "skip_reason": "not found"})
        return json.dumps({"dependencies": dependencies})

    return run


def test_what_is_known_of_a_python_package_is_told_with_its_lock() -> None:
    result = list(vulnerability_audit.python(ROOT, "pip-audit", pip(known={"cdk-nag": "PYSEC-9"})))
    assert result == [Known("cdk-nag", "1", "PYSEC-9", "requirements.txt", "2")]


@pytest.mark.parametrize(
    ("programs", "why"),
    [
        (pip(canary=False), "knows nothing against jinja2"),
        (pip(skipped="pyspark"), "passed over pyspark"),
        (lambda _command, _folder: "", "gave no answer"),
    ],
    ids=["an empty database", "a package that it did not find", "no answer"],
)
def test_a_python_audit_that_asked_nobody_fails(programs: Programs, why: str) -> None:
    with pytest.raises(LookUpError, match=why):
        list(vulnerability_audit.python(ROOT, "pip-audit", programs))


def npm(answer: dict[str, Any], *, canary: bool = True) -> Programs:
    def run(_command: Sequence[str], folder: Path) -> str:
        if folder == ROOT:
            return json.dumps(answer)
        if folder.is_relative_to(ROOT):
            return json.dumps({"vulnerabilities": {}})
        return json.dumps({"vulnerabilities": WRONG if canary else {}})

    return run


WRONG = {
    "minimist": {"via": [{"url": "https://github.com/advisories/GHSA-1"}, "other"], "range": "<1.2.6"},
}


def test_what_is_known_of_a_node_package_is_told() -> None:
    result = list(vulnerability_audit.node(ROOT, ["npm"], npm({"vulnerabilities": WRONG})))
    assert result == [Known("minimist", "<1.2.6", "GHSA-1", "package-lock.json")]


@pytest.mark.parametrize(
    ("programs", "why"),
    [
        (npm({"vulnerabilities": {}}, canary=False), "knows nothing against minimist"),
        (npm({"message": "request to /advisories/bulk failed"}), "bulk failed"),
        (npm({"error": {"summary": "no"}}), "npm audit: "),
    ],
)
def test_a_node_audit_that_asked_nobody_fails(programs: Programs, why: str) -> None:
    with pytest.raises(LookUpError, match=why):
        list(vulnerability_audit.node(ROOT, ["npm"], programs))


def test_jars_are_asked_about_one_by_one_and_an_empty_answer_fails() -> None:
    def ask(jars: list[Part]) -> list[list[str]]:
        return [
            ["GHSA-log4j"] if jar.name.endswith("log4j-core") and jar.version == "2.14.1" else []
            for jar in jars
        ]

    assert list(vulnerability_audit.jars(ROOT, ask)) == []
    with pytest.raises(LookUpError, match=r"log4j-core 2\.14\.1"):
        list(vulnerability_audit.jars(ROOT, lambda jars: [[] for _ in jars]))
    with pytest.raises(LookUpError):
        list(vulnerability_audit.jars(ROOT, lambda _jars: [["GHSA-1"]]))


def test_a_program_that_is_not_there_fails(tmp_path: Path) -> None:
    with pytest.raises(LookUpError, match="no-such-program"):
        vulnerability_audit.run([str(tmp_path / "no-such-program")], tmp_path)


@given(until=st.dates(), today=st.dates())
def test_an_excuse_holds_until_its_day(until: date, today: date) -> None:
    result = [Known("a", "1", "X-1", "lock")]
    entry = Excused(id="X-1", package="a", reason="never reached from any input", until=until)
    assert vulnerability_audit.open_ones(result, [entry], today) == ([] if today <= until else result)
    assert vulnerability_audit.forgotten(result, [entry]) == []
    assert vulnerability_audit.forgotten([], [entry]) == [entry]
