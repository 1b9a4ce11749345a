"""Which tests run in which part, and the parts in which lane: read by :mod:`tests.run`."""

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
    daily
        Whether it runs where slow tests do, and then one of its paths a day.
    line
        Of Spark, where it is not this interpreter's.
    """

    kind: str
    name: str
    paths: tuple[str, ...]
    without: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    daily: bool = False
    line: str = ""


_OWN_SERVERS = (
    "integration/lifecycle",
    "integration/test_dev_stacks.py",
    "integration/test_faults.py",
    "integration/test_listening.py",
    "integration/test_package.py",
    "integration/test_spark_moves.py",
)
"""Need nothing of the one deployment that the other integration tests share."""

_CRASH_POINT = ("integration/test_crash_points.py",)
"""Another one each day, by itself."""

_PROGRAMS = ("unit/cli", "unit/lifecycle", "unit/sandbox")
"""Wait for processes and for moto's server."""

_EDGES = tuple(
    f"spark/test_{name}.py"
    for name in (
        *("formats", "formats_landed", "protobuf_by_google", "traffic_decoded"),
        *("outward", "sink_opensearch", "sink_parquet"),
        *("sink_services", "sink_times"),
    )
)
"""Payload formats, and most sinks beside the lake: a session of its own costs less than the wait for one lane."""

_LATE = tuple(
    f"spark/test_{name}.py"
    for name in (
        *("land", "manifests", "marks", "metrics", "opening", "operations", "read_once", "redact", "refill"),
        *("retention", "route", "routed_direct", "script", "sink_jdbc", "sink_jdbc_tls"),
        *("state", "supervise", "supervise_lease", "upkeep"),
    )
)
"""The second half of the core, in a session of its own: the lanes end together, and a heap of one session holds it."""

_HOSTILE = tuple(
    f"spark/test_{name}.py"
    for name in (
        *("bare_python", "exponents", "kafka_limits", "kafka_log", "kafka_login", "kafka_secured"),
        *("kafka_times",),
        *("kinesis_land", "kinesis_trimmed", "latest", "origins", "partitions", "redaction", "refused"),
        *("replay", "sink_kafka", "state_times"),
    )
)
"""What the world outside does to a job; many start a program or a broker of their own."""

LARGE = tuple(
    f"spark/test_{name}.py"
    for name in (
        *("land", "derive", "direct", "replay", "kinesis_land", "latest"),
        *("routed_direct", "refill", "refused", "backfill", "exactly_once"),
    )
)
"""Again with the settings that many rows bring about: nothing is broadcast. One of them a day."""

NEWEST = list(LINES)[-1]
_NEW_LINE = tuple(
    f"spark/test_{name}"
    for name in (
        "decode.py::test_each_bad_record_is_a_dead_letter_with_its_bytes_and_reason",
        "derive.py::test_a_reference_table_is_read_again_on_its_interval_only",
        "derive.py::test_enriched_and_transformed",
        "jvm_names.py",
        "kinesis_reader.py",
        "land.py::test_a_batch_lands_with_envelope_hash_and_dead_letters",
        "land.py::test_an_empty_batch_a_bad_one_and_a_replay_balance_and_end",
        "sink_jdbc.py::test_types_are_postgres_own_and_a_replay_writes_nothing",
        "sink_jdbc.py::test_rows_that_the_table_refuses_are_letters_and_the_others_are_in",
        "two_writers.py::test_results_that_a_table_was_joined_to_take_the_place_of_others",
        "state.py::test_a_file_of_state_with_the_changes_of_another_ends_the_query",
    )
)
"""What differs between Spark's lines: bytes that are not UTF-8, a table at a snapshot, counts of a batch, a merge, Kinesis."""

_BETWEEN = tuple(
    f"spark/test_{name}"
    for name in (
        "land.py::test_a_batch_lands_with_envelope_hash_and_dead_letters",
        "state.py::test_a_later_result_replaces_an_earlier_one",
    )
)
"""A sample on the line between the default one and the newest: one of them a day."""

LARGE_PROFILE = "5.1 partitions=2 autoBroadcastJoinThreshold=-1"
"""Of :mod:`tests.spark.profiles`."""


LANES = (
    (
        Part("unit", "unit-functions", ("unit",), without=_PROGRAMS),
        Part("integration", "integration-own", _OWN_SERVERS),
        Part("integration", "crash-point", _CRASH_POINT, daily=True),
        Part("spark", "spark-hostile", _HOSTILE),
        Part("spark", f"spark-{NEWEST}", _NEW_LINE, line=NEWEST),
        Part("spark", "spark-large", LARGE, options=("--profile", LARGE_PROFILE), daily=True),
    ),
    (
        Part("spark", "spark-core", ("spark",), without=(*_EDGES, *_LATE, *_HOSTILE)),
        Part("spark", "spark-late", _LATE),
        Part("spark", "spark-4.0", _BETWEEN, daily=True, line="4.0"),
    ),
    (
        Part("integration", "integration-shared", ("integration",), without=(*_OWN_SERVERS, *_CRASH_POINT)),
        Part("template", "template", ("template",)),
        Part("spark", "spark-edges", _EDGES),
        Part("unit", "unit-programs", _PROGRAMS),
    ),
)
"""Three, of about the same length, on two cores: four took a fifth longer, as each Spark session wants more than one."""

KINDS = tuple(dict.fromkeys(part.kind for lane in LANES for part in lane))
