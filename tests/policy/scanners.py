"""The scanners, each in this process and once for all templates."""

from __future__ import annotations

import functools
import json
import logging
import os
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from millrace.config.aws.resource_names import Bucket
from millrace.sandbox.programs.toolchain import ROOT
from tests.policy.accepted_findings import Finding
from tests.policy.assembly import Assembly, Template

RULES = ROOT / "toolchain" / "policy" / "rules"
"""Rules of our own, loaded by cfn-lint."""

OURS = "E9"
"""cfn-lint leaves the numbers from E9000 on to its users."""

KEPT: tuple[Bucket, ...] = ("lake", "checkpoints", "dead-letters")
"""Buckets whose live objects never expire."""

_STATEFUL = {
    "AWS::EC2::VPC",
    "AWS::KMS::Key",
    "AWS::Kinesis::Stream",
    "AWS::MSK::Cluster",
    "AWS::MSK::ServerlessCluster",
    "AWS::S3::Bucket",
    "AWS::SNS::Topic",
}
"""A stack with one of these cannot be made again as it was."""


def rule_settings(assembly: Assembly) -> dict[str, dict[str, Any]]:
    """Tell our own rules what only the environment knows."""
    names = assembly.names
    # Exports of dead letters end with the letters, where the environment says when.
    ends = {"dead-letters"} if assembly.environment.storage.dead_letter_retention else set()
    return {
        "E9104": {"kept": [names.bucket(kind) for kind in KEPT if kind not in ends]},
        "E9105": {"removal": assembly.environment.removal},
    }


@functools.cache
def _rules(*, built_in: bool) -> Any:
    from cfnlint.core import get_rules
    from cfnlint.rules import RulesCollection

    if built_in:
        return get_rules([str(RULES)], [], ["W", "E"])
    ours = RulesCollection()
    ours.create_from_directory(str(RULES))
    return ours


def rules_of_ours() -> list[str]:
    """List the ids of our own rules."""
    return [rule.id for rule in _rules(built_in=False)]


def lint(
    template: Template, *, region: str, settings: dict[str, dict[str, Any]], built_in: bool = True
) -> list[tuple[str, str, str]]:
    """Run cfn-lint with our own rules on one template.

    Parameters
    ----------
    settings
        Of our rules, see ``rule_settings``.
    built_in
        Whether cfn-lint's own rules run, too.

    Returns
    -------
    list
        Check, logical id and message of each finding.
    """
    from cfnlint.config import ConfigMixIn
    from cfnlint.decode.decode import decode_str
    from cfnlint.runner import run_template_by_data

    rules = _rules(built_in=built_in)
    rules.configure(include_rules=["W", "E"], configure_rules=settings)
    decoded, faults = decode_str(json.dumps(template, indent=1))
    matches = faults or run_template_by_data(decoded, ConfigMixIn(regions=[region]), rules)
    return [
        (match.rule.id, str(match.path[1]) if len(match.path) > 1 else "", match.message) for match in matches
    ]


def checkov(folder: Path) -> list[tuple[Path, str, str, str]]:
    """Run Checkov on all templates below a folder.

    Returns
    -------
    list
        File, check, logical id and message of each finding.

    Raises
    ------
    ValueError
        A template could not be read, or nothing was checked.
    """
    # Its own pool of processes takes longer to fork than the work itself.
    os.environ.setdefault("PARALLELIZATION_TYPE", "none")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of libraries that it brings along
        from checkov.cloudformation.runner import Runner
        from checkov.runner_filter import RunnerFilter

        logging.getLogger("checkov").setLevel(logging.ERROR)
        report = Runner().run(
            root_folder=str(folder), runner_filter=RunnerFilter(framework=["cloudformation"])
        )
    assert not isinstance(report, list)  # a list is of several frameworks
    if report.parsing_errors or not report.passed_checks:
        raise ValueError(f"Checkov could not read {report.parsing_errors or folder}")
    return [
        (Path(record.file_abs_path), record.check_id, record.resource.split(".", 1)[1], record.check_name)
        for record in report.failed_checks
    ]


def manifest_findings(assembly: Assembly, manifest: dict[str, Any] | None = None) -> list[Finding]:
    """Check what stands in no template: stacks that hold data are protected from termination."""
    artifacts = (manifest or assembly.manifest)["artifacts"]
    findings = []
    for part, template in assembly.templates.items():
        holds = sorted({r["Type"] for r in template["Resources"].values()} & _STATEFUL)
        stack = artifacts[f"{assembly.names.prefix}-{part}"]["properties"]
        if assembly.environment.removal == "retain" and holds and not stack.get("terminationProtection"):
            message = f"A stack with {', '.join(holds)} is protected from termination"
            findings.append(Finding("millrace", "M0001", part, message))
    return findings


def nag_findings(assembly: Assembly) -> list[Finding]:
    """Read what the rule packs found while the assembly was written."""
    report = json.loads((assembly.folder / "validation-report.json").read_text())
    return [
        Finding(
            "cdk-nag",
            violation["ruleName"],
            construct["constructPath"].removeprefix(f"{assembly.names.prefix}-"),
            violation.get("description", ""),
        )
        for plugin in report["pluginReports"]
        for violation in plugin["violations"]
        for construct in violation["violatingConstructs"]
    ]


def scan(
    assemblies: Iterable[Assembly], *, progress: Callable[[str], None] = lambda _: None
) -> dict[str, list[Finding]]:
    """Run every scanner on assemblies that lie below one folder.

    Returns
    -------
    dict
        Findings by the environment's name.
    """
    by_folder = {assembly.folder.resolve(): assembly for assembly in assemblies}
    result: dict[str, list[Finding]] = {}
    for assembly in by_folder.values():
        progress(f"cfn-lint: {assembly.environment.name}")
        result[assembly.environment.name] = [*nag_findings(assembly), *manifest_findings(assembly)]
        for part, template in assembly.templates.items():
            matches = lint(template, region=assembly.environment.region, settings=rule_settings(assembly))
            result[assembly.environment.name] += [
                Finding(
                    "millrace" if check.startswith(OURS) else "cfn-lint",
                    check,
                    assembly.construct(part, logical_id),
                    message,
                )
                for check, logical_id, message in matches
            ]
    progress("checkov")
    (root,) = {folder.parent for folder in by_folder}
    parts = {
        assembly.template_file(part).resolve(): (assembly, part)
        for assembly in by_folder.values()
        for part in assembly.templates
    }
    for file, check, logical_id, message in checkov(root):
        if file.resolve() in parts:
            assembly, part = parts[file.resolve()]
            at = assembly.construct(part, logical_id)
            result[assembly.environment.name].append(Finding("checkov", check, at, message))
    return {name: sorted(set(findings)) for name, findings in result.items()}
