"""Batches of sources that replay: they are decoded without the exact way of bad records first, whose plan takes longer than many batches.

A record that needs the exact way fails the write before its commit, and the batch is read again, completely. Some batches with
such a record are followed by others, so a number of batches is then decoded completely at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from ..formats.base import UNCERTAIN, Decoder
from ..record.errors import JVM_ERRORS, full_error_text
from ..sources.batch_offsets import BatchOffsets

MOST_RECORDS = 50_000
"""Most records of a partition in such a batch. A task decodes them in about half a second, and Spark tries one that fails up to
four times: about as long as the fixed time of a batch in a plan (2 s)."""

EXACT_BATCHES = 1_000
"""Batches that are decoded completely, from one that had to be read again on: of a thousand at most one is late."""

Result = TypeVar("Result")


@dataclass
class QuickDecodingFirstWriter:
    """Writer of a query's batches, without the exact way first."""

    _certain: tuple[Decoder, Decoder] | None = field(default=None, repr=False)
    """A decoder, and the same without its exact way."""
    _exact_batches: int = 0
    """Batches until the quick way alone is tried again."""

    def write(
        self, decoder: Decoder, offsets: BatchOffsets | None, attempt: Callable[[Decoder], Result]
    ) -> Result:
        """Write a batch.

        Parameters
        ----------
        decoder
            Decoder of the query.
        offsets
            Offsets of the batch; None where unknown.
        attempt
            Writes the batch, decoded by a decoder, completely or not at all.
        """
        self._exact_batches = max(0, self._exact_batches - 1)
        fullest = max(offsets.offset_counts, default=0) if offsets is not None else math.inf
        if not self._exact_batches and fullest <= MOST_RECORDS:
            if self._certain is None or self._certain[0] is not decoder:
                self._certain = decoder, decoder.failing_if_uncertain()
            try:
                return attempt(self._certain[1])
            except JVM_ERRORS as error:
                if UNCERTAIN not in full_error_text(error):
                    raise
                self._exact_batches = EXACT_BATCHES
        return attempt(decoder)
