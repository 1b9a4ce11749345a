"""Findings of the rule packs that are accepted, each at one construct and for a stated reason."""

from __future__ import annotations

from aws_cdk import Acknowledgment, Validations
from constructs import IConstruct


def accept_finding_at_construct(construct: IConstruct, finding: str, reason: str) -> None:
    """Accept one finding at one construct.

    Parameters
    ----------
    construct
        The construct, and with it those below.
    finding
        The finding's id, such as ``AwsSolutions-KDS3``.
    reason
        Why it is right as it stands.
    """
    Validations.of(construct).acknowledge(Acknowledgment(id=finding, reason=reason))
