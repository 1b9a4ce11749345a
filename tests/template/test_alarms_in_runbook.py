"""Every alarm has a section in the runbook with a command."""

from __future__ import annotations

import re

from millrace.sizing.plan_model import RUNBOOK
from tests.template.conftest import ROOT, Synthesis

SECTIONS = dict(
    re.findall(r"^## (\S+)$(.*?)(?=^## |\Z)", (ROOT / RUNBOOK).read_text(), re.MULTILINE | re.DOTALL)
)
NO_COMMAND = {"offline-partitions", "disk", "write-throttled", "read-throttled"}
"""Brokers, disks and producers are nothing that Millrace runs; what to change in the environment file is said."""


def kinds(synthesis: Synthesis) -> set[str]:
    result = set()
    for path, alarm in synthesis.resources("AWS::CloudWatch::Alarm").items():
        described = re.search(
            rf"\({re.escape(RUNBOOK)}#([a-z-]+)\)$", alarm["Properties"]["AlarmDescription"]
        )
        assert described is not None, path
        result.add(described[1])
    return result


def test_each_alarm_is_in_the_runbook(each: Synthesis) -> None:
    assert kinds(each) <= SECTIONS.keys()


def test_the_runbook_has_nothing_else(prod: Synthesis) -> None:
    # No query of prod has latest_by, and no job run_every.
    assert kinds(prod) == SECTIONS.keys() - {"unordered-keys", "no-run"}


def test_each_says_what_to_type() -> None:
    for name, text in SECTIONS.items():
        assert ("millrace " in text) is (name not in NO_COMMAND) or name == "write-throttled", name
