"""Forecasts for other cores, limits, triggers, partitions or traffic (what-if): the twin in the one simulator."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, get_args

import numpy as np

from millrace.advisor.findings.count_kafka_range_tasks import range_tasks_by_partition
from millrace.advisor.forecasts.forecast_figures import FIGURES, Forecast, QueryForecast
from millrace.advisor.forecasts.query_twin import BatchDurationModel, QueryTwin, twin_of_query
from millrace.advisor.logs.application_history_model import History
from millrace.advisor.logs.statistics import Estimate, slope_with_interval
from millrace.config.document.explain_validation_errors import did_you_mean_text
from millrace.config.document.problems import results_or_all_problems, wrong_option_error
from millrace.config.engines.glue import glue_tasks_per_worker, glue_workers
from millrace.config.units import parse_duration
from millrace.sizing.queries.partition_tasks import EqualPartitions, divide_stream
from millrace.sizing.simulation import FixedExecutors, QueryLoad, QueryResult, Scenario, simulate

DRAWS = 39
"""Number of refitted twins: their minimum and maximum bound 95 % (38 of 40 gaps lie between them)."""

MOST_BATCHES = 20_000
"""Maximum number of a query's batches in a simulation: the twin has seen 150, so all others would be in the gaps between."""

_SLOPE = 5
"""Minimum number of batches in the second half of a simulation whose backlogs can show that it grows."""

_MANY = 64
"""Maximum number of partitions whose tasks vary one by one."""

_GLUE, _LARGEST = "5.1", 64
"""The Glue version whose worker types are valid names, and more task slots than any worker has."""

Key = Literal["cores", "limit", "trigger", "partitions", "cache", "worker", "split", "merge", "traffic"]
"""Conditions that may change: task slots; records of a batch; seconds between batches; tasks that read; a cache for rows that
are read more than once; task slots of one worker, with as many workers; several jobs instead of one; several jobs like this
one in one; and records, as a multiple of the arrivals.
"""


@dataclass(frozen=True)
class WhatIfChange:
    """One changed condition.

    Attributes
    ----------
    value
        A count, seconds or a factor; 1 for a cache.
    query
        The only query that it is for; ``None`` for all.
    """

    key: Key
    value: float
    query: str | None = None

    def __str__(self) -> str:
        shown = f"{self.value:g}s" if self.key == "trigger" else f"{self.value:,.0f}".replace(",", "")
        if self.key == "traffic":
            shown = f"{self.value:g}"
        if self.key == "cache":
            shown = "on"
        return f"{self.query}.{self.key}={shown}" if self.query else f"{self.key}={shown}"


@dataclass(frozen=True)
class ApplicationTwin:
    """Twin of a complete application, for what-if forecasts.

    Attributes
    ----------
    queries
        Queries that have a forecast, by name.
    cores, executor_cores
        Task slots: of all executors, of one.
    worker_usd_hour
        Of one machine; ``None`` where no price is known.
    notes
        What cannot be forecast, and of which query.
    """

    queries: Mapping[str, QueryTwin]
    cores: int
    executor_cores: int
    worker_usd_hour: float | None
    notes: tuple[str, ...]

    def relative_duration_errors(self, replayed: Forecast) -> dict[str, float]:
        """Return the relative error of the replay's median batch duration."""
        return {
            name: abs(
                replayed.queries[name].figures["duration"].value / float(np.median(query.durations)) - 1
            )
            for name, query in self.queries.items()
        }

    def forecast_what_if(self, changes: Sequence[WhatIfChange], draws: int = DRAWS) -> Forecast:
        """Forecast the same traffic under other conditions.

        Parameters
        ----------
        changes
            From :func:`parse_what_if_changes`; without any, the run is simulated again, to compare it with the log.
        draws
            Refitted twins for the intervals.

        Raises
        ------
        ConfigurationError
            More jobs than cores.
        """
        values = {each.key: each.value for each in changes if each.query is None}
        executor_cores = int(values.get("worker", self.executor_cores))
        executors = math.ceil(self.cores / self.executor_cores)
        cores = executors * executor_cores if "worker" in values else self.cores
        cores = int(values.get("cores", cores))
        jobs = int(values.get("split", 1))
        if jobs > cores:
            raise wrong_option_error(
                "--what-if", f"split={jobs}", f"at most {cores}, because each job needs a core"
            )
        each = cores // jobs
        for name, query in self.queries.items():
            merged = int(_changes_of_query(changes, name).get("merge", 1))
            if merged > (slots := _scaled_cores(query, each, self.cores)):
                raise wrong_option_error(
                    "--what-if",
                    f"merge={merged}",
                    f"at most {slots}: query {name} has {slots} cores, and each of the merged jobs needs one",
                )
        drawn = {name: list(query.resampled_batch_indexes(draws)) for name, query in self.queries.items()}
        best = self._simulated_figures_by_query(changes, each, None, 0)
        others = [
            self._simulated_figures_by_query(changes, each, {n: d[i] for n, d in drawn.items()}, i + 1)
            for i in range(draws)
        ]
        queries = {
            name: _forecast_of_query(
                query, _changes_of_query(changes, name), best[name], [each[name] for each in others]
            )
            for name, query in self.queries.items()
        }
        machines = jobs * (math.ceil(each / executor_cores) + 1)
        price = self.worker_usd_hour
        if price is not None and "worker" in values:  # a worker's price follows its cores
            price *= executor_cores / self.executor_cores
        dollars = None if price is None else machines * price * 730
        return Forecast(
            changes=tuple(map(str, changes)),
            cores=each,
            workers=machines,
            dollars_month=dollars,
            queries=queries,
        )

    def _simulated_figures_by_query(
        self,
        changes: Sequence[WhatIfChange],
        cores: int,
        drawn: Mapping[str, Sequence[int]] | None,
        seed: int,
    ) -> dict[str, tuple[float, ...]]:
        loads = []
        for name, query in self.queries.items():
            own = _changes_of_query(changes, name)
            # Where κ and b cannot be separated, the interval has to contain both ends.
            fixed = 0.5 if drawn is None else float(seed % 2)
            # The share that other queries leave to it stays the same.
            slots = max(1, _scaled_cores(query, cores, self.cores) // int(own.get("merge", 1)))
            costs = query.fit_batch_durations(slots, None if drawn is None else drawn[name], fixed)
            loads += _query_loads(query, own, slots, costs)
        seconds = max(query.arrivals.seconds for query in self.queries.values())
        sigma = max(query.sigma for query in self.queries.values())
        done = simulate(Scenario(seconds, tuple(loads), cores, FixedExecutors(1), sigma=sigma, seed=seed + 1))
        return {
            name: _figures_of_result(done.queries[name], query.arrivals.seconds)
            for name, query in self.queries.items()
        }


def _changes_of_query(changes: Sequence[WhatIfChange], query: str) -> dict[Key, float]:
    """Return the changed conditions of one query."""
    return {each.key: each.value for each in changes if each.query in (None, query)}


def _scaled_cores(query: QueryTwin, cores: int, cores_before: int) -> int:
    return max(1, round(query.cores * cores / cores_before)) if query.cores < cores_before else cores


def _query_loads(
    query: QueryTwin, changed: Mapping[Key, float], slots: int, costs: BatchDurationModel
) -> list[QueryLoad]:
    merged, jobs = int(changed.get("merge", 1)), int(changed.get("split", 1))
    count, parts = _divide_partitions(query, changed)
    waves = math.ceil(count / slots)
    passes = (
        query.reads if changed.get("cache") else 1
    )  # costs of a pass beside its records are not separated
    limit = changed.get("limit", query.limit)
    load = QueryLoad(
        name=query.name,
        overhead=max(costs.overhead + costs.rest[0], 1e-3),
        per_record=costs.per_record / passes + costs.rest[1] * count / waves,
        trigger=changed.get("trigger", query.trigger),
        source=query.arrivals.scaled(changed.get("traffic", 1.0) / jobs),
        parts=parts,
        limit=None if limit is None else limit / jobs,
        wave=costs.wave,
        overhead_sigma=costs.overhead_sigma,
    )
    return [load, *(replace(load, name=f"{query.name} {n}") for n in range(1, merged))]


def _divide_partitions(
    query: QueryTwin, changed: Mapping[Key, float]
) -> tuple[int, tuple[EqualPartitions, ...]]:
    """Return the number of tasks that read, and their shares.

    More tasks split ranges of a topic's offsets as ``minPartitions`` does. Elsewhere, and with fewer tasks, the largest keeps its
    share, as no key is divided.
    """
    count = max(1, int(changed.get("partitions", query.partitions)) // int(changed.get("split", 1)))
    made = query.parts
    if count != query.partitions and 0 < len(query.ranges) <= count:
        tasks = range_tasks_by_partition(query.ranges, count).astype(int)
        shares = query.ranges / query.ranges.sum() / tasks
        made = tuple(EqualPartitions(float(each), int(n)) for each, n in zip(shares, tasks, strict=True))
        count = int(tasks.sum())
    elif count != query.partitions:
        largest = query.parts[0].share * count if len(query.parts) > 1 else 0.0
        made = divide_stream(count, min(float(count), max(1.0, largest)))
    if count > _MANY:
        return count, made
    return count, tuple(EqualPartitions(each.share, 1) for each in made for _ in range(each.count))


def _figures_of_result(result: QueryResult, seconds: float) -> tuple[float, ...]:
    arrivals = result.arrivals
    # Without what waited for the first batch.
    pace = (arrivals.records - arrivals.arrived_before(seconds / 2)) / (seconds / 2)
    if not len(result.ends):
        # No batch ended: it lasts longer than the simulated time.
        return (seconds, seconds, seconds, seconds, result.waiting, pace, pace, pace, 0.0)
    lasted = result.ends - result.starts
    # What waits longer than from one batch to the next: what arrives in that time changes with the traffic.
    usual = float(np.median(np.diff(result.starts, prepend=0.0)))
    edges, totals = arrivals.times, arrivals.totals
    came = np.interp(result.starts, edges, totals) - np.interp(result.starts - usual, edges, totals)
    late = result.starts >= seconds / 2
    grows = slope_with_interval(result.starts[late], (result.backlog - came)[late])
    if np.count_nonzero(late) < _SLOPE:
        grows = Estimate(grows.value, min(grows.value, 0.0), max(grows.value, pace))
    return (
        float(np.median(lasted)),
        float(np.percentile(lasted, 95)),
        result.ages.percentile(50),
        result.ages.percentile(95),
        result.waiting,
        grows.value,
        grows.low,
        grows.high,
        1.0,
    )


def _forecast_of_query(
    query: QueryTwin, changed: Mapping[Key, float], best: Sequence[float], others: Sequence[Sequence[float]]
) -> QueryForecast:
    """Return the forecast of a query from its figures, and from those of its refitted twins."""
    ranges = [
        Estimate(value=value, low=min([value, *drawn]), high=max([value, *drawn]))
        for value, *drawn in zip(best, *others, strict=True)
    ]
    jobs = changed.get("split", 1)
    return QueryForecast(
        figures=dict(zip(FIGURES, ranges, strict=False)),
        trigger=changed.get("trigger", query.trigger),
        limit=changed.get("limit", query.limit),
        partitions=_divide_partitions(query, changed)[0],
        arriving=query.records_per_second * changed.get("traffic", 1.0) / jobs,
        waiting=ranges[4],
        grows=Estimate(value=best[5], low=ranges[6].low, high=ranges[7].high),
        ended=bool(best[8]),
    )


def twin_of_application(history: History, worker_usd_hour: float | None = None) -> ApplicationTwin:
    """Return the twin of an application; queries without a forecast are noted."""
    twins: dict[str, QueryTwin] = {}
    notes = []
    for query in history.queries:
        made = twin_of_query(history, query)
        if made is None:
            notes.append(f"{query.name}: too few settled batches with records for a forecast")
        elif made.arrivals.seconds > MOST_BATCHES * max(made.trigger, float(np.median(made.durations))):
            notes.append(f"{query.name}: its batches lie too far apart to be simulated")
        else:
            twins[query.name] = made  # of several runs the last one counts
            notes += [f"{query.name}: {each}" for each in made.notes]
    executor_cores = max(1, history.smallest_executor_cores)
    return ApplicationTwin(twins, history.cores, executor_cores, worker_usd_hour, tuple(dict.fromkeys(notes)))


def parse_what_if_changes(text: str, queries: Sequence[str]) -> tuple[WhatIfChange, ...]:
    """Parse the conditions of a what-if forecast.

    Parameters
    ----------
    text
        ``KEY=VALUE`` or ``QUERY.KEY=VALUE``, several with commas.
    queries
        Names of the queries.

    Raises
    ------
    ConfigurationError
        A key, a query or a value is not valid.
    """
    # A comma inside a number is no end of a change: 1,000 is reported as a whole.
    parts = re.split(r",(?!\d+(?:,|$))", text)
    changes = tuple(results_or_all_problems(partial(_parse_change, each.strip(), queries) for each in parts))
    if len({(each.query, each.key) for each in changes}) < len(changes):
        raise wrong_option_error("--what-if", text, "each key once; for another forecast, repeat --what-if")
    return changes


def _parse_change(text: str, queries: Sequence[str]) -> WhatIfChange:
    left, equals, value = text.partition("=")
    query, dot, key = left.rpartition(".")
    known = get_args(Key)
    if not equals or key not in known:
        raise wrong_option_error(
            "--what-if",
            text,
            f"KEY=VALUE or QUERY.KEY=VALUE, with KEY one of {', '.join(known)}",
            did_you_mean_text(key, known),
        )
    if dot and query not in queries:
        raise wrong_option_error(
            "--what-if",
            text,
            f"the name of a query of the log: {', '.join(queries) or 'it has none'}",
            did_you_mean_text(query, queries),
        )
    if dot and key in ("cores", "worker", "split"):
        raise wrong_option_error(
            "--what-if",
            text,
            f"{key} without the name of a query, because it applies to all queries of the job",
        )
    named = next(each for each in known if each == key)
    try:
        return WhatIfChange(named, _parse_value(named, value), query or None)
    except ValueError as error:
        raise wrong_option_error("--what-if", text, str(error)) from None


def _parse_value(key: Key, text: str) -> float:
    """Return the value of a change; the message of a ``ValueError`` says what is allowed."""
    if key == "trigger":
        return parse_duration(text).total_seconds()
    if key == "worker" and text in glue_workers(_GLUE):
        return float(glue_tasks_per_worker(_GLUE, text))
    number = math.nan
    with suppress(ValueError):
        number = 1.0 if key == "cache" and text == "on" else float(text)
    rules = {
        "cache": (text == "on", "cache=on"),
        "traffic": (
            0 < number <= 1000,
            "a factor of the logged traffic, more than 0 and at most 1000, such as 2",
        ),
        "worker": (
            1 <= number <= _LARGEST and number == int(number),
            f"the number of task slots per worker, 1 to {_LARGEST}, or one of {', '.join(glue_workers(_GLUE))}",
        ),
    }
    count = (1 <= number <= 1e9 and number == int(number), "a whole number without commas, 1 or more")
    is_valid, allowed = rules.get(key, count)
    if not is_valid:
        raise ValueError(allowed)
    return number
