"""Outcome of a verification, for people and for scripts."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from millrace.sandbox.kill_and_restart_jobs import JobKill
from millrace.sandbox.records.ledger import LedgerComparison
from millrace.sizing.plan_model import CostItem
from millrace.verify.account import check_claims
from millrace.verify.environment_copy import StreamThroughJob


@dataclass(frozen=True)
class TimedStep:
    """A finished step."""

    name: str
    seconds: float
    said: str = ""


@dataclass(frozen=True)
class TableComparison:
    """Comparison of a leg's two tables with the ledger."""

    leg: StreamThroughJob
    account: LedgerComparison


@dataclass(frozen=True)
class VerificationOutcome:
    """The complete outcome.

    Attributes
    ----------
    name
        Name of the verification's environment.
    billed, paid
        Whether the costs are from the engines' own counts, and whether AWS bills them.
    trouble
        Errors, a message each; a verification with any has not passed.
    remains
        Its resources that still exist.
    kept
        Whether they were kept on request.
    left_out
        Parts of the environment that are not verified.
    claims
        Answers to claims that only an account can prove; the result does not depend on them.
    """

    environment: str
    name: str
    where: str
    steps: tuple[TimedStep, ...]
    kills: tuple[JobKill, ...]
    reshards: tuple[tuple[int, int], ...]
    compared: tuple[TableComparison, ...]
    cost: tuple[CostItem, ...]
    prices: str
    billed: bool
    paid: bool
    remains: tuple[str, ...]
    kept: bool
    trouble: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    claims: tuple[check_claims.ClaimAnswer, ...] = ()

    @property
    def exact(self) -> bool:
        """True if tables were compared, all are exact, nothing went wrong, and nothing was left unless on request."""
        return (
            bool(self.compared)
            and all(each.account.exact and each.account.produced > 0 for each in self.compared)
            and not self.trouble
            and (self.kept or not self.remains)
        )

    def document(self) -> dict[str, Any]:
        """Return an object for ``json.dumps`` (docs/verify.md)."""
        return {
            "version": 1,
            "environment": self.environment,
            "name": self.name,
            "where": self.where,
            "exact": self.exact,
            "steps": [asdict(step) for step in self.steps],
            "kills": [asdict(kill) for kill in self.kills],
            "reshards": [{"from": before, "to": after} for before, after in self.reshards],
            "tables": [
                {
                    **asdict(each.leg),
                    **asdict(each.account),
                    "exact": each.account.exact,
                }
                for each in self.compared
            ],
            "cost": {
                "usd": sum(line.usd for line in self.cost),
                "prices": self.prices,
                "billed": self.billed,
                "paid": self.paid,
                "items": [{"name": line.name, "usd": line.usd, "why": line.why} for line in self.cost],
            },
            "remains": list(self.remains),
            "kept": self.kept,
            "left_out": list(self.left_out),
            "trouble": list(self.trouble),
            "claims": check_claims.answers_document(self.claims) if self.claims else None,
        }
