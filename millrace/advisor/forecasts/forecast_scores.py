"""Forecasts that are kept beside the advice, and their scores by the next log."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import BaseModel, ValidationError

from millrace.advisor.findings.model import Change, Finding
from millrace.advisor.forecasts.forecast_figures import FIGURES, Forecast, QueryForecast
from millrace.advisor.forecasts.query_twin import QueryTwin
from millrace.advisor.forecasts.what_if import ApplicationTwin, WhatIfChange
from millrace.advisor.logs.statistics import Estimate
from millrace.config.base import Model
from millrace.config.document.problems import wrong_option_error
from millrace.config.units import parse_duration
from millrace.sizing.simulation.result import Ages

_NEXT = math.sqrt(2)
"""The next log's figure comes from as few batches as this one's: the variances of both add up."""

_CLOSEST = 0.01
"""Minimum distance of an interval's ends from the figure, as a share of it: the model has no delays of threads and clocks."""

_LIKE = 0.1
"""Largest difference in traffic, and in a count, for a forecast to be about the same conditions."""

_SETTINGS: Mapping[str, Literal["trigger", "limit", "cores", "partitions"]] = {
    "trigger": "trigger",
    "trigger(processingTime)": "trigger",
    "windowSize": "trigger",
    "records_per_batch": "limit",
    "maxOffsetsPerTrigger": "limit",
    "cores": "cores",
    "min_partitions": "partitions",
    "minPartitions": "partitions",
    "partitions": "partitions",
    "shards": "partitions",
}
"""Names of settings that the twin can simulate; it cannot simulate others, such as a limit for each shard."""


class _AdviceDocument(BaseModel):
    """The part of ``advise --json`` that scoring needs."""

    version: Literal[1]
    forecasts: tuple[Forecast, ...]


class FigureScore(Model):
    """One forecast figure and its actual value.

    Attributes
    ----------
    figure
        In words.
    happened
        Seconds in the next log.
    inside
        Whether that is within the interval.
    """

    query: str
    figure: str
    foretold: Estimate
    happened: float
    inside: bool

    @property
    def relative_error(self) -> float:
        """Error of the forecast, as a share of the actual value."""
        return abs(self.foretold.value - self.happened) / max(self.happened, 1e-9)


class ScoredForecast(Model):
    """A forecast and its scores; without any when conditions differed, which ``why_not`` names.

    ``left_out`` has the reasons for single queries, beside others that are scored.
    """

    forecast: Forecast
    scores: tuple[FigureScore, ...] = ()
    why_not: str | None = None
    left_out: tuple[str, ...] = ()


def changes_to_simulate_by_finding(
    findings: Iterable[Finding], queries: Sequence[str]
) -> dict[int, tuple[WhatIfChange, ...]]:
    """Return the first changes of findings that a twin can simulate, with those that they need, by the place of the finding."""
    changes: dict[int, tuple[WhatIfChange, ...]] = {}
    for place, finding in enumerate(findings):
        asked = () if finding.best_change is None else (finding.best_change, *finding.best_change.also)
        simulated = [_what_if_change_or_none(each, finding.query, queries) for each in asked]
        if simulated and None not in simulated:
            changes[place] = tuple(each for each in simulated if each is not None)
    return changes


def _what_if_change_or_none(change: Change, query: str | None, queries: Sequence[str]) -> WhatIfChange | None:
    key, value = _SETTINGS.get(change.key.rpartition(".")[2]), _number_or_none(change.new)
    of_query = None if key == "cores" else query
    if key is None or value is None or value <= 0 or (of_query is not None and of_query not in queries):
        return None
    return WhatIfChange(key, value, of_query)


def _number_or_none(value: object) -> float | None:
    text = str(value).removesuffix(" seconds")
    for parse in (float, lambda each: parse_duration(each).total_seconds()):
        with suppress(ValueError):
            return parse(text)
    return None


def read_forecasts(file: Path) -> tuple[Forecast, ...]:
    """Read the forecasts of an earlier ``millrace advise --json``.

    Raises
    ------
    ConfigurationError
        No such file, or none with forecasts.
    """
    allowed = "what `millrace advise --json` printed, with forecasts in it"
    try:
        return _AdviceDocument.model_validate_json(file.read_text(encoding="utf-8")).forecasts
    except OSError as error:
        raise wrong_option_error("--score", str(file), f"{allowed}: {error.strerror or error}") from error
    except (ValidationError, UnicodeDecodeError) as error:
        raise wrong_option_error("--score", str(file), allowed) from error


def score_forecasts(forecasts: Sequence[Forecast], then: ApplicationTwin) -> tuple[ScoredForecast, ...]:
    """Compare forecasts with the next log.

    Parameters
    ----------
    forecasts
        Forecasts from :func:`read_forecasts`.
    then
        The twin of the next log.

    Returns
    -------
    tuple
        One for each forecast; those about other conditions have no scores.
    """
    return tuple(_score_forecast(each, then) for each in forecasts)


def _score_forecast(forecast: Forecast, then: ApplicationTwin) -> ScoredForecast:
    keys = [_query_and_key(each) for each in forecast.changes]
    if any(key == "merge" for _, key in keys):
        return ScoredForecast(forecast=forecast, why_not="no log shows which jobs were brought into one")
    if then.cores != forecast.cores:
        return ScoredForecast(
            forecast=forecast, why_not=f"it ran with {then.cores} cores, not with {forecast.cores}"
        )
    scores: list[FigureScore] = []
    others: list[str] = []
    for name, was in forecast.queries.items():
        query = then.queries.get(name)
        held = any(key == "cache" and of in ("", name) for of, key in keys)
        other = (
            f"the log has too little of {name}"
            if query is None
            else _differing_condition(name, was, query, cached=held)
        )
        if query is None or other is not None:
            others.append(str(other))
            continue
        happened = observed_figures(query)
        for key, words in FIGURES.items():
            interval = expected_interval_of_next_log(was.figures[key])
            inside = interval.low <= happened[key] <= interval.high
            scores.append(
                FigureScore(
                    query=name, figure=words, foretold=interval, happened=happened[key], inside=inside
                )
            )
    if not scores:
        return ScoredForecast(forecast=forecast, why_not="; ".join(others))
    return ScoredForecast(forecast=forecast, scores=tuple(scores), left_out=tuple(others))


def _query_and_key(change: str) -> tuple[str, str]:
    """Return the query that a change of a forecast names, empty without one, and its key."""
    query, _, key = change.rpartition("=")[0].rpartition(".")
    return query, key


def _differing_condition(name: str, was: QueryForecast, query: QueryTwin, *, cached: bool) -> str | None:
    """Return which condition differs; a limit that no batch reached and a trigger that no batch waited for are invisible."""
    if cached and query.reads > 1:
        return f"{name} read its records {query.reads} times in a batch: nothing held them"
    if query.partitions != was.partitions:
        return f"{name} had {query.partitions} partitions, not {was.partitions}"
    late = query.trigger == 0 and was.trigger <= float(np.median(query.durations))
    if not late and abs(query.trigger - was.trigger) > _LIKE * max(was.trigger, 0.1):
        return f"{name} began a batch each {query.trigger:g} s, not each {was.trigger:g} s"
    if query.limit is not None and (was.limit is None or abs(query.limit - was.limit) > _LIKE * was.limit):
        limit = "no limit" if was.limit is None else f"a limit of {was.limit:,.0f}"
        return f"{name} had a limit of {query.limit:,.0f}, not {limit}"
    most = float(query.records.max(initial=0))
    if was.limit is not None and most > was.limit * (1 + _LIKE):
        return f"{name} took up to {most:,.0f} records a batch, not {was.limit:,.0f} at most"
    pace = query.records_per_second
    if abs(pace - was.arriving) > _LIKE * was.arriving:
        return f"{name} got {pace:,.1f} records/s, not {was.arriving:,.1f}"
    if not was.keeps_up:
        return f"{name} was forecast not to keep up: its figures are those of a run of that length"
    return None


def observed_figures(query: QueryTwin) -> dict[str, float]:
    """Return the figures of a log, by the names of :data:`FIGURES`."""
    cuts = np.concatenate(([0.0], np.cumsum(query.records)))
    edges, first, last = query.arrivals.spans_with_arrival_times(cuts)
    ended = query.ended[np.searchsorted(cuts, (edges[:-1] + edges[1:]) / 2) - 1]
    ages = Ages(ended - last, ended - first, np.diff(edges))
    return {
        "duration": float(np.median(query.durations)),
        "slow": float(np.percentile(query.durations, 95)),
        "age": ages.percentile(50),
        "oldest": ages.percentile(95),
    }


def expected_interval_of_next_log(interval: Estimate) -> Estimate:
    """Return the interval of a next log's figure, which varies by chance as much as this one's."""
    value = interval.value
    below, above = (
        max(_NEXT * each, _CLOSEST * value) for each in (value - interval.low, interval.high - value)
    )
    return Estimate(value=value, low=max(0.0, value - below), high=value + above)
