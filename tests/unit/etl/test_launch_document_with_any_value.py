"""Any value at any place of a launch document is read or refused with its path."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from millrace.config import Names, load
from millrace.etl.launch import typed_json
from millrace.etl.launch.entry_script_arguments import parse_arguments, read_settings_of_document
from millrace.etl.record.errors import StartError
from millrace.infra.launch.launch_settings import job_settings
from millrace.sizing import plan
from tests.launch_document_defaults import with_route
from tests.run import examples
from tests.unit.etl.test_launch_arguments import LAND, SETTINGS

ARGUMENTS = parse_arguments(["--launch-document", "s3://b/d.json"])
ROUTE = {key: LAND[key] for key in ("source", "format", "schema", "decompress_up_to", "redact", "rules")}
ROUTED = {
    "kind": "route", "name": "all", "table": "lake.all", "trigger_seconds": 1.5, "repartition": 2,
    "routes": [{"name": "flights", "changes_of": None, "origin": "flights", **ROUTE}],
}  # fmt: skip


def documents() -> list[dict[str, Any]]:
    """Those of an environment's jobs, and one with a route."""
    environment = load("dev")
    planned, names = plan(environment), Names(environment, "111122223333")
    result = [
        typed_json.to_json_value(job_settings(environment, planned.jobs[name], names))
        for name in planned.jobs
    ]
    return [
        {"version": 1, "region": "eu-central-1", "name": "acme-dev", "settings": each}
        for each in [*result, SETTINGS | {"queries": [with_route(LAND), ROUTED]}]
    ]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value in a document."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield from places(each, (*path, key))


DOCUMENTS = documents()
PLACES = [(n, path) for n, document in enumerate(DOCUMENTS) for path in places(document)]

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([10**400, -(10**400), 0, 1, 2**63])
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["kafka", "iceberg", "json", "\ud800", "\0", "earliest", "kind"])
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["kind", "name", "x"]) | st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)


def changed(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A document with another value in one place."""
    if not path:
        return value
    whole = copy.deepcopy(document)
    inner = whole
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return whole


@settings(max_examples=examples(600), suppress_health_check=[*HealthCheck], deadline=None)
@given(st.sampled_from(PLACES), values)
@example((len(DOCUMENTS) - 1, ("settings", "queries", 0, "routes", 0, "source")), {"kind": []})
@example((len(DOCUMENTS) - 1, ("settings", "queries", 0, "routes", 0, "source", "kind")), {})
@example((len(DOCUMENTS) - 1, ("settings", "queries", 0, "trigger_seconds")), 10**400)
@example((len(DOCUMENTS) - 1, ("settings", "queries", 0, "trigger_seconds")), float("inf"))
@example((len(DOCUMENTS) - 1, ("settings", "queries", 0, "trigger_seconds")), float("nan"))
@example((len(DOCUMENTS) - 1, ("version",)), True)
def test_any_value_in_any_place_is_read_or_refused(place: tuple[int, tuple[Any, ...]], value: Any) -> None:
    number, path = place
    text = json.dumps(changed(DOCUMENTS[number], path, value))
    refused = ""
    try:
        job = read_settings_of_document(text, ARGUMENTS)
    except StartError as error:
        refused = str(error)
    if refused:
        # Names the document, and in it what is on the way to the change.
        assert ARGUMENTS.document in refused
        assert not path or str(path[0]) in refused
        return
    assert all(isinstance(round(query.trigger_seconds * 1000), int) for query in job.queries)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 100_000, "not JSON"),
        ('{"version":' + "9" * 5000 + "}", "not JSON"),
        ('{"version": true}', "version True"),
        ('{"version": 1.0}', "version 1.0"),
        (
            json.dumps(changed(DOCUMENTS[-1], ("settings", "queries", 0, "routes", 0, "source", "kind"), [])),
            r"settings\.queries\[0\]\.routes\[0\]\.source\.kind: \[\] is not one of 'kinesis', 'kafka'",
        ),
        (
            json.dumps(changed(DOCUMENTS[-1], ("settings", "queries", 1, "trigger_seconds"), 10**400)),
            r"settings\.queries\[1\]\.trigger_seconds: expected a number between -1\.8e308 and 1\.8e308, found 1000",
        ),
    ],
)
def test_what_is_none_is_told_with_its_place(text: str, message: str) -> None:
    with pytest.raises(StartError, match=message):
        read_settings_of_document(text, ARGUMENTS)
