"""A check fails for each security control that is removed from the templates."""

from __future__ import annotations

import copy
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from millrace.config import load
from tests.policy.assembly import Assembly, Template
from tests.policy.control_removals import MUTATIONS
from tests.policy.scanners import RULES, checkov, lint, manifest_findings, rule_settings, rules_of_ours
from tests.template.conftest import ROOT, Synthesise

Match = tuple[str, str, str]
"""Check, logical id, message."""


@dataclass(frozen=True)
class Removed:
    """A control that is gone from one place, and what a scanner finds of it that it did not find before."""

    control: str
    place: str
    by: frozenset[str]


@pytest.fixture(scope="module")
def assemblies(synthesis, synthesise: Synthesise) -> list[Assembly]:
    """Prod, and dev for the stacks that prod does not have, as if dev kept its data, too."""
    dev = load("dev", root=ROOT).model_copy(update={"removal": "retain"})
    return [
        Assembly(environment=result.environment, account=result.names.account, folder=result.folder)
        for result in (synthesis("prod"), synthesise(dev))
    ]


def kind(assembly: Assembly, part: str) -> str:
    """Name what is built alike: jobs of one engine are."""
    if part == "observability" and assembly.environment.observability.prometheus:
        return "observability with a workspace"
    if not part.startswith("job-"):
        return part
    return type(assembly.environment.jobs[part.removeprefix("job-")]).__name__


def parts(assemblies: Iterable[Assembly]) -> Iterator[tuple[Assembly, str, Template]]:
    """Give one template of each kind."""
    seen = set()
    for assembly in assemblies:
        for part, template in assembly.templates.items():
            if kind(assembly, part) not in seen:
                seen.add(kind(assembly, part))
                yield assembly, part, template


@dataclass
class Bench:
    """Templates to scan. Our rules see each whole; Checkov, which judges resources one by one, sees those
    that differ, in a file of its own for each template, and reads all files in one run.
    """

    folder: Path
    ours: dict[Path, set[Match]] = field(default_factory=dict)

    def put(self, assembly: Assembly, template: Template, resources: Iterable[str]) -> Path:
        """Scan a template with our rules and keep some of its resources for Checkov."""
        file = self.keep(template, resources)
        region = assembly.environment.region
        matches = lint(template, region=region, settings=rule_settings(assembly), built_in=False)
        self.ours[file] = set(matches)
        return file

    def keep(self, template: Template, resources: Iterable[str]) -> Path:
        """Keep some resources of a template for Checkov."""
        file = self.folder / f"{len(self.ours):04}.template.json"
        file.write_text(json.dumps({"Resources": {name: template["Resources"][name] for name in resources}}))
        self.ours[file] = set()
        return file

    def matches(self) -> dict[Path, set[Match]]:
        """Run Checkov; give what either found, by file."""
        result = {file: set(matches) for file, matches in self.ours.items()}
        for file, check, logical_id, message in checkov(self.folder):
            result[file].add((check, logical_id, message))
        return result


@pytest.fixture(scope="module")
def removed(assemblies: list[Assembly], tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Removed]]:
    """Take every control out of every place."""
    return taken_out(assemblies, tmp_path_factory.mktemp("mutated"), most=None)


@pytest.fixture(scope="module")
def removed_once(
    assemblies: list[Assembly], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[Removed]]:
    """Take every control out of the first place in the first template that has it."""
    return taken_out(assemblies, tmp_path_factory.mktemp("mutated-once"), most=1)


def taken_out(assemblies: list[Assembly], folder: Path, most: int | None) -> dict[str, list[Removed]]:
    """Take controls out, each in a template of its own; scan all of them together.

    Parameters
    ----------
    most
        Places for each control; None for all.
    """
    bench = Bench(folder)
    left = Counter({mutation.name: most for mutation in MUTATIONS} if most else {})
    whole: dict[str, Path] = {}
    # What Checkov says of a resource alone, where references lead nowhere, though nothing is removed.
    alone: dict[tuple[str, str], Path] = {}
    mutated: list[tuple[Path, str, str, str, Assembly]] = []
    for assembly, part, template in parts(assemblies):
        whole[part] = bench.put(assembly, template, template["Resources"])
        for mutation in MUTATIONS:
            places = list(mutation.places(template))
            taken = places if most is None else places[: left[mutation.name]]
            left[mutation.name] -= len(taken)
            for logical_id, path in taken:
                changed = mutation.applied(template, logical_id, path)
                differ = {logical_id, *mutation.beside} & changed["Resources"].keys()
                if (part, logical_id) not in alone:
                    alone[part, logical_id] = bench.keep(template, [logical_id])
                file = bench.put(assembly, changed, differ)
                mutated.append((file, mutation.name, part, logical_id, assembly))
    matches = bench.matches()
    results: dict[str, list[Removed]] = defaultdict(list)
    for file, control, part, logical_id, assembly in mutated:
        before = matches[whole[part]] | matches[alone[part, logical_id]]
        by = frozenset(check for check, _, _ in matches[file] - before)
        results[control].append(Removed(control, assembly.construct(part, logical_id), by))
    results["stack: protected from termination"] = list(unprotected(assemblies[0]))
    return dict(results)


def unprotected(assembly: Assembly) -> Iterator[Removed]:
    """Take the protection from each stack that has it."""
    assert manifest_findings(assembly) == []
    for name, artifact in assembly.manifest["artifacts"].items():
        if artifact.get("properties", {}).get("terminationProtection"):
            manifest = copy.deepcopy(assembly.manifest)
            manifest["artifacts"][name]["properties"]["terminationProtection"] = False
            by = frozenset(finding.check for finding in manifest_findings(assembly, manifest))
            yield Removed("termination protection", name, by)


@pytest.mark.slow
def test_every_control_is_there_to_be_removed(removed: dict[str, list[Removed]]) -> None:
    assert len(MUTATIONS) == len({mutation.name for mutation in MUTATIONS})
    assert [mutation.name for mutation in MUTATIONS if not removed.get(mutation.name)] == []
    assert removed["stack: protected from termination"]


@pytest.mark.slow
def test_every_removal_is_noticed_wherever_it_happens(removed: dict[str, list[Removed]]) -> None:
    shown = Table(title=f"{len(removed)} controls, removed in turn", title_justify="left")
    for heading in ("control", "places", "caught by"):
        shown.add_column(heading)
    for control, places in removed.items():
        everywhere = set.intersection(*(set(place.by) for place in places))
        somewhere = set.union(*(set(place.by) for place in places)) - everywhere
        caught = ", ".join([*sorted(everywhere), *(f"({check})" for check in sorted(somewhere))])
        shown.add_row(control, str(len(places)), caught or "[red]NOTHING[/]")
    Console(width=130).print(shown)
    assert [(r.control, r.place) for places in removed.values() for r in places if not r.by] == []


@pytest.mark.slow
def test_every_rule_of_ours_catches_something(removed_once: dict[str, list[Removed]]) -> None:
    caught = {check for places in removed_once.values() for place in places for check in place.by}
    assert sorted(set(rules_of_ours()) - caught) == []
    assert len(rules_of_ours()) >= len(list(RULES.glob("[a-z]*.py")))


@pytest.mark.slow
def test_every_rule_of_ours_catches_what_no_scanner_does(removed_once: dict[str, list[Removed]]) -> None:
    """A rule that Checkov has as well is one too many."""
    ours = set(rules_of_ours())
    alone = {
        check
        for places in removed_once.values()
        for place in places
        if place.by <= ours
        for check in place.by
    }
    assert sorted(ours - alone) == []
