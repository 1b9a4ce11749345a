"""``millrace prices``: updates a project's own price tables."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from millrace.cli.shared.console import print_json, reporting_write_errors_as_wrong_option
from millrace.cli.shared.options import AsJson
from millrace.config import find_root
from millrace.config.document.problems import wrong_option_error
from millrace.lifecycle.aws_error_messages import translating_aws_errors
from millrace.sizing.costs.price_table_update import (
    PriceRenewal,
    price_table_yaml,
    region_of_price_list_api,
    renew_prices,
)
from millrace.sizing.prices_and_limits import PRICES, all_required_prices_by_name

STAYED = 3
"""Exit status: at least one price got no usable answer and was not updated."""

prices_app = typer.Typer(help="Update the price table of a region.", no_args_is_help=True)


@prices_app.callback()
def _declare_prices_group() -> None:
    """Update the price table of a region."""


@prices_app.command()
def update(
    region: Annotated[
        str,
        typer.Option("--region", metavar="REGION", help="A region, such as eu-west-1.", show_default=False),
    ],
    as_json: AsJson = False,
) -> None:
    """Write environments/prices/REGION.yaml from the AWS Price List API; plans for the region then use it.

    Needs the permission pricing:GetProducts, and costs nothing. A price without one clear answer keeps its value and
    date, and is listed with the reason; the same applies to prices without a known product. The products in use were never
    compared with a real answer: check the changes before you commit the file.
    Exit status: 0; 1 if AWS refused or failed; 2 for a user's mistake or missing credentials; 3 if a price got no usable
    answer. With 1 and 2, and if no price was updated, no file is written.

    [bold]Examples[/bold]

      millrace prices update --region eu-west-1
    """
    if re.fullmatch(r"[a-z]{2,4}(-[a-z]+)+-[0-9]", region) is None:
        raise wrong_option_error("--region", region, "the code of a region, such as eu-west-1")
    root = find_root()
    try:
        before = all_required_prices_by_name(region, root)
    except ValueError as error:
        raise wrong_option_error(
            "--region", region, f"a region whose price file is valid: {error}"
        ) from error
    with translating_aws_errors("cannot read prices from the AWS Price List API"):
        result = renew_prices(price_list_client(region), region, before, datetime.now(UTC).date())
    file = root / PRICES / f"{region}.yaml"
    if result.renewed_count:
        with reporting_write_errors_as_wrong_option("--region", file):
            _write_atomically(file, price_table_yaml(result.table))
    _print_price_update(result, f"{PRICES}/{region}.yaml" if result.renewed_count else None, as_json=as_json)
    if result.stayed:
        raise typer.Exit(STAYED)


def price_list_client(region: str) -> Any:
    """Return a boto3 client of the Price List API for a region's prices."""
    import boto3

    return boto3.client("pricing", region_name=region_of_price_list_api(region))


def _write_atomically(file: Path, text: str) -> None:
    """Write a file atomically, because a plan may be reading it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_suffix(f".{os.getpid()}.tmp")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(file)
    finally:
        beside.unlink(missing_ok=True)


def _print_price_update(renewal: PriceRenewal, file: str | None, *, as_json: bool) -> None:
    if as_json:
        document = {
            "version": 1,
            "file": file,
            "renewed": renewal.renewed_count,
            "stayed": dict(renewal.stayed),
            "unknown": list(renewal.unknown),
        }
        print_json(document)
        return
    for name, why in renewal.stayed.items():
        typer.echo(f"{name} not updated: {why}")
    for name in renewal.unknown:
        typer.echo(f"{name} is not updated, because no product of the AWS Price List API is known for it")
    count = f"{renewal.renewed_count} of {len(renewal.table.prices)} prices"
    typer.echo(
        f"{file}: {count} of today"
        if file
        else f"no file is written, because only {count} were found in the AWS Price List API"
    )
