"""What should change in a job, from what it did: every finding with evidence, change and expected effect."""

from millrace.advisor.findings.model import Advice, Change, Effect, Evidence, Finding, Kind

__all__ = ["Advice", "Change", "Effect", "Evidence", "Finding", "Kind"]
