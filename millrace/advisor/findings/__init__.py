"""Findings about a job: each with evidence, change and expected effect."""

from millrace.advisor.findings.model import Advice, Change, Effect, Evidence, Finding, Kind

__all__ = ["Advice", "Change", "Effect", "Evidence", "Finding", "Kind"]
