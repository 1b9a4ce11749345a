"""Comparison of a verification's tables with the sent records."""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.catalog import Catalog

from millrace.sandbox import lake_tables
from millrace.sandbox.ledger import Account, Ledger
from millrace.verify.environment import Leg, VerificationCopy
from millrace.verify.verification_outcome import TableComparison
from millrace.verify.verification_target import aws_errors


def check_against_ledgers(
    catalog: Catalog, copy: VerificationCopy, ledgers: Mapping[str, Ledger]
) -> tuple[TableComparison, ...]:
    """Compare every leg's landing table and derived table with the ledger of its stream, as multisets.

    Parameters
    ----------
    copy
        The copy, for its legs.
    ledgers
        Ledgers by stream.

    Raises
    ------
    AwsError, VerifyError
        The catalog refuses, or a table cannot be read.
    """
    return tuple(TableComparison(leg, _account(catalog, copy, leg, ledgers[leg.stream])) for leg in copy.legs)


def _account(catalog: Catalog, copy: VerificationCopy, leg: Leg, ledger: Ledger) -> Account:
    with aws_errors(f"{copy.names.table(leg.landed)} and {copy.names.table(leg.derived)}"):
        return lake_tables.account(
            catalog, ledger, copy.names.table(leg.landed), copy.names.table(leg.derived)
        )
