"""Batches of few records: they are decoded without the exact way of bad records first, whose plan takes longer than many batches.

A record that needs the exact way fails the write before its commit, and the batch is read again, completely. Some batches with
such a record are followed by others, so a number of batches is then decoded completely at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from ..formats.base import UNCERTAIN, Decoder
from ..record.errors import JVM_ERRORS, full_error_text
from ..sources.batch_offsets import BatchOffsets

MOST_RECORDS = 50_000
"""Most records of a partition in such a batch. A task decodes them in about half a second, and Spark tries one that fails up to
four times: about as long as the fixed time of a batch in a plan (2 s)."""

MOST_RECORDS_OF_STREAMS = 20_000
"""Most records of the batch before such a batch of a source that does not replay. A shard, which delivers 2 MB a second, needs
10 s for as many of 1 KB; they are read once more."""

EXACT_BATCHES = 1_000
"""Batches that are decoded completely, from one that had to be read again on: of a thousand at most one is late."""

Result = TypeVar("Result")


def has_few_records(offsets: BatchOffsets | None) -> bool:
    """Return true if each partition has at most :data:`MOST_RECORDS` in a batch."""
    return offsets is not None and max(offsets.offset_counts, default=0) <= MOST_RECORDS


@dataclass
class QuickDecodingFirstWriter:
    """Writer of a query's batches, without the exact way first."""

    _certain: tuple[Decoder, Decoder] | None = field(default=None, repr=False)
    """A decoder, and the same without its exact way."""
    _exact_batches: int = 0
    """Batches until the quick way alone is tried again."""

    def write(
        self, decoder: Decoder, few: bool, attempt: Callable[[Decoder], Result], marking: bool = False
    ) -> Result:
        """Write a batch.

        Parameters
        ----------
        decoder
            Decoder of the query.
        few
            True if the batch has few records.
        attempt
            Writes the batch, decoded by a decoder, completely or not at all.
        marking
            True if the attempt itself fails at a record with the stage :data:`etl.formats.base.UNCERTAIN`.
        """
        self._exact_batches = max(0, self._exact_batches - 1)
        if few and not self._exact_batches:
            if self._certain is None or self._certain[0] is not decoder:
                self._certain = decoder, decoder.failing_if_uncertain(marking)
            try:
                return attempt(self._certain[1])
            except JVM_ERRORS as error:
                if UNCERTAIN not in full_error_text(error):
                    raise
                self._exact_batches = EXACT_BATCHES
        return attempt(decoder)
