"""What a verification found, for people and for scripts."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from millrace.sandbox.ledger import Account
from millrace.sizing.model import CostItem
from millrace.verify import claim_checks
from millrace.verify.environment import Leg


@dataclass(frozen=True)
class Step:
    """Something that was done."""

    name: str
    seconds: float
    said: str = ""


@dataclass(frozen=True)
class Kill:
    """One kill of a job.

    Attributes
    ----------
    ending_seconds
        From the request to the end of the run.
    recovery_seconds
        From the end of the run to the next commit of its landing tables, the slowest of them.
    """

    job: str
    number: int
    ending_seconds: float
    recovery_seconds: float


@dataclass(frozen=True)
class TableComparison:
    """A leg's two tables against the ledger."""

    leg: Leg
    account: Account


@dataclass(frozen=True)
class Outcome:
    """All of it.

    Attributes
    ----------
    name
        Of the environment that was made.
    billed, paid
        Whether the engines told what they count, and whether anybody pays it.
    trouble
        What went wrong, a message each; a verification with any is not passed.
    remains
        What it made and is still there.
    kept
        Whether that is as was asked.
    left_out
        What of the environment is not verified.
    claims
        What the account said of claims that only it can prove; nothing rests on them.
    """

    environment: str
    name: str
    where: str
    steps: tuple[Step, ...]
    kills: tuple[Kill, ...]
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
    claims: tuple[claim_checks.ClaimAnswer, ...] = ()

    @property
    def exact(self) -> bool:
        """Whether something was compared, all of it is exact, and nothing went wrong or was left behind."""
        return (
            bool(self.compared)
            and all(each.account.exact and each.account.produced > 0 for each in self.compared)
            and not self.trouble
            and (self.kept or not self.remains)
        )

    def document(self) -> dict[str, Any]:
        """Return an object that ``json.dumps`` takes (docs/verify.md)."""
        return {
            "version": 1,
            "environment": self.environment,
            "name": self.name,
            "where": self.where,
            "exact": self.exact,
            "steps": [dataclasses.asdict(step) for step in self.steps],
            "kills": [dataclasses.asdict(kill) for kill in self.kills],
            "reshards": [{"from": before, "to": after} for before, after in self.reshards],
            "tables": [
                {
                    **dataclasses.asdict(each.leg),
                    **dataclasses.asdict(each.account),
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
            "claims": claim_checks.document(self.claims) if self.claims else None,
        }
