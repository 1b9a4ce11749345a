"""Data files of sizing: dated prices by region, and limits with their sources."""

from __future__ import annotations

from collections.abc import Set
from datetime import date, timedelta
from functools import cache
from importlib import resources
from pathlib import Path

from pydantic import Field
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from millrace.config.base import Model
from millrace.config.sources.base import PartitionLimit
from millrace.sizing.plan_model import FigureInput

OLD = timedelta(days=90)
"""Age from which prices are reported as old. It is our own choice, because AWS gives no date until which a price holds."""

_NAMED = 5
"""Most old prices that are named; more are counted."""

PRICES = "environments/prices"
"""Folder of the project's own price tables, ``REGION.yaml``."""

ELSEWHERE = "us-east-1"
"""Region whose prices replace those of a region without a table."""


class _ConfirmableValue(Model):
    confirmed: bool = True


class Price(_ConfirmableValue):
    """One price in USD; the end of its name is its unit.

    Attributes
    ----------
    read, source
        Set only if they differ from the table's: for a price without an answer in the last update.
    """

    usd: float = Field(gt=0)
    read: date | None = None
    source: str | None = None


class PriceTable(Model):
    """All prices of one region on one day."""

    region: str
    read: date
    source: str
    prices: dict[str, Price]

    def usd(self, name: str) -> float:
        """Return a price in USD.

        Raises
        ------
        KeyError
            There is no such price.
        """
        return self.prices[name].usd

    def as_input(self, name: str) -> FigureInput:
        """Return a price as the input of a cost."""
        return FigureInput(
            name, f"${self.usd(name):,.6g}", origin=f"prices/{self.region}.yaml: {self.source}"
        )

    def describe_old_prices(self, today: date) -> str | None:
        """Return a line with the prices that were read more than :data:`OLD` ago; None if there are none.

        Parameters
        ----------
        today
            The day to count from.
        """
        read = {name: price.read or self.read for name, price in self.prices.items()}
        old = sorted(name for name, day in read.items() if today - day > OLD)
        if not old:
            return None
        first = min(read[name] for name in old)
        which = f"{len(old)} of {len(read)} prices" if len(old) > _NAMED else ", ".join(old)
        return (
            f"prices/{self.region}.yaml: {which} may be out of date, read on {first.isoformat()}, "
            f"{(today - first).days} days ago: run `millrace prices update --region {self.region}`, or write them to "
            f"{PRICES}/{self.region}.yaml"
        )


class _ValueWithSource(_ConfirmableValue):
    source: str

    @property
    def origin(self) -> str:
        """Source as the origin of an input."""
        return f"limits.yaml: {self.source}{'' if self.confirmed else ', unconfirmed'}"


class ServiceLimit(_ValueWithSource):
    """A figure of a service, with its source."""

    value: float = Field(gt=0)


class BrokerLimits(_ValueWithSource):
    """Limits of one MSK broker of a type.

    Attributes
    ----------
    mib_in
        MiB/s from producers, if a document states it.
    mib_out
        MiB/s that it gives out to readers.
    volume, volume_default, network
        MiB/s of its volumes, of volumes whose throughput is not provisioned, and of its network.
    partitions
        With replicas.
    """

    mib_in: float | None = Field(default=None, gt=0)
    mib_out: float = Field(default=0, ge=0)
    volume: float = Field(default=0, ge=0)
    volume_default: float | None = Field(default=None, gt=0)
    network: float = Field(default=0, ge=0)
    partitions: int = Field(gt=0)

    def producer_mib_per_second(self, readers: float, volume: float | None = None) -> float:
        """Return the MiB/s that it takes from producers beside so many consumers, with a volume of this throughput.

        Half of what AWS' formula gives, as AWS advises (MSK developer guide, "Right-size your cluster").
        """
        if self.mib_in is not None:
            return min(self.mib_in, self.mib_out / max(readers, 1))
        volume = volume or self.volume_default or self.volume
        return min(volume / VOLUME_BYTES, self.network / (5.7 + 1.5 * readers)) / 2


VOLUME_BYTES = 6.5
"""Bytes that a volume writes for a byte from producers, in AWS' formula."""


class LimitTable(Model):
    """All limits and broker types."""

    limits: dict[str, ServiceLimit]
    brokers: dict[str, BrokerLimits]

    def __getitem__(self, name: str) -> float:
        return self.limits[name].value

    def as_input(self, name: str) -> FigureInput:
        """Return a limit as an input of a figure."""
        return FigureInput(name, f"{self[name]:,.12g}", origin=self.limits[name].origin)

    def as_inputs_with_prefix(self, start: str) -> tuple[FigureInput, ...]:
        """Return all limits whose names begin so, as inputs of a figure."""
        return tuple(self.as_input(name) for name in self.limits if name.startswith(start))


def price_regions() -> tuple[str, ...]:
    """Return the regions with a price table."""
    folder = resources.files("millrace.sizing") / "prices"
    return tuple(
        sorted(each.name.removesuffix(".yaml") for each in folder.iterdir() if each.name.endswith(".yaml"))
    )


@cache
def price_table_of_region(region: str, root: Path | None = None) -> PriceTable:
    """Return a region's price table: the project's own, the shipped one, or that of another region, which keeps its name.

    Parameters
    ----------
    region
        Such as ``eu-west-1``.
    root
        Folder of the project; None for shipped tables only.

    Raises
    ------
    ValueError
        The project's own table is invalid or incomplete; the message names the file.
    """
    own = _project_table_or_none(region, root)
    if own is None:
        return _shipped_table(region if region in price_regions() else ELSEWHERE)
    lacking = sorted(_shipped_table(ELSEWHERE).prices.keys() - own.prices.keys())
    if lacking:
        raise ValueError(
            f"{PRICES}/{region}.yaml: it lacks {', '.join(lacking)}: `millrace prices update --region {region}` "
            "adds them"
        )
    return own


def all_required_prices_by_name(region: str, root: Path | None = None) -> dict[str, Price]:
    """Return every price that a region's table must hold, with its date and source, so that a table can be written.

    The project's own prices have precedence over the shipped ones; those of :data:`ELSEWHERE`, marked as unconfirmed, replace
    prices that both lack.

    Parameters
    ----------
    region, root
        As for :func:`prices`.

    Raises
    ------
    ValueError
        The project's own table is invalid; the message names the file.
    """
    tables = [_shipped_table(ELSEWHERE)]
    if region in price_regions():
        tables.append(_shipped_table(region))
    own = _project_table_or_none(region, root)
    if own is not None:
        tables.append(own)
    return {
        name: Price(
            usd=price.usd,
            confirmed=price.confirmed and table.region == region,
            read=price.read or table.read,
            source=price.source
            or (table.source if table.region == region else f"{table.region}: {table.source}"),
        )
        for table in tables
        for name, price in table.prices.items()
    }


def _project_table_or_none(region: str, root: Path | None) -> PriceTable | None:
    file = None if root is None else root / PRICES / f"{region}.yaml"
    if file is None or not file.is_file():
        return None
    try:
        found = PriceTable.model_validate(YAML(typ="safe", pure=True).load(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, YAMLError) as error:
        raise ValueError(f"{PRICES}/{region}.yaml: {error}") from error
    if found.region != region:
        raise ValueError(
            f"{PRICES}/{region}.yaml has the prices of another region, {found.region}; write the prices of "
            f"{region} with `millrace prices update --region {region}`"
        )
    return found


@cache
def _shipped_table(name: str) -> PriceTable:
    text = (resources.files("millrace.sizing") / "prices" / f"{name}.yaml").read_text(encoding="utf-8")
    return PriceTable.model_validate(YAML(typ="safe").load(text))


@cache
def known_price_names() -> Set[str]:
    """Return the names of all prices; every table holds all names of :data:`ELSEWHERE`."""
    return price_table_of_region(ELSEWHERE).prices.keys()


@cache
def service_limits() -> LimitTable:
    """Return the limits of the services."""
    text = (resources.files("millrace.sizing") / "limits.yaml").read_text(encoding="utf-8")
    return LimitTable.model_validate(YAML(typ="safe").load(text))


def limit_per_second(limit: PartitionLimit) -> float:
    """Return the value of a limit, per second."""
    return service_limits()[limit.limit] if isinstance(limit.limit, str) else limit.limit


def limit_input(limit: PartitionLimit) -> FigureInput:
    """Return a limit of one partition as an input of a figure."""
    named = limit.limit
    return (
        service_limits().as_input(named)
        if isinstance(named, str)
        else FigureInput(limit.of, f"{named:,.12g}")
    )
