"""All cases of growth, in the order in which they run."""

from __future__ import annotations

from tests.performance.growth_cases_of_sinks import (
    DeriveRows,
    DirectReplayed,
    DirectRestarted,
    DirectRows,
    FirstDerive,
    KeyedByTime,
    KeyedWithoutTime,
    LatestBy,
    OrderCompared,
)
from tests.performance.growth_cases_of_sources import (
    Case,
    Compacted,
    Lag,
    LandingFiles,
    LandingRows,
    PartitionsRestarted,
    PartitionsRunning,
    Routed,
    Shards,
)

CASES: tuple[type[Case], ...] = (
    LandingRows,
    LandingFiles,
    PartitionsRunning,
    PartitionsRestarted,
    Shards,
    Lag,
    Compacted,
    Routed,
    DeriveRows,
    FirstDerive,
    DirectRows,
    DirectRestarted,
    DirectReplayed,
    KeyedByTime,
    KeyedWithoutTime,
    LatestBy,
    OrderCompared,
)
