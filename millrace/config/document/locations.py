"""File and line of a path of keys."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path as FilePath

from millrace.config.document.plain_text_secrets import censor
from millrace.config.document.problems import (
    ConfigurationError,
    Finding,
    Path,
    Problem,
    dotted_path,
    first_finding_of_each_path,
)
from millrace.config.document.yaml_tree import Tree


@dataclass(frozen=True)
class Locations:
    """The merged tree of an environment and the project's root.

    Attributes
    ----------
    tree
        ``None`` for an environment without a file.
    root
        Folder of the project; files are named relative to it.
    """

    tree: Tree | None = None
    root: FilePath = FilePath()

    def file_and_line(self, path: Path) -> tuple[str, int]:
        """Return file and line of the value at ``path``, or of its closest ancestor."""
        if self.tree is None:
            return "(no file)", 0
        nearest = self.tree.nearest_existing(path)
        return self.relative_file_name(nearest.file), nearest.line

    def relative_file_name(self, file: FilePath) -> str:
        """Return a file's name, relative to the project if it is inside it."""
        return str(file.relative_to(self.root)) if file.is_relative_to(self.root) else str(file)

    def problem_of_finding(self, finding: Finding) -> Problem:
        """Add file and line to a finding, and hide secrets."""
        file, line = self.file_and_line(finding.path)
        value = censor(finding.path, finding.value)
        return Problem(file, line, dotted_path(finding.path), value, finding.allowed, finding.hint)

    def error_of_findings(self, findings: Iterable[Finding]) -> ConfigurationError:
        """Make one error of all findings, with one finding for each path."""
        return ConfigurationError(
            self.problem_of_finding(finding) for finding in first_finding_of_each_path(findings)
        )
