"""Claims about AWS that cannot be proved on a laptop: the data, and the page ``docs/unproved.md`` from it."""

from __future__ import annotations

import argparse
from functools import cache
from importlib import resources
from pathlib import Path

from pydantic import model_validator
from ruamel.yaml import YAML

from millrace.config.base import Model
from millrace.verify.account import account_checks

PAGE = "docs/unproved.md"

_HEAD = """\
# Unproved claims about AWS

Written from `millrace/verify/claims.yaml` by `python -m millrace.verify.account.claims`; change that file, not this page.

Millrace was written without an AWS account. It relies on the claims below, which cannot be proved on a laptop. One command checks
those that can be checked in your account:

    millrace verify --env dev --claims

It is read-only and free of charge, and shows how many claims are proved, refuted or not checked, each with the reason. The claims
about "what is deployed" need a deployed environment whose jobs have run. `millrace verify` without `--claims` checks them for the copy
that it deploys, before it removes the copy.

Both write a file, `.millrace/verify/claims-ENV.md` (another with `--report`). **Please send that file back**, in an issue of this
repository: it has one line for each claim, and no account ids, names or ARNs. For a claim that a person has to check, send
`ID: ` and the content of the column "what to send".

A refuted claim is a defect of Millrace or of one of its tables, not of your account. A claim that is not checked names the
missing permission, or what is not deployed.
"""

_ASKED = """
## Checked by the command

| id | claim | checked in | files that rely on it | example of what to send |
|---|---|---|---|---|
"""

_BY_HAND = """
## Checked by a person

| id | claim | files that rely on it | how to check | what to send |
|---|---|---|---|---|
"""


_LOCALSTACK = """
## The stand-in for AWS

The sandbox and the integration tests run LocalStack 4.9.2, which is the last that runs on Python 3.11 without Docker; since March 2026 newer ones
need a token. It stays as it is: what AWS changed later, no test here sees. Moto answers for CloudFormation, S3, Kinesis, DynamoDB,
CloudWatch and Step Functions in the unit tests already; it could take over the integration tests that run no job (`test_alarms.py`,
`test_dev_environment_stacks.py`, `test_local_environment_stacks.py`), not those whose jobs read a stream.
"""


class Claim(Model):
    """A claim about AWS.

    Attributes
    ----------
    claim
        Statement about AWS on which Millrace relies.
    used
        Files that rely on it.
    check
        Key of :data:`millrace.verify.account.check_claims.CHECKS`; None where a person has to look.
    proof
        Where a person sees it.
    line
        Text to send back, after the id: an example where there is a check.
    """

    claim: str
    used: tuple[str, ...]
    line: str
    check: str | None = None
    proof: str | None = None

    @model_validator(mode="after")
    def _require_check_or_proof(self) -> Claim:
        if (self.check is None) == (self.proof is None):
            raise ValueError("a claim must have either a check or a proof by a person")
        return self


@cache
def read_claims() -> dict[str, Claim]:
    """Return all claims, by id."""
    text = (resources.files("millrace.verify") / "claims.yaml").read_text(encoding="utf-8")
    result = YAML(typ="safe", pure=True).load(text)["claims"]
    return {name: Claim.model_validate(section) for name, section in result.items()}


def unproved_page_text() -> str:
    """Return the text of ``docs/unproved.md``."""
    anywhere = {each.__name__ for each in account_checks.ALL}
    by_command, by_hand = [], []
    for name, each in read_claims().items():
        used = ", ".join(f"`{file}`" for file in each.used)
        if each.check is not None:
            of = "the account" if each.check in anywhere else "what is deployed"
            by_command.append(f"| {name} | {each.claim} | {of} | {used} | {each.line} |\n")
        else:
            by_hand.append(
                f"| {name} | {each.claim} | {used} | {_in_backticks_if_command(each.proof or '')} | {each.line} |\n"
            )
    return f"{_HEAD}{_ASKED}{''.join(by_command)}{_BY_HAND}{''.join(by_hand)}{_LOCALSTACK}"


def _in_backticks_if_command(proof: str) -> str:
    """Return a command in backticks, as in the docs; a sentence unchanged."""
    program = proof.partition(" ")[0]
    return f"`{proof}`" if program in ("docker", "millrace") else proof


def parser() -> argparse.ArgumentParser:
    """Return the parser of this program's arguments."""
    return argparse.ArgumentParser(description=f"Write {PAGE}.")


if __name__ == "__main__":
    parser().parse_args()
    Path(PAGE).write_text(unproved_page_text(), encoding="utf-8")
