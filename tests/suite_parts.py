"""Assignment of tests to parts, and the order of the parts, for :mod:`tests.run`."""

from __future__ import annotations

from dataclasses import dataclass

from millrace.config.engines.versions import LINES


@dataclass(frozen=True)
class Part:
    """Tests that one pytest runs.

    Attributes
    ----------
    kind
        What its closing line counts for.
    name
        For people and files.
    paths
        Folders and files below ``tests``.
    without
        Those below them that another part runs.
    options
        Of pytest.
    turns
        Days in which each of its paths runs once, where slow tests do; 0 for a part that always runs whole.
    line
        Of Spark, where it is not this interpreter's.
    """

    kind: str
    name: str
    paths: tuple[str, ...]
    without: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    turns: int = 0
    line: str = ""


_OWN_SERVERS = (
    "integration/lifecycle",
    "integration/test_dev_environment_stacks.py",
    "integration/test_fault_round.py",
    "integration/test_loopback_only.py",
    "integration/test_wheel.py",
    "integration/test_spark_upgrade.py",
)
"""Need nothing of the one deployment that the other integration tests share."""

_FIRST_DAY = ("integration/test_first_day_of_company.py",)
"""Takes ten minutes, by itself on its day."""

_CRASH_POINT = ("integration/test_crash_points.py",)
"""Another one each third day, by itself."""

_PROGRAMS = ("unit/cli", "unit/lifecycle", "unit/sandbox")
"""Wait for processes and for moto's server."""

_SIZING = ("unit/sizing",)
_ADVISOR = ("unit/advisor",)
"""Both compute, and take half of the unit tests' time."""

LARGE = tuple(
    f"spark/{name}.py"
    for name in (
        "queries/test_land",
        "queries/test_derive",
        "queries/test_enrichment",
        "queries/test_direct",
        "repair/test_replay_dead_letters",
        "sources/test_kinesis_connector_guards",
        "sinks/test_latest_by",
        "queries/test_routed_direct",
        "repair/test_backfill_landing",
        "repair/test_replay_refused_rows",
        "repair/test_backfill_derived",
        "queries/test_exactly_once",
    )
)
"""Again with the settings that many rows bring about: nothing is broadcast. One of them a day."""

NEWEST = list(LINES)[-1]
_NEW_LINE = tuple(
    f"spark/{name}"
    for name in (
        "formats/test_decode_json.py::test_each_bad_record_is_a_dead_letter_with_its_bytes_and_reason",
        "queries/test_enrichment.py::test_a_reference_table_is_read_again_on_its_interval_only",
        "queries/test_enrichment.py::test_enriched_and_transformed",
        "job/test_jvm_name_cache.py",
        "job/test_results_under_engine_settings.py::test_functions_of_text_have_the_same_results_on_each_line",
        "sources/test_kinesis_reader.py",
        "queries/test_derive.py::test_a_column_that_a_table_cannot_have_is_refused_at_the_start",
        "queries/test_land.py::test_a_batch_lands_with_envelope_hash_and_dead_letters",
        "queries/test_land.py::test_an_empty_batch_a_bad_one_and_a_replay_balance_and_end",
        "sinks/test_jdbc.py::test_types_are_postgres_own_and_a_replay_writes_nothing",
        "sinks/test_jdbc.py::test_rows_that_the_table_refuses_are_letters_and_the_others_are_in",
        "sinks/test_two_writers.py::test_results_that_a_table_was_joined_to_take_the_place_of_others",
        "queries/test_stateful_derive.py::test_a_file_of_state_with_the_changes_of_another_ends_the_query",
    )
)
"""What differs between Spark's lines: bytes that are not UTF-8, a table at a snapshot, counts of a batch, a merge, Kinesis."""

_BETWEEN = tuple(
    f"spark/{name}"
    for name in (
        "queries/test_land.py::test_a_batch_lands_with_envelope_hash_and_dead_letters",
        "queries/test_stateful_derive.py::test_a_later_result_replaces_an_earlier_one",
    )
)
"""A sample on the line between the default one and the newest, which is installed on those two days of a week only."""

LARGE_PROFILE = "5.1 partitions=2 autoBroadcastJoinThreshold=-1"
"""Of :mod:`tests.spark.engine_sessions`."""


PARTS = (
    Part("unit", "unit-sizing", _SIZING),
    Part("unit", "unit-functions", ("unit",), without=(*_PROGRAMS, *_SIZING, *_ADVISOR)),
    Part("integration", "first-day", _FIRST_DAY, turns=24),
    Part("integration", "integration-own", _OWN_SERVERS),
    Part("spark", "spark-queries", ("spark/queries",)),
    Part(
        "integration",
        "integration-shared",
        ("integration",),
        without=(*_OWN_SERVERS, *_CRASH_POINT, *_FIRST_DAY),
    ),
    Part("spark", "spark-sinks", ("spark/sinks",)),
    Part("unit", "unit-programs", _PROGRAMS),
    Part("unit", "unit-advisor", _ADVISOR),
    Part("spark", "spark-job", ("spark/job", "spark/kinds")),
    Part("spark", "spark-formats", ("spark/formats",)),
    Part("integration", "crash-point", _CRASH_POINT, turns=3),
    Part("template", "template", ("template",)),
    Part("spark", "spark-sources", ("spark/sources", "spark/repair")),
    Part("spark", f"spark-{NEWEST}", _NEW_LINE, line=NEWEST),
    Part("spark", "spark-4.0", _BETWEEN, turns=7, line="4.0"),
    Part("spark", "spark-large", LARGE, options=("--profile", LARGE_PROFILE), turns=len(LARGE)),
)
"""In the order in which they begin, the longest first, so that all end together; those of ``integration`` wait more than they compute."""

AT_ONCE = 3
"""Parts that run beside each other, on two cores: four took a fifth longer, as each Spark session wants more than one."""

KINDS = tuple(dict.fromkeys(part.kind for part in PARTS))
