"""The data files of sizing: dated prices by region, and limits with their sources."""

from __future__ import annotations

from datetime import date
from functools import cache
from importlib import resources

from pydantic import BaseModel, ConfigDict, Field
from ruamel.yaml import YAML


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    confirmed: bool = True


class Price(_Row):
    """One price in USD; its unit is the end of its name."""

    usd: float = Field(gt=0)


class PriceTable(BaseModel):
    """All prices of one region on one day."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    region: str
    read: date
    source: str
    prices: dict[str, Price]

    def usd(self, name: str) -> float:
        """Return a price in USD.

        Raises
        ------
        KeyError
            No such price.
        """
        return self.prices[name].usd


class Limit(_Row):
    """A figure of a service and where it is from."""

    value: float = Field(gt=0)
    source: str


class Broker(_Row):
    """What one MSK broker of a type takes: MiB/s from producers, and partitions with replicas."""

    mib_in: float = Field(gt=0)
    partitions: int = Field(gt=0)
    source: str


class LimitTable(BaseModel):
    """All limits and broker types."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    limits: dict[str, Limit]
    brokers: dict[str, Broker]

    def __getitem__(self, name: str) -> float:
        return self.limits[name].value


def price_regions() -> tuple[str, ...]:
    """Name the regions that have a price table."""
    folder = resources.files("millrace.sizing") / "prices"
    return tuple(
        sorted(each.name.removesuffix(".yaml") for each in folder.iterdir() if each.name.endswith(".yaml"))
    )


@cache
def prices(region: str) -> PriceTable:
    """Read a region's price table.

    Raises
    ------
    FileNotFoundError
        There is none; :func:`price_regions` lists those that exist.
    """
    text = (resources.files("millrace.sizing") / "prices" / f"{region}.yaml").read_text(encoding="utf-8")
    return PriceTable.model_validate(YAML(typ="safe", pure=True).load(text))


@cache
def limits() -> LimitTable:
    """Read the limits of the services."""
    text = (resources.files("millrace.sizing") / "limits.yaml").read_text(encoding="utf-8")
    return LimitTable.model_validate(YAML(typ="safe", pure=True).load(text))
