"""Data rules: conditions on decoded records. A record that breaks one is counted, becomes a dead letter, or stops the query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, StructType

from ...launch.settings import RuleSettings, SourceRouteSettings
from ...record import envelope
from ...record.errors import JVM_ERRORS, StartError, describe_error
from ..base import Decoder, DecoderWrapper

STAGE = "rule"
"""``_stage`` of a dead letter that breaks a rule; its ``_error`` lists the names of the broken rules."""

_PAYLOAD, _BROKEN = "_ruled_payload", "_broken_rules"
_FIGURE = "rule "


@dataclass(frozen=True)
class RuleCheckingDecoder(DecoderWrapper):
    """Decoder that checks its good records against rules.

    A condition that is null counts as broken. Deletes (:class:`.decoder_per_topic.TombstoneAsDeleteDecoder`) have no fields and break no rule.

    Parameters
    ----------
    rules
        Those with the action ``dead-letter`` or ``fail``; rules that warn change no row.
    """

    rules: tuple[RuleSettings, ...]

    def decode(self, rows: DataFrame) -> DataFrame:
        """Decode, see :meth:`etl.formats.base.Decoder.decode`; a record that breaks a rule is a dead letter of :data:`STAGE`."""
        if not self.rules:
            return self.decoder.decode(rows)
        decoded = self.decoder.decode(rows.withColumn(_PAYLOAD, F.col("payload")))
        good = F.col("_error").isNull() & F.col("_stage").isNull()
        # A separate projection: Spark does not merge it if it is expensive, and each column uses it.
        judged = decoded.withColumn(_BROKEN, F.when(good, self._broken_rule_names()))
        broken = F.col(_BROKEN).isNotNull()
        changed = {
            "_bytes": F.when(broken, F.col(_PAYLOAD)).otherwise(F.col("_bytes")),
            "_stage": F.when(broken, F.lit(STAGE)).otherwise(F.col("_stage")),
            "_error": F.coalesce(F.col(_BROKEN), F.col("_error")),
        } | {name: F.when(~broken, F.col(f"`{name}`")) for name in self.schema.fieldNames()}
        return judged.select(
            *(
                changed[name].alias(name) if name in changed else F.col(f"`{name}`")
                for name in decoded.columns
                if name != _PAYLOAD
            )
        )

    def _broken_rule_names(self) -> Column:
        """Return the names of the broken rules; null if there are none."""
        names = [
            F.when(_broken_rule_condition(rule.where), F.lit(rule.name))
            for rule in self.rules
            if rule.action != "fail"
        ]
        listed = F.concat_ws(", ", *names) if names else F.lit("")
        verdict = F.when(listed != "", listed)
        return reduce(
            lambda found, rule: F.when(
                _broken_rule_condition(rule.where), _column_raising_broken_rule(rule)
            ).otherwise(found),
            [rule for rule in self.rules if rule.action == "fail"],
            verdict,
        )


def decoder_with_rules(spark: SparkSession, decoder: Decoder, rules: tuple[RuleSettings, ...]) -> Decoder:
    """Return a decoder that also checks rules; the same one without rules.

    Raises
    ------
    StartError
        Spark cannot evaluate a condition on the columns of a record, or it is not BOOLEAN.
    """
    for rule in rules:
        record = spark.createDataFrame([], StructType([*envelope.SCHEMA.fields, *decoder.schema.fields]))
        try:
            kind = record.select(F.expr(rule.where)).schema[0].dataType
        except JVM_ERRORS as error:
            raise StartError(
                f"rule {rule.name}: Spark cannot evaluate the condition {rule.where}: "
                f"{' '.join(describe_error(error).splitlines()[:2])}"
            ) from error
        if not isinstance(kind, BooleanType):
            raise StartError(
                f"rule {rule.name}: the condition {rule.where} has type {kind.simpleString()}; it must be BOOLEAN"
            )
    # Also if all rules warn: the counts need the columns of a record (see `decode_and_observe`).
    return (
        RuleCheckingDecoder(decoder, tuple(rule for rule in rules if rule.action != "warn"))
        if rules
        else decoder
    )


def broken_rule_count_aggregates(routes: Sequence[SourceRouteSettings]) -> tuple[Column, ...]:
    """Return aggregates over landed rows that count the records breaking each rule, named for :func:`rules_field_of_accounts`."""
    return tuple(
        F.expr(f"count_if({_sql_condition_of_broken_records(route, rule)})").alias(
            f"{_FIGURE}{qualified_rule_name(route, rule)}"
        )
        for route in routes
        for rule in route.rules
        if rule.action != "fail"
    )


def qualified_rule_name(route: SourceRouteSettings, rule: RuleSettings) -> str:
    """Return a rule's name within its query."""
    return rule.name if route.name is None else f"{route.name}.{rule.name}"


def rules_field_of_accounts(figures: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """Return the field ``rules`` of a batch's accounts, from its figures; empty for a query without rules."""
    found = {name.removeprefix(_FIGURE): n for name, n in figures.items() if name.startswith(_FIGURE)}
    return {"rules": found} if found else {}


def _sql_condition_of_broken_records(route: SourceRouteSettings, rule: RuleSettings) -> str:
    mine = "" if route.name is None else f"_route = '{route.name}' AND "
    if rule.action == "dead-letter":
        # Redaction may add a note in brackets.
        return rf"{mine}_stage = '{STAGE}' AND array_contains(split(_error, ', | \\('), '{rule.name}')"
    return f"{mine}_error IS NULL AND _stage IS NULL AND NOT coalesce({rule.where_landed}, false)"


def _broken_rule_condition(where: str) -> Column:
    return ~F.coalesce(F.expr(where), F.lit(False))


def _column_raising_broken_rule(rule: RuleSettings) -> Column:
    said = F.concat(F.lit(f"rule {rule.name} (action fail) is broken by record "), F.col("_id"))
    return F.raise_error(said).cast("string")
