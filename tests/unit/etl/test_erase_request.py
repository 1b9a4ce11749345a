"""A job checks an erasure request itself, as its author may have seen no preview."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from millrace.etl.repair import erase_in_running_job

PLACE = "s3://checkpoints/shop"
REQUEST = {
    "id": "e1",
    "where": "name = 'Zoe'",
    "apply": True,
    "by": "me",
    "asked_at": "now",
    "keep_condition": False,
    "left_out": [],
}


class Rows:
    """A table of 100 rows of which some match."""

    kind, kept = "landing", False
    sources = writers = readers = ()

    def __init__(self, matching: int) -> None:
        self.matching, self.erased = matching, 0
        snapshot = SimpleNamespace(snapshotId=lambda: 7)
        metadata = SimpleNamespace(currentSnapshot=lambda: snapshot, location=lambda: "s3://lake/db/orders")
        self.table = SimpleNamespace(load_java_table=lambda _: metadata)

    def count_matches(self, _spark: Any, _condition: Any, **_: Any) -> Any:
        left = self.matching - self.erased
        return SimpleNamespace(rows=left, letters=0, total=100, files=1, matching_count=left)

    def erase_matching_rows(self, _spark: Any, _condition: Any, _id: str) -> None:
        self.erased = self.matching


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    held: dict[str, str] = {}

    def read(_spark: Any, url: str) -> str:
        if url not in held:
            raise FileNotFoundError(url)
        return held[url]

    monkeypatch.setattr(erase_in_running_job.hadoop_files, "read_text", read)
    monkeypatch.setattr(
        erase_in_running_job.hadoop_files, "write_text", lambda _, url, text: held.update({url: text})
    )
    monkeypatch.setattr(erase_in_running_job.hadoop_files, "delete_if_exists", lambda _, url: held.pop(url))
    monkeypatch.setattr(erase_in_running_job, "ErasureCondition", lambda _, where: where)
    monkeypatch.setattr(erase_in_running_job, "remove_rest_and_commit_erasure_mark", lambda *_: 8)
    loaded = SimpleNamespace(location=lambda: "s3://lake/db/table")
    monkeypatch.setattr(erase_in_running_job, "load_java_table", lambda *_: loaded)
    return held


@pytest.mark.parametrize("under_way", [False, True])
@pytest.mark.parametrize(("matching", "share", "done"), [(10, 0.1, True), (11, 0.1, False), (11, 0.2, True)])
def test_more_of_a_table_than_was_deployed_is_erased_for_nobody(
    files: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    matching: int,
    share: float,
    done: bool,
    under_way: bool,
) -> None:
    """Whoever can write the request can write the answer too, which says that the preview was made."""
    rows, told = Rows(matching), []
    monkeypatch.setattr(erase_in_running_job, "targets_left_out_and_problems", lambda *_: ((rows,), [], []))
    files[f"{PLACE}/_millrace/erase/request.json"] = json.dumps(REQUEST)
    if under_way:
        forged = erase_in_running_job._new_answer(SimpleNamespace(id="e1")) | {"state": "running"}  # type: ignore[arg-type]
        files[f"{PLACE}/_millrace/erase/e1.json"] = json.dumps(forged)
    job: Any = SimpleNamespace(checkpoints=PLACE, job="shop", erase_share=share)
    report: Any = SimpleNamespace(emit=lambda event, **fields: told.append((event, fields)))
    erase_in_running_job.ErasureTask(job, report)(None)  # type: ignore[arg-type]
    answer = json.loads(files[f"{PLACE}/_millrace/erase/e1.json"])
    assert (answer["state"], rows.erased) == (("done", matching) if done else ("refused", 0))
    if done:
        ((event, fields),) = told
        assert event == "erased"
        # What the job's log says once cannot be changed by the job's role; the file in the lake could be.
        assert fields["record"] == json.loads(files["s3://lake/db/_erasures/shop/e1.json"])
    else:
        assert "11 of 100 rows, more than 10%" in answer["problems"][0]
        assert told == []
