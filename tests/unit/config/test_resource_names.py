"""Resource names: the same for deployment and look-up, and within AWS's limits."""

from pathlib import Path

import pytest

from millrace.config import ConfigurationError, Names, load
from millrace.config.document.problems import Problem
from tests.unit.config.conftest import GOOD

ROOT = Path(__file__).parents[3]
BUCKETS = (
    "governance: {name_prefix: acme-streaming-team1}\n"
    "storage: {buckets: {lake: acme-1, checkpoints: acme-2, event-logs: acme-3, dead-letters: acme-4, "
    "access-logs: acme-5}}\n"
)
LONG = "a" * 40
STREAMS = """\
streams:
  out:
    kind: kinesis
    traffic: {records_per_second: 1, record_size: 1KiB}
"""


def problems(project: Path, text: str, name: str = "shop") -> tuple[Problem, ...]:
    (project / "environments" / f"{name}.yaml").write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        load(name, root=project)
    return caught.value.problems


def test_names_follow_project_environment_and_account() -> None:
    names = Names(load("prod", root=ROOT), "444455556666")
    assert names.bucket("lake") == "flights-prod-lake-444455556666-us-east-1"
    assert names.database == "flights_prod"
    assert names.table("departures_landed") == "flights_prod.departures_landed"
    assert names.stream("departures") == "flights-prod-departures"
    assert names.stream("clicks") == "shop-clickstream", "somebody else's keeps its name"
    assert names.stream("bookings") == "bookings", "a topic is named in its cluster"
    assert names.checkpoints_url("ground") == "s3://flights-prod-checkpoints-444455556666-us-east-1/ground"


@pytest.mark.parametrize(
    ("changes", "key", "kind", "most"),
    [
        (
            {"  orders:\n    engine": f"  {LONG}:\n    engine"},
            f"jobs.{LONG}",
            "EMR Serverless application",
            64,
        ),
        (
            {"  main:\n    kind": f"  {LONG}:\n    kind", "cluster: main": f"cluster: {LONG}"},
            f"kafka.{LONG}",
            "MSK cluster",
            64,
        ),
    ],
)
def test_a_name_that_is_too_long_is_told_before_the_deployment(
    project: Path, changes: dict[str, str], key: str, kind: str, most: int
) -> None:
    text = GOOD.replace("tags:\n", BUCKETS + "tags:\n")
    (project / "environments" / "shop.yaml").write_text(text)
    load("shop", root=project)  # as long as the names of the good file are
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    (problem,) = problems(project, text)
    assert problem.key == key
    assert problem.value == f"acme-streaming-team1-shop-shop-{LONG}, 71 characters"
    assert f"{kind} has up to {most} characters" in problem.allowed


def test_names_with_the_longest_of_prefixes_are_checked_everywhere(project: Path) -> None:
    long = "p" * 40
    text = GOOD.replace("tags:\n", BUCKETS + "tags:\n").replace("project: shop", f"project: {long}")
    text = text.replace("  clicks:\n    kind", f"  {LONG}:\n    kind").replace(
        "source: clicks\n", f"source: {LONG}\n"
    )
    text = text.replace("  clicks:\n    engine", f"  {LONG}:\n    engine")
    text = text.replace(
        "kind: land\n        source: a", "kind: land\n        fan_out: true\n        source: a"
    )
    result = {problem.key: problem.allowed for problem in problems(project, text, name="e" * 40)}
    assert "a CloudFormation stack has up to 128" in result[f"jobs.{LONG}"]
    assert "a Kinesis stream has up to 128" in result[f"streams.{LONG}"]
    assert "a consumer of a Kinesis stream has up to 128" in result[f"jobs.{LONG}.queries.land-clicks"]
    assert "an MSK cluster has up to 64" in result["kafka.main"]


def test_two_queries_of_one_consumer_would_throw_each_other_off(project: Path) -> None:
    schema = "schema: pipelines/shop/schemas/click.ddl"
    more = "".join(
        f"""\
  {job}:
    engine: glue
    rate: {{records_per_second_per_core: 5000}}
    queries:
      {query}: {{kind: land, source: clicks, table: {table}, fan_out: true, {schema}}}
"""
        for job, query, table in (("aa-bb", "cc", "one"), ("aa", "bb-cc", "two"))
    )
    (problem,) = problems(project, GOOD + more)
    assert problem.key == "jobs.aa.queries.bb-cc"
    assert problem.value == "consumer shop-shop-aa-bb-cc of clicks"
    assert "jobs.aa-bb.queries.cc has this one" in problem.allowed
    taken = GOOD.replace("    retention: 24h\n", "    fan_out_consumers: [shop-shop-aa-bb-cc]\n") + more
    assert [each.key for each in problems(project, taken)] == [
        "jobs.aa-bb.queries.cc",
        "jobs.aa.queries.bb-cc",
    ]


@pytest.mark.parametrize(
    ("stream", "sink", "allowed"),
    [
        ("", "5MiB", "at most 1024KiB, the largest record of streams.out"),
        ("    max_record_size: 4MiB\n", "5MiB", "at most 4096KiB, the largest record of streams.out"),
        ("    max_record_size: 5MiB\n", "5MiB", None),
        ("", "1MiB", None),
    ],
)
def test_a_sink_lets_through_what_its_stream_takes(
    project: Path, stream: str, sink: str, allowed: str | None
) -> None:
    text = GOOD.replace("streams:\n", STREAMS + stream).replace(
        "        sink: {kind: iceberg, table: clicks_counted}\n",
        f"        sink: {{kind: kinesis, stream: out, max_record_size: {sink}}}\n        dead_letters: refused\n",
    )
    if allowed is None:
        (project / "environments" / "shop.yaml").write_text(text)
        assert load("shop", root=project).streams["out"].kind == "kinesis"
        return
    (problem,) = problems(project, text)
    assert problem.key == "jobs.clicks.queries.count-clicks.sink.max_record_size"
    assert problem.value == "5242880B"
    assert problem.allowed == allowed
    assert problem.hint == "raise streams.out.max_record_size, up to 10MiB"


@pytest.mark.parametrize(("size", "valid"), [("31MiB", True), ("32MiB", False)])
def test_an_existing_topic_says_itself_how_large_its_messages_are(
    project: Path, size: str, valid: bool
) -> None:
    text = GOOD.replace(
        "    topic: orders\n", "    topic: orders\n    existing: true\n    partitions: 3\n"
    ).replace(
        "        sink: {kind: iceberg, table: clicks_counted}\n",
        f"        sink: {{kind: kafka, topic: orders, max_record_size: {size}}}\n        dead_letters: refused\n",
    )
    (project / "environments" / "shop.yaml").write_text(text)
    if valid:
        assert load("shop", root=project).streams["orders"].kind == "kafka"
    else:
        (problem,) = problems(project, text)
        assert problem.allowed == "at most 31744KiB, what a producer's buffer holds"


def test_letters_of_any_language_tag_what_runs_on_glue(project: Path) -> None:
    text = GOOD.replace("team: web", "team: Zoë")
    glue = text[: text.index("  orders:\n    engine")]
    (project / "environments" / "shop.yaml").write_text(glue)
    assert load("shop", root=project).tags == {"team": "Zoë"}
