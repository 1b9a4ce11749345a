"""Loading of files: names, inheritance and YAML, before values are checked."""

import json
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from millrace.config import ConfigurationError, environment_names, load
from millrace.config.environment_json_schema import SCHEMA_FILE, json_schema, schema_text
from millrace.config.model import Environment
from tests.run import examples
from tests.unit.config.conftest import GOOD

ROOT = Path(__file__).parents[3]


def problems(project: Path, text: str | bytes, name: str = "shop") -> tuple:
    data = text if isinstance(text, bytes) else text.encode()
    (project / "environments" / f"{name}.yaml").write_bytes(data)
    with pytest.raises(ConfigurationError) as caught:
        load(name, root=project)
    return caught.value.problems


def test_every_environment_of_the_repository_loads() -> None:
    assert environment_names(ROOT) == ("dev", "local", "minimal", "prod")
    for name in environment_names(ROOT):
        assert load(name, root=ROOT).name == name


def test_the_smallest_file_is_about_fifteen_lines() -> None:
    lines = (ROOT / "environments/minimal.yaml").read_text().splitlines()
    assert len([line for line in lines if line.strip() and not line.startswith("#")]) <= 16


def test_production_is_a_believable_company() -> None:
    prod = load("prod", root=ROOT)
    kinds = [getattr(stream, "mode", stream.kind) for stream in prod.streams.values()]
    assert sorted(kinds) == ["kafka", "kafka", "on-demand", "provisioned", "provisioned", "provisioned"]
    assert sorted(job.engine for job in prod.jobs.values()) == ["emr", "emr", "glue", "glue", "glue"]


def test_an_unknown_environment_names_the_nearest(project: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load("shpo", root=project)
    (problem,) = caught.value.problems
    assert problem.value == "no environment 'shpo'"
    assert problem.allowed == "one of shop"
    assert problem.hint == "did you mean shop?"


def test_a_missing_file(project: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere\.yaml: no such file"):
        load(project / "nowhere.yaml", root=project)


def test_a_name_with_a_suffix_is_taken_for_a_path(project: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"shop\.yaml: no such file.*did you mean shop\?"):
        load("shop.yaml", root=project)


def test_a_path_works_as_well_as_a_name(project: Path) -> None:
    elsewhere = project / "other.yaml"
    elsewhere.write_text(GOOD)
    assert load(elsewhere, root=project).name == "other"


@pytest.mark.parametrize(
    ("text", "line", "value"),
    [
        ("project: *nobody\n", 1, "undefined alias"),
        ("project: !include other.yaml\n", 1, "project has the tag !include"),
        ("streams: &all\n  again: *all\n", 2, "a YAML alias that contains itself"),
        ("a: 1\n---\nb: 2\n", 2, "another document"),
        ("", 1, "an empty file"),
        ("- 1\n", 1, "not a mapping"),
        ("? [a]\n: 1\n", 1, "a list or a mapping as a key; write a plain word"),
        ("<<: 5\n", 1, "<< takes a mapping"),
        ("a: " + "[" * 1000, 0, "nested too deeply"),
        (b"\xff\xfe\x00", 0, "not UTF-8"),
        (b"a: \x00\n", 0, "unacceptable character"),
    ],
)
def test_unreadable_yaml_is_one_problem(project: Path, text: str | bytes, line: int, value: str) -> None:
    (problem,) = problems(project, text)
    assert (problem.file, problem.line, problem.allowed) == ("environments/shop.yaml", line, "readable YAML")
    assert value in problem.value


def test_a_byte_order_mark_is_read_over(project: Path) -> None:
    (project / "environments" / "shop.yaml").write_text(GOOD, encoding="utf-8-sig")
    transforms = project / "pipelines" / "shop" / "transforms.py"
    transforms.write_text(transforms.read_text(), encoding="utf-8-sig")
    assert load("shop", root=project).project == "shop"


def test_aliases_that_explode_are_refused(project: Path) -> None:
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 9)
    )
    (problem,) = problems(project, bomb)
    assert "values, the limit, once its aliases are expanded" in problem.value


def test_ten_thousand_jobs_are_refused_in_seconds(project: Path) -> None:
    query = "{land: {kind: land, source: clicks, table: t, schema: pipelines/clicks.ddl}}"
    jobs = "".join(f"  j{n}: {{engine: glue, latency: 60s, queries: {query}}}\n" for n in range(10_000))
    begun = time.monotonic()
    (problem,) = problems(project, f"project: shop\njobs:\n{jobs}")
    assert time.monotonic() - begun < 5
    assert problem.value.endswith(" bytes")
    assert problem.allowed.startswith("at most 524,288 bytes")


def test_anchors_and_merge_keys(project: Path) -> None:
    text = GOOD.replace(
        "    rate: {records_per_second_per_core: 5000, batch_overhead: 2s}\n",
        "    rate: &rate {records_per_second_per_core: 5000, batch_overhead: 2s}\n",
    ).replace(
        "    rate: {records_per_second_per_core: 5000}\n",
        "    rate: {<<: *rate, records_per_second_per_core: 7000}\n",
    )
    (project / "environments" / "shop.yaml").write_text(text)
    rate = load("shop", root=project).jobs["orders"].rate
    assert rate.records_per_second_per_core == 7000
    assert rate.batch_overhead.total_seconds() == 2


def test_base_is_merged_only_where_it_is_named(project: Path) -> None:
    base = project / "environments" / "base.yaml"
    base.write_text("tags: {team: base, cost: '1'}\nnetwork:\n  availability_zones: 2\n")
    over = "extends: base\n" + GOOD.replace("network:\n  availability_zones: 3\n", "")
    (project / "environments" / "other.yaml").write_text(over)
    merged = load("other", root=project)
    assert merged.tags == {"team": "web", "cost": "1"}, "mappings merge, single values replace"
    assert merged.network.availability_zones == 2
    assert load("shop", root=project).tags == {"team": "web"}
    assert environment_names(project) == ("other", "shop"), "a part that others extend is no environment"
    (project / "environments" / "next.yaml").write_text("extends: shop\n")
    assert environment_names(project) == ("next", "other", "shop"), "what can be deployed is one"
    with pytest.raises(ConfigurationError, match="allowed: one of next, other, shop"):
        load("nxt", root=project)


def test_a_problem_names_the_file_where_the_value_stands(project: Path) -> None:
    (project / "environments" / "base.yaml").write_text("# shared\nremoval: burn\n")
    result = problems(project, "extends: base\n" + GOOD.replace("G.1X", "G.9X"))
    assert [(each.file, each.line, each.key) for each in result] == [
        ("environments/base.yaml", 2, "removal"),
        ("environments/shop.yaml", GOOD.splitlines().index("    worker: G.1X") + 2, "jobs.clicks.worker"),
    ]


def test_a_duplicate_in_the_base_is_found(project: Path) -> None:
    (project / "environments" / "base.yaml").write_text("removal: retain\nremoval: destroy\n")
    (problem,) = problems(project, "extends: base\n" + GOOD)
    assert (problem.file, problem.line, problem.key) == ("environments/base.yaml", 2, "removal")


@pytest.mark.parametrize("parent", ["nobody", "shop", "5", "[base]"])
def test_a_parent_that_is_none(project: Path, parent: str) -> None:
    result = problems(project, f"extends: {parent}\n" + GOOD)
    assert [each.key for each in result] == ["extends"]


def test_two_files_that_extend_each_other(project: Path) -> None:
    (project / "environments" / "base.yaml").write_text("extends: shop\n")
    (problem,) = problems(project, "extends: base\n" + GOOD)
    assert (problem.file, problem.key) == ("environments/base.yaml", "extends")


def test_two_names_for_one_stream(project: Path) -> None:
    twin = "  twin:\n    kind: kafka\n    cluster: main\n    topic: orders\n"
    twin += "    traffic: {records_per_second: 1, record_size: 1B}\njobs:\n"
    (problem,) = problems(project, GOOD.replace("jobs:\n", twin, 1))
    assert (problem.key, problem.value) == ("streams.twin.topic", "orders")
    assert "streams.orders is orders on cluster main already" in problem.allowed


def test_two_names_for_one_existing_kinesis_stream(project: Path) -> None:
    twin = "  {}:\n    kind: kinesis\n    existing: theirs\n    shards: 1\n"
    twin += "    traffic: {{records_per_second: 1, record_size: 1B}}\n"
    text = GOOD.replace("jobs:\n", twin.format("one") + twin.format("two") + "jobs:\n", 1)
    (problem,) = problems(project, text)
    assert (problem.key, problem.value) == ("streams.two.existing", "theirs")


def test_names_that_buckets_cannot_hold(project: Path) -> None:
    (problem,) = problems(project, GOOD.replace("project: shop", "project: a-name-for-a-very-large-company"))
    assert problem.key == "project"
    assert "buckets are named after both" in problem.allowed


def test_a_file_name_that_is_no_name(project: Path) -> None:
    result = problems(project, GOOD, name="Shop_1")
    assert [each.key for each in result] == ["name"]


def test_a_secret_is_never_shown(project: Path) -> None:
    text = GOOD.replace("    spark:\n", "    spark:\n      spark.ssl.keyPassword: hunter2\n")
    for problem in problems(project, text):
        assert "hunter2" not in str(problem)


def test_names_that_only_sound_like_secrets(project: Path) -> None:
    text = GOOD.replace("clicks_counted", "password_resets").replace("{title: title}", "{token: token}")
    (project / "environments" / "shop.yaml").write_text(text.replace("  clicks:", "  password-resets:"))
    with pytest.raises(ConfigurationError) as caught:
        load("shop", root=project)
    assert {each.key for each in caught.value.problems} == {
        "jobs.password-resets.queries.land-clicks.source"
    }, "its source was renamed; nothing else is wrong"


def test_a_reference_to_a_secret_is_no_secret(project: Path) -> None:
    arn = "arn:aws:secretsmanager:us-east-1:111122223333:secret:db"
    text = GOOD.replace("    spark:\n", f"    spark:\n      spark.jdbc.password: {arn}\n")
    (project / "environments" / "shop.yaml").write_text(text)
    assert load("shop", root=project).jobs["clicks"].spark["spark.jdbc.password"] == arn


def test_an_environment_is_frozen_and_knows_its_places(project: Path) -> None:
    environment = load("shop", root=project)
    with pytest.raises(ValidationError):
        environment.region = "eu-west-1"  # type: ignore[misc]
    assert environment.value_locations.file_and_line(("streams", "clicks", "traffic", "record_size")) == (
        "environments/shop.yaml",
        GOOD.splitlines().index("      record_size: 500B") + 1,
    )


def test_the_schema_file_is_current() -> None:
    assert (ROOT / SCHEMA_FILE).read_text(encoding="utf-8") == schema_text(), "run: millrace schema --write"


def test_the_schema_knows_every_key_and_no_name() -> None:
    schema = json_schema()
    assert set(schema["properties"]) == set(Environment.model_fields) - {"name"} | {"extends"}
    (stream,) = schema["properties"]["streams"]["patternProperties"].values()
    assert stream["discriminator"]["mapping"].keys() == {"kinesis", "kafka"}
    assert schema["$defs"]["LandQuery"]["properties"]["schema"]["type"] == ["string", "null"]
    assert schema["$defs"]["KinesisStream"]["additionalProperties"] is False


PLAIN = {
    "project": "shop",
    "streams": {"clicks": {"kind": "kinesis", "traffic": {"records_per_second": 8, "record_size": "5B"}}},
    "kafka": {"main": {"kind": "msk"}},
    "network": {"cidr": "10.0.0.0/16"},
    "tags": {"a": "b"},
    "jobs": {
        "clicks": {
            "engine": "glue",
            "rate": {"records_per_second_per_core": 5},
            "queries": {
                "land": {"kind": "land", "source": "clicks", "table": "landed", "schema": "pipelines/a.ddl"},
                "derive": {
                    "kind": "derive",
                    "source": "landed",
                    "enrich": [{"table": "t", "on": {"a": "b"}, "columns": {"c": "d"}}],
                    "sink": {"kind": "iceberg", "table": "derived"},
                },
            },
        }
    },
}
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)


def paths(value: object, above: tuple = ()) -> list[tuple]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [above, *(path for key, child in items for path in paths(child, (*above, key)))]


@settings(
    max_examples=examples(100),
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(path=st.sampled_from(paths(PLAIN)[1:]), value=ANYTHING)
def test_whatever_stands_anywhere_is_a_problem_or_fine_but_never_a_crash(
    path: tuple, value: object, project: Path
) -> None:
    document = json.loads(json.dumps(PLAIN))
    holder = document
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = value
    result = problems(project, json.dumps(document))  # the schema file is missing: always a problem
    assert all(each.file == "environments/shop.yaml" and each.allowed for each in result)


@pytest.mark.parametrize("name", ["Prod", "prod_eu"])
def test_a_name_that_no_environment_has_is_said_to_be_the_files(project: Path, name: str) -> None:
    (project / "environments" / f"{name}.yaml").write_text(GOOD)
    with pytest.raises(ConfigurationError) as caught:
        load(name, root=project)
    (problem,) = caught.value.problems
    assert (problem.key, problem.value, problem.hint) == ("name", name, "the name of the file")


def test_without_streams_there_is_none_to_read(project: Path) -> None:
    start, end = GOOD.index("streams:\n"), GOOD.index("jobs:\n")
    (project / "environments" / "shop.yaml").write_text(GOOD[:start] + "streams: {}\n" + GOOD[end:])
    with pytest.raises(ConfigurationError) as caught:
        load("shop", root=project)
    allowed = {problem.allowed for problem in caught.value.problems if problem.key.endswith(".source")}
    assert allowed == {"a declared stream: there is none"}
