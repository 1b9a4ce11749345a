"""``millrace checkpoint`` shows, refuses or resets truncated, overwritten and foreign files."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from millrace.cli.run.checkpoint_compatibility import checkpoint_refusals
from millrace.lifecycle.account.deployed_environment import DeployedEnvironment
from millrace.lifecycle.jobs.checkpoints import CheckpointRequestError
from tests.unit.lifecycle.shop_checkpoints import MANIFEST, Shop, document, manifest_text


@pytest.mark.parametrize("cut", [0, 12])
@pytest.mark.parametrize("file", ["_millrace/land.manifest.json", "land/offsets/0", "_millrace/lease.json"])
def test_damaged_files_are_shown_and_a_reset_is_the_way_out(shop: Shop, file: str, cut: int) -> None:
    shop.begin()
    with shop.of.holding_lease("earlier"):
        pass
    body = shop.s3.get_object(Bucket=shop.bucket, Key=f"clicks/{file}")["Body"].read().decode()
    shop.put(f"clicks/{file}", body[:cut])
    said = shop.run("show", "clicks", "land")
    assert said.exit_code == 0, said.output
    told = [line for line in said.output.splitlines() if "DAMAGED" in line]
    if file.endswith("lease.json"):
        assert told == []
        # Nobody can tell whether it is held: until it is older than any that is.
        assert "run ? on ?" in said.output
        refused = shop.run("reset", "clicks", "land", "--yes")
        assert refused.exit_code == 2
        assert "run ? on ? is writing" in refused.output
        return
    (line,) = told
    assert f"s3://{shop.bucket}/clicks/{file}: " in line
    assert json.loads(shop.run("show", "clicks", "land", "--json").output)["queries"][0]["damaged"]
    with pytest.raises(CheckpointRequestError, match="clicks/land is damaged"):
        shop.of.read_undamaged_contents("land")  # as an audit asks
    moved = shop.run("move", "clicks", "land", "other/land-2")
    assert moved.exit_code == 2
    assert (
        f"clicks/land is damaged, so no query can continue from it: s3://{shop.bucket}/clicks/{file}"
        in moved.output
    )
    assert shop.names_of("other/") == []
    done = shop.run("reset", "clicks", "land", "--yes")
    assert done.exit_code == 0, done.output
    assert shop.names_of("clicks/land/") == []


@pytest.mark.parametrize("file", ["_millrace/land.manifest.json", "land/offsets/0"])
def test_bytes_that_are_no_text_are_shown_refused_and_got_over(shop: Shop, file: str) -> None:
    shop.begin()
    spoiled = b"\xff\xfe\x00overwritten"
    shop.s3.put_object(Bucket=shop.bucket, Key=f"clicks/{file}", Body=spoiled)
    said = shop.run("show", "clicks", "land")
    assert said.exit_code == 0, said.output
    assert f"DAMAGED: s3://{shop.bucket}/clicks/{file}: " in said.output
    if file.startswith("_millrace"):
        (line,) = checkpoint_refusals(
            DeployedEnvironment(shop.names, lambda _: shop.s3), "clicks", document()
        )
        assert "the manifest of the checkpoint" in line
    done = shop.run("reset", "clicks", "land", "--yes")
    assert done.exit_code == 0, done.output
    assert shop.names_of("clicks/land/") == []
    (kept,) = [key for key in shop.names_of("clicks/_millrace/old/land/") if key.endswith(file[-9:])]
    assert shop.s3.get_object(Bucket=shop.bucket, Key=kept)["Body"].read() == spoiled


@pytest.mark.parametrize(
    "text", ["{}", '{"version": 1}', manifest_text(MANIFEST).replace('"connector"', '"plug"')]
)
def test_an_object_that_is_no_manifest_is_damaged(shop: Shop, text: str) -> None:
    shop.begin()
    shop.put("clicks/_millrace/land.manifest.json", text)
    said = shop.run("show", "clicks", "land")
    assert said.exit_code == 0, said.output
    assert "DAMAGED: s3://" in said.output
    assert "land.manifest.json: not a manifest:" in said.output


def test_a_damaged_note_of_a_start_is_shown(shop: Shop) -> None:
    shop.put("clicks/_millrace/land.start.json", '{"version": 1')
    assert "DAMAGED: s3://" in shop.run("show", "clicks", "land").output


def test_a_reset_that_was_cut_short_leaves_nothing_to_go_on_from(shop: Shop) -> None:
    shop.begin()
    deleted: list[str] = []

    def cut(**given: Any) -> dict[str, Any]:
        if len(deleted) == 2:
            raise KeyboardInterrupt
        deleted.append(given["Key"])
        return dict(real(**given))

    real = shop.s3.delete_object
    shop.s3.delete_object = cut
    with pytest.raises(KeyboardInterrupt), shop.of.holding_lease("reset"):
        shop.of.archive_checkpoint_and_return_url(
            "land", start="2026-11-20T00:00:00+00:00", moment=datetime.now(UTC)
        )
    shop.s3.delete_object = real
    assert deleted[0] == "clicks/land/metadata"
    assert shop.of.has_batches("land")  # so that the core looks for its identity, and refuses
    assert shop.run("reset", "clicks", "land", "--yes").exit_code == 0
    assert shop.names_of("clicks/land/") == []
