"""``millrace checkpoint`` on objects in S3, with the core's lease."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from millrace.cli.run.checkpoint_compatibility import (
    LaunchDocumentOfOtherReleaseError,
    checkpoint_refusals,
    irreversible_checkpoint_lines,
)
from millrace.etl.checkpoints import manifest
from millrace.etl.job import lease as core
from millrace.etl.launch import settings
from millrace.lifecycle.account.deployed_environment import DeployedEnvironment
from millrace.lifecycle.changes.assembly_with_other_templates import write_assembly_with_templates
from millrace.lifecycle.jobs.checkpoints import CheckpointRequestError
from millrace.lifecycle.jobs.reset_effects import records_read_again_lines, reset_objection
from tests.launch_document_defaults import with_route
from tests.unit.etl.test_checkpoint_compatibility import DERIVE
from tests.unit.lifecycle.shop_checkpoints import MANIFEST, Shop, document, manifest_text


def test_both_sides_mean_the_same_places(shop: Shop) -> None:
    held = core.lease_of_checkpoints(
        shop.names.checkpoints_url("clicks"), "glue-run-7", (os.getpid(),), lambda _: None
    )
    held.acquire()
    try:
        assert (shop.of.current_writer() or "").startswith("run glue-run-7 on ")
        refused = pytest.raises(
            CheckpointRequestError, match=r"run glue-run-7 on .* is writing .*millrace stop --env shop clicks"
        )
        with refused, shop.of.holding_lease("reset"):
            pytest.fail("held twice")
    finally:
        held.release()
    assert shop.of.current_writer() is None
    again = core.lease_of_checkpoints(
        shop.names.checkpoints_url("clicks"), "glue-run-8", (os.getpid(),), lambda _: None
    )
    with shop.of.holding_lease("millrace checkpoint reset"):
        assert shop.of.current_writer() == f"run millrace checkpoint reset on {os.uname().nodename}"
    again.acquire()
    again.release()


def test_show_tells_where_a_query_is_and_who_wrote_it(shop: Shop) -> None:
    shop.begin()
    shop.put("clicks/_millrace/plain.start.json", '{"version": 1, "start": "2026-11-20T00:00:00+00:00"}')
    said = shop.run("show", "clicks")
    assert said.exit_code == 0, said.output
    lines = said.output.splitlines()
    assert lines[0] == "clicks: no job writes its checkpoints now"
    assert lines[1].startswith("land: last batch committed 0 at 20")
    assert lines[1].endswith("planned 1")
    assert lines[2:4] == [
        "  written by glue, Spark 3.5.4, core 0.1.0: a land query",
        '  kinesis us-east-1/shop-shop-clicks: {"shardId-0": {"iteratorType": "AFTER", "iteratorPosition": "7"}}',
    ]
    assert "plain: not started, will start at 2026-11-20T00:00:00+00:00" in lines
    whole = json.loads(shop.run("show", "clicks", "land", "--json").output)
    assert whole["queries"][0]["manifest"]["spark"] == "3.5.4"


def test_reset_puts_a_checkpoint_aside_and_notes_where_to_begin(shop: Shop) -> None:
    shop.begin()
    before = shop.names_of("clicks/land/")
    at = datetime.now(UTC) - timedelta(hours=2)
    told = ("reset", "clicks", "land", "--at", f"{at:%Y-%m-%dT%H:%M:%SZ}", "--overlap", "10m")
    dry = shop.run(*told, "--dry-run")
    assert dry.exit_code == 0, dry.output
    assert "clicks: about 780," in dry.output  # 130 minutes of 100 a second, and what passed since
    assert shop.names_of("clicks/land/") == before
    assert shop.run(*told).exit_code == 2  # nobody to ask
    done = shop.run(*told, "--yes")
    assert done.exit_code == 0, done.output
    assert shop.names_of("clicks/land/") == []
    kept = [key.split("/", 5)[5] for key in shop.names_of("clicks/_millrace/old/land/")]
    assert sorted(kept) == sorted([*(key.removeprefix("clicks/land/") for key in before), "manifest.json"])
    begins = datetime.fromisoformat(shop.text("clicks/_millrace/land.start.json")["start"])
    assert begins == at.replace(microsecond=0) - timedelta(minutes=10)
    assert shop.of.manifest_text("land") is None
    assert shop.of.current_writer() is None
    # Anew, as the settings say: the note is gone.
    shop.begin()
    assert shop.run("reset", "clicks", "land", "--yes").exit_code == 0
    assert "clicks/_millrace/land.start.json" not in shop.names_of()


@pytest.mark.parametrize(
    ("query", "more", "said"),
    [
        ("onward", (), "its sink is kinesis: records cannot be taken back"),
        ("firsts", (), "another one may come first"),
        ("plain", ("--at", "2026-11-20"), "without --at it starts with all landed records"),
        ("land", ("--at", "2999-01-01"), "a time in the past"),
        ("land", ("--overlap", "10"), "write a number with its unit"),
        ("nothing", (), "one of land, plain, onward, firsts"),
    ],
)
def test_a_reset_that_would_make_a_wrong_table_is_refused(
    shop: Shop, query: str, more: tuple[str, ...], said: str
) -> None:
    shop.begin("onward")
    before = shop.names_of()
    done = shop.run("reset", "clicks", query, *more, "--yes")
    assert done.exit_code == 2 or done.exception is not None
    assert said in f"{done.output}{done.exception}"
    assert shop.names_of() == before


def test_a_reset_with_duplicates_is_done_when_they_are_accepted(shop: Shop) -> None:
    shop.begin("onward")
    assert shop.run("reset", "clicks", "onward", "--yes", "--duplicates").exit_code == 0
    assert shop.names_of("clicks/onward/") == []


def test_a_running_job_is_left_alone(shop: Shop) -> None:
    shop.begin()
    held = core.lease_of_checkpoints(
        shop.names.checkpoints_url("clicks"), "run-1", (os.getpid(),), lambda _: None
    )
    held.acquire()
    before = shop.names_of()
    for arguments in (("reset", "clicks", "land", "--yes"), ("move", "clicks", "land", "x")):
        done = shop.run(*arguments)
        assert done.exit_code == 2
        assert "run run-1 on" in done.output
    assert shop.names_of() == before
    held.release()


def test_a_checkpoint_is_carried_to_another_job_and_name(shop: Shop) -> None:
    shop.begin()
    before = {key.removeprefix("clicks/land/") for key in shop.names_of("clicks/land/")}
    assert shop.run("move", "clicks", "land", "other/land-2", "--dry-run").exit_code == 0
    assert shop.names_of("other/") == []
    done = shop.run("move", "clicks", "land", "other/land-2")
    assert done.exit_code == 0, done.output
    assert {key.removeprefix("other/land-2/") for key in shop.names_of("other/land-2/")} == before
    assert shop.names_of("clicks/land/") == []
    carried = manifest.parse_manifest(json.dumps(shop.text("other/_millrace/land-2.manifest.json")))
    assert (carried.query, carried.sinks) == ("land-2", MANIFEST.sinks)
    # There is nothing left to move, and nothing is moved over what is there.
    assert "has no checkpoint" in shop.run("move", "clicks", "land", "x").output
    shop.begin()
    occupied = shop.run("move", "clicks", "land", "other/land-2")
    assert occupied.exit_code == 2
    assert "other/land-2 already has a checkpoint" in occupied.output


def test_what_an_engine_would_not_continue_is_not_carried_to_it(shop: Shop) -> None:
    """Glue's connector and EMR's do not read each other's positions, and an earlier Spark no state of a later one."""
    shop.begin()
    before = shop.names_of()
    for verb in ("move", "fork"):
        refused = shop.run(verb, "clicks", "land", "on-emr/land-3")
        assert refused.exit_code == 2
        assert "source 1's connector was kinesis and is aws-kinesis" in " ".join(refused.output.split())
        assert "millrace checkpoint reset clicks land --env shop" in " ".join(refused.output.split())
    assert shop.names_of() == before
    kept = dataclasses.replace(
        MANIFEST,
        spark="4.1.1",
        legs=(manifest.ManifestSource("iceberg", "shop_shop.landed"),),
        state=manifest.StatefulQueryState("at", (), ("session",), None, None, None),
    )
    shop.put("clicks/_millrace/land.manifest.json", manifest_text(kept))
    refused = shop.run("move", "clicks", "land", "other/firsts")
    assert refused.exit_code == 2
    assert "an earlier Spark does not read the states of a later one" in " ".join(refused.output.split())
    later = {**json.loads(manifest_text(kept)), "version": 2}
    shop.put("clicks/_millrace/land.manifest.json", json.dumps(later))
    refused = shop.run("move", "clicks", "land", "other/firsts")
    assert (refused.exit_code, "not a manifest" in refused.output) == (2, True)
    # Without state, it goes on there.
    shop.put("clicks/_millrace/land.manifest.json", manifest_text(dataclasses.replace(kept, state=None)))
    assert shop.run("move", "clicks", "land", "on-emr/land-3").exit_code == 0


def test_the_last_query_of_a_job_leaves_it_after_the_job_has_left_the_file(shop: Shop) -> None:
    """No two queries write one table, so that a file never has both jobs of the query that moves."""
    shop.begin()
    text = shop.file.read_text()
    begin, end = text.index("  clicks:\n    engine"), text.index("  other:\n")
    shop.file.write_text(text[:begin] + text[end:])
    done = shop.run("move", "clicks", "land", "other/land-2")
    assert done.exit_code == 0, done.output
    assert shop.names_of("clicks/land/") == []
    assert "no-job/land has no checkpoint" in shop.run("move", "no-job", "land", "other/land-9").output
    assert "the name of a job" in str(shop.run("move", "..", "land", "other/land-9").exception)


def test_a_fork_may_write_elsewhere(shop: Shop) -> None:
    shop.begin()
    shop.put("clicks/new/state/0/left-over", "of a copy that was interrupted")
    assert shop.run("fork", "clicks", "land", "new").exit_code == 0
    assert [key for key in shop.names_of("clicks/new/") if "left-over" in key] == []
    assert len(shop.names_of("clicks/new/")) == len(shop.names_of("clicks/land/")) == 5
    copied = manifest.parse_manifest(json.dumps(shop.text("clicks/_millrace/new.manifest.json")))
    assert (copied.sinks, copied.servers) == ({}, {})


def test_a_version_of_another_release_is_not_checked_here(shop: Shop) -> None:
    shop.begin()
    aws = DeployedEnvironment(shop.names, lambda _: shop.s3)
    with pytest.raises(
        LaunchDocumentOfOtherReleaseError, match=r"another release of Millrace .*not_yet_known"
    ):
        checkpoint_refusals(aws, "clicks", document(not_yet_known=1))
    with pytest.raises(LaunchDocumentOfOtherReleaseError, match=r"another release of Millrace .*0\.9"):
        checkpoint_refusals(aws, "clicks", document() | {"engine_version": "0.9"})


def test_what_a_source_no_longer_has_is_told(shop: Shop) -> None:
    now = datetime(2026, 11, 21, tzinfo=UTC)
    (again,) = records_read_again_lines(shop.environment, "clicks", "land", now - timedelta(hours=30), now)
    assert "about 10,800,000 records (5.03 GiB) are read again" in again
    assert again.endswith("; RECORDS OLDER THAN ITS RETENTION ARE LOST")
    assert [*records_read_again_lines(shop.environment, "clicks", "plain", now, now)] == []
    assert reset_objection(shop.environment, "clicks", "land", now) is None
    assert reset_objection(shop.environment, "clicks", "plain", None) is None


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, []),
        ({"query": {"trigger_seconds": 99, "schema": "no/such.ddl"}}, []),
        ({"query": {"table": "shop_shop.other"}}, ["the sink was iceberg shop_shop.landed and is"]),
        ({"engine": "emr"}, ["source 1's connector was kinesis and is aws-kinesis"]),
        ({"query": {"name": "another"}}, []),
    ],
)
def test_an_upgrade_asks_the_core_before_it_stops_anything(
    shop: Shop, changed: dict[str, Any], said: list[str]
) -> None:
    shop.begin()
    aws = DeployedEnvironment(shop.names, lambda _: shop.s3)
    result = checkpoint_refusals(aws, "clicks", document(**changed))
    assert len(result) == len(said)
    for line, text in zip(result, said, strict=True):
        assert text in line
        assert "`millrace checkpoint reset clicks land --env shop`" in line


def test_what_cannot_go_back_is_told_before_it_goes(shop: Shop) -> None:
    shop.begin()
    aws = DeployedEnvironment(shop.names, lambda _: shop.s3)
    newer = {**document(), "engine_version": "6.0"}
    assert irreversible_checkpoint_lines(aws, "clicks", newer) == []
    derived = {
        **newer,
        "settings": {**newer["settings"], "queries": [with_route({**DERIVE, "name": "land"})]},
    }
    job = settings.parse_job_settings(derived["settings"])
    old = manifest.make_manifest(
        job, job.queries[0], spark="3.5.6", conf=lambda _: None, schema_text=lambda _: None
    )
    shop.put("clicks/_millrace/land.manifest.json", manifest_text(old))
    assert checkpoint_refusals(aws, "clicks", derived) == []
    (line,) = irreversible_checkpoint_lines(aws, "clicks", derived)
    assert line.startswith(
        "job clicks, query land: on this checkpoint it cannot go back: Spark was 4.1.1 and is 3.5.6"
    )
    assert irreversible_checkpoint_lines(aws, "clicks", {**derived, "engine_version": "5.1"}) == []


def test_a_sandbox_in_the_place_of_an_engine_reads_what_it_wrote(shop: Shop) -> None:
    shop.begin()
    aws = DeployedEnvironment(shop.names, lambda _: shop.s3)
    written = dataclasses.replace(MANIFEST, engine="sandbox", spark="3.99.9")
    shop.put("clicks/_millrace/land.manifest.json", manifest_text(written))
    assert checkpoint_refusals(aws, "clicks", document(engine="emr")) == []
    shop.put("clicks/_millrace/land.manifest.json", "{}")
    (line,) = checkpoint_refusals(aws, "clicks", document())
    assert "the manifest of the checkpoint" in line


def test_an_earlier_version_is_deployed_by_an_assembly_of_its_own(tmp_path: Path) -> None:
    """Under a name of its own: with the new template's, CDK would think it published, and deploy the new one."""
    new, stack = tmp_path / "new", "shop-shop-job-clicks"
    new.mkdir()
    files = {
        name: {"source": {"path": path}, "destinations": {"here": {"objectKey": f"{name}.x"}}}
        for name, path in {"aaaa": f"{stack}.template.json", "bbbb": "asset.bbbb.zip"}.items()
    }
    (new / f"{stack}.assets.json").write_text(json.dumps({"version": "55.0.0", "files": files}))
    artifacts = {
        stack: {"properties": {"stackTemplateAssetObjectUrl": "s3://b/aaaa.json"}, "dependencies": ["other"]},
        f"{stack}.assets": {"properties": {"file": f"{stack}.assets.json"}},
        "other": {},
    }
    (new / "manifest.json").write_text(json.dumps({"version": "55.0.0", "artifacts": artifacts}))
    (new / f"{stack}.template.json").write_text("{}")
    old = write_assembly_with_templates(new, {stack: {"Resources": {"Old": {}}}}, tmp_path / "old")
    own = hashlib.sha256((old / f"{stack}.template.json").read_bytes()).hexdigest()
    assert json.loads((old / f"{stack}.template.json").read_text()) == {"Resources": {"Old": {}}}
    assert (new / f"{stack}.template.json").read_text() == "{}"
    assert json.loads((old / f"{stack}.assets.json").read_text())["files"] == {
        own: {**files["aaaa"], "destinations": {"here": {"objectKey": f"{own}.x"}}},
        "bbbb": files["bbbb"],
    }
    written = json.loads((old / "manifest.json").read_text())["artifacts"]
    assert written[stack]["properties"]["stackTemplateAssetObjectUrl"] == f"s3://b/{own}.json"
