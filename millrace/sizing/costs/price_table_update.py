"""Updates of a price table from the AWS Price List API: exact matches are taken, all others are reported."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation
from io import StringIO
from typing import Any

from ruamel.yaml import YAML

from millrace.sizing.costs.price_products import PRODUCTS, PriceProduct
from millrace.sizing.prices_and_limits import Price, PriceTable

SOURCE = "AWS Price List API"

_FAR = 10
"""Largest factor of a price change; a larger one probably means a misread unit. Our own choice."""


@dataclass(frozen=True)
class PriceRenewal:
    """Result of an update.

    Attributes
    ----------
    table
        Updated prices with today's date, the others as they were.
    stayed
        Names of prices without a usable answer, each with the reason.
    unknown
        Names of prices without a known product; the API was not asked for them.
    """

    table: PriceTable
    stayed: Mapping[str, str]
    unknown: tuple[str, ...]

    @property
    def renewed_count(self) -> int:
        """Number of updated prices."""
        return len(self.table.prices) - len(self.stayed) - len(self.unknown)


def region_of_price_list_api(region: str) -> str:
    """Return the region whose endpoint has a region's prices.

    China has its own; each other endpoint has all other regions, including GovCloud, which has no endpoint and whose
    credentials none of them accepts (AWS General Reference, "AWS Price List endpoints", as read in November 2026).

    Examples
    --------
    >>> region_of_price_list_api("cn-north-1"), region_of_price_list_api("eu-west-1")
    ('cn-northwest-1', 'us-east-1')
    """
    return "cn-northwest-1" if region.startswith("cn-") else "us-east-1"


def renew_prices(pricing: Any, region: str, current: Mapping[str, Price], today: date) -> PriceRenewal:
    """Return the table with a new price for each that has a product.

    Parameters
    ----------
    pricing
        A boto3 client of ``pricing`` at :func:`region_of_price_list_api`.
    region
        Such as ``eu-west-1``.
    current
        Current prices, each with its date and source: :func:`millrace.sizing.prices_and_limits.all_required_prices_by_name`.
    today
        Date of the updated prices.

    Raises
    ------
    botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError
        No credentials, no permission, or AWS failed; nothing was changed.
    """
    prices: dict[str, Price] = {}
    stayed: dict[str, str] = {}
    for name, old in current.items():
        prices[name] = old
        product = PRODUCTS.get(name)
        if product is None:
            continue
        try:
            usd = _price_of_product(product, list(_matching_products(pricing, product, region)), region)
            if not old.usd / _FAR <= usd <= old.usd * _FAR:
                raise _UnclearError(
                    f"the new price, ${usd:g}, is far from the old one, ${old.usd:g}; its unit may have changed"
                )
        except _UnclearError as unclear:
            stayed[name] = str(unclear)
        else:
            prices[name] = Price(usd=usd)
    table = PriceTable(region=region, read=today, source=SOURCE, prices=prices)
    return PriceRenewal(table, stayed, tuple(name for name in current if name not in PRODUCTS))


def price_table_yaml(table: PriceTable) -> str:
    """Return a table as the text of a file that :func:`millrace.sizing.prices_and_limits.price_table_of_region` reads."""
    yaml, out = YAML(), StringIO()
    yaml.width = 200
    yaml.default_flow_style = None  # each price on one line
    yaml.dump(table.model_dump(exclude_defaults=True), out)
    return (
        f"# Prices of AWS in {table.region}, in USD; written by `millrace prices update`.\n{out.getvalue()}"
    )


class _UnclearError(Exception):
    """There is no price, or no certain one; the message is the reason."""


def _matching_products(pricing: Any, product: PriceProduct, region: str) -> Iterator[Mapping[str, Any]]:
    """Yield the products that the API finds, over all pages; its filter of usage types matches substrings."""
    wanted = {**product.attributes, **({} if product.worldwide else {"regionCode": region})}
    filters = [{"Type": "TERM_MATCH", "Field": name, "Value": value} for name, value in wanted.items()]
    filters.append({"Type": "CONTAINS", "Field": "usagetype", "Value": product.usage})
    asked: dict[str, Any] = {
        "ServiceCode": product.service,
        "Filters": filters,
        "FormatVersion": "aws_v1",
        "MaxResults": 100,
    }
    for page in pricing.get_paginator("get_products").paginate(**asked):
        for text in page.get("PriceList", ()):
            try:
                yield json.loads(text)
            except ValueError:
                raise _UnclearError("the response of the Price List API is not JSON") from None


def _price_of_product(product: PriceProduct, answers: list[Mapping[str, Any]], region: str) -> float:
    """Return the price of the one product that fits, in our unit.

    Regions' prefixes are such as ``EUW1-`` and ``EU-``, for keys the region itself; us-east-1 often has none.
    """
    name = re.compile(rf"(?:[A-Z]{{2,4}}\d?-|{re.escape(region)}-)?{re.escape(product.usage)}")
    try:
        fitting = [each for each in answers if name.fullmatch(each["product"]["attributes"]["usagetype"])]
        if not fitting:
            raise _UnclearError(f"the price list of {product.service} has no product {product.usage}")
        if len(fitting) > 1:
            skus = ", ".join(sorted(each["product"]["sku"] for each in fitting))
            raise _UnclearError(
                f"{len(fitting)} products match {product.usage}, so the price is ambiguous: {skus}"
            )
        terms = list(fitting[0]["terms"]["OnDemand"].values())
        if len(terms) != 1:
            raise _UnclearError(f"the product has {len(terms)} on-demand terms, so its price is ambiguous")
        return _usd_in_our_unit_or_raise(
            product, _tier_of_product_or_raise(product, list(terms[0]["priceDimensions"].values()))
        )
    except (KeyError, TypeError, AttributeError, InvalidOperation) as error:
        raise _UnclearError(f"the response of the Price List API is not as expected: {error!r}") from error


def _tier_of_product_or_raise(product: PriceProduct, tiers: list[Mapping[str, Any]]) -> Mapping[str, Any]:
    begins = {Decimal(each.get("beginRange", "0")): each for each in tiers}
    if len(begins) != len(tiers) or (len(tiers) > 1 and not product.tiers):
        at = ", ".join(each.get("beginRange", "0") for each in tiers)
        raise _UnclearError(f"the price has unexpected tiers, which begin at {at}")
    if (ours := begins.get(Decimal(str(product.begin)))) is None:
        raise _UnclearError(f"the price has no tier that begins at {product.begin:g}")
    return ours


def _usd_in_our_unit_or_raise(product: PriceProduct, tier: Mapping[str, Any]) -> float:
    unit = re.sub(r"[^a-z0-9]", "", tier["unit"].lower())
    if unit not in product.units:
        raise _UnclearError(f"the unit is {tier['unit']}, not {' or '.join(product.units)}")
    if "USD" not in tier["pricePerUnit"]:
        raise _UnclearError(f"the price is in {', '.join(tier['pricePerUnit'])}, not in USD")
    usd = float(Decimal(tier["pricePerUnit"]["USD"]) * Decimal(str(product.factor)))
    if usd <= 0:
        raise _UnclearError("the price is 0; it may belong to a free tier or to another product")
    return usd
