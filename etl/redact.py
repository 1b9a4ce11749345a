r"""Redaction: what certain fields hold never reaches a table, not even inside a dead letter.

In a good record the column is null. In a dead letter the field's value is cut out of the
bytes, which are no longer what the source gave; its ``_hash`` still is that of the whole
payload. A dead letter need not be JSON, so the cut takes whatever follows the field's name in any
usual writing, up to the end of the value, and up to the end of the record where that is not plain
to see. Bytes in which a name could hide are withheld as a whole: text that is not UTF-8 or no object,
and an escape (``\u0065mail``) in what may be a name; and all of a format that names no fields.

Keys and headers of a Kafka record are not payload; they stay.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in PySpark code
from pyspark.sql.types import StructType

from etl.decode import Decoder
from etl.errors import StartError

WITHHELD = " (bytes withheld, as the query redacts fields)"
"""Ends the error of a dead letter without bytes."""

_VALUE = (
    r"""(?:(?:"(?:[^"\\]|\\.)*+"|'(?:[^'\\]|\\.)*+'|true|false|null|[-+.\dEe]++)(?=\s*+(?:[,}\]]|\z))|.*+)"""
)
"""A scalar that plainly ends where it does, otherwise all that is left of the record."""

_ESCAPED_NAME = r"""(?s)\\u[^"']*+["']\s*+[:=]"""


@dataclass(frozen=True)
class Redacting:
    """A decoder whose rows do not hold certain fields.

    Parameters
    ----------
    decoder
        Whose rows they are.
    fields
        Names of top-level columns of its schema; at least one.
    readable
        Whether the bytes name the fields that they hold, as JSON does. Others are withheld as a whole.

    Raises
    ------
    StartError
        The schema has no such column.
    """

    decoder: Decoder
    fields: tuple[str, ...]
    readable: bool = True

    def __post_init__(self) -> None:
        known = self.decoder.schema.fieldNames()
        unknown = [name for name in self.fields if name not in known]
        if unknown:
            raise StartError(
                f"redact: no such field: {', '.join(unknown)}; the schema has {', '.join(known)}"
            )

    @property
    def schema(self) -> StructType:
        """The decoder's: a redacted column stays, and is null."""
        return self.decoder.schema

    def decode(self, rows: DataFrame) -> DataFrame:
        """Decode, then take the fields out; columns as :meth:`etl.decode.Decoder.decode` has them."""
        decoded = self.decoder.decode(rows)
        bare = F.when(self._shown(), self._cut().cast("binary"))
        kinds = {field.name: field.dataType for field in self.schema.fields}
        return decoded.select(
            *(
                F.lit(None).cast(kinds[name]).alias(name) if name in self.fields else self._letter(name, bare)
                for name in decoded.columns
            )
        )

    def _letter(self, name: str, bare: Column) -> Column:
        if name == "_bytes":
            return bare.alias(name)
        if name == "_error":
            hidden = F.col("_bytes").isNotNull() & ~F.coalesce(self._shown(), F.lit(False))
            return F.when(hidden, F.concat("_error", F.lit(WITHHELD))).otherwise(F.col("_error")).alias(name)
        return F.col(f"`{name}`")

    def _shown(self) -> Column:
        return _readable() if self.readable else F.length("_bytes") == 0

    def _cut(self) -> Column:
        names = "|".join(re.escape(name) for name in sorted(self.fields, key=len, reverse=True))
        named = rf"""(?si)(?<![\w])(["']?+(?:{names})["']?+\s*+[:=]\s*+){_VALUE}"""
        return F.regexp_replace(F.col("_bytes").cast("string"), named, "$1null")


def _readable() -> Column:
    """Whether every name in the bytes can be seen: none, or UTF-8 that begins as an object, no name escaped."""
    text = F.col("_bytes").cast("string")
    return (F.length("_bytes") == 0) | (
        (F.encode(F.decode("_bytes", "UTF-8"), "UTF-8") == F.col("_bytes"))
        & text.rlike(r"\A\s*+\{")
        & ~text.rlike(_ESCAPED_NAME)
    )
