"""Schema of Kafka Connect in an event (``schemas.enable``), compared with the columns: the scale of a decimal, the unit of a time.

Form and order of its keys are those of Connect's ``JsonConverter.asJsonSchema``: ``name`` and ``parameters`` stand before ``field``.
A schema that agrees costs a search of its text for each scale and unit of the columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DecimalType, StructType

from ..decoding import times
from ..decoding.decoder_output_and_checks import field_names_of_type
from ..decoding.json_texts_as_sent import name_pattern

_UNITS = {
    "milliseconds": r"io\.debezium\.time\.Timestamp|org\.apache\.kafka\.connect\.data\.Timestamp",
    "microseconds": r"io\.debezium\.time\.MicroTimestamp",
    "nanoseconds": r"io\.debezium\.time\.NanoTimestamp",
}
_WRAPPED = r'\A\s*+\{\s*+"schema"\s*+:\s*+\{'
_COLON = r"\s*+:\s*+"
_TO_FIELD = rf'(?:"parameters"{_COLON}\{{[^{{}}]*+\}}|[^{{\]"]++|"(?:[^"\\]|\\.)*+"){{0,99}}?"field"{_COLON}'
"""From within the schema of a field, or of the items of its arrays, to its name: no other object begins, and no list ends.

Bounded, as Java's matcher goes a call deeper with each repetition: a hostile event of many texts would overflow the stack, which
ends the executor. Connect writes some 30 parts."""


def fields_of_other_schema(row: StructType, event: Column, *, unscaled: bool) -> Iterator[Column]:
    """Yield the fields of which an event's schema has another scale or unit, and null where it agrees or the event has none.

    Parameters
    ----------
    row
        Schema of a row, of :func:`etl.formats.decoding.times.schema_with_units_in_types`.
    event
        The event as text, with its schema.
    unscaled
        True if decimals are the bytes of their unscaled value.
    """
    schema = F.split(event, rf'"payload"{_COLON}', 2).getItem(0)
    for odd, names in _odd_patterns(row, unscaled):

        def found(text: Column, some: list[str], odd: str = odd) -> Column:
            return text.rlike(rf'(?s){odd}{_TO_FIELD}"(?:{"|".join(map(name_pattern, some))})"')

        each = (F.when(found(schema, [name]), F.lit(name)) for name in names)
        yield F.when(event.rlike(_WRAPPED) & found(event, names), F.concat_ws(", ", *each))


def _odd_patterns(row: StructType, unscaled: bool) -> Iterator[tuple[str, list[str]]]:
    """Yield patterns of another scale or unit, and the fields of which it would be another."""

    def names(matches: Callable[[DataType], bool]) -> list[str]:
        return sorted(set(field_names_of_type(row, matches)))

    for scale in range(39 * unscaled):
        if some := names(lambda kind, scale=scale: isinstance(kind, DecimalType) and kind.scale == scale):  # type: ignore[misc]
            yield rf'"scale"{_COLON}"(?!{scale}")[^"]*+"', some
    for unit in times.UNITS:
        if some := names(lambda kind, unit=unit: times.declares_unit(kind, unit)):  # type: ignore[misc]
            others = "|".join(pattern for name, pattern in _UNITS.items() if name != unit)
            yield rf'"name"{_COLON}"(?:{others})"', some
