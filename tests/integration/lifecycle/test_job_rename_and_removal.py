"""A job is renamed, removed and declared again: each by an edit of the file and ``millrace deploy``, on LocalStack."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

from millrace.lifecycle.upgrade_or_rollback_job import read_deployed_version
from tests.integration.lifecycle.deployed_shop import GLUE_KAFKA, Shop
from tests.integration.lifecycle.simulated_engines import Engines

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # four deployments

NEW = "returns"


@pytest.fixture
def deploy(shop: Shop, engines: Engines) -> Callable[[str], list[str]]:
    """Deploy a text of the environment; what was shown and said."""
    assert shop.first.returncode == 0, shop.first.stderr[-1500:]

    def deployed(text: str) -> list[str]:
        engines.asked.clear()
        shop.file.write_text(text)
        done = shop.millrace("deploy", "--yes")
        assert done.returncode == 0, (done.stdout, done.stderr[-1500:])
        return [*done.stdout.splitlines(), *done.stderr.splitlines()]

    return deployed


def stacks(shop: Shop) -> set[str]:
    pages = shop.stack.client("cloudformation").get_paginator("describe_stacks").paginate()
    jobs = f"{shop.names.stack('job')}-"
    return {
        each["StackName"].removeprefix(jobs)
        for page in pages
        for each in page["Stacks"]
        if each["StackName"].startswith(jobs) and each["StackStatus"] != "DELETE_COMPLETE"
    }


def test_renamed_removed_and_declared_again(
    shop: Shop, engines: Engines, deploy: Callable[[str], list[str]]
) -> None:
    first = shop.file.read_text()
    old, new = shop.names.job(GLUE_KAFKA), shop.names.job(NEW)
    others = stacks(shop) - {GLUE_KAFKA}
    assert len(engines.live(old)) == 1

    def asked() -> list[tuple[str, str]]:
        """Calls about the two; another job's own rule may restart it meanwhile."""
        calls = ((name, given.get("JobName")) for name, given in engines.asked)
        return [(name, job) for name, job in calls if job in (old, new)]

    renamed = first.replace(f"  {GLUE_KAFKA}:\n", f"  {NEW}:\n    renamed_from: {GLUE_KAFKA}\n")
    said = deploy(renamed)
    assert stacks(shop) == {*others, NEW}, said
    assert (engines.live(old), len(engines.live(new))) == ([], 1)
    assert asked() == [("BatchStopJobRun", old), ("StartJobRun", new)], "drained before the new one began"
    assert not any(line.startswith(("job clicks", "job orders")) for line in said), said
    assert checkpoints(shop, NEW) == GLUE_KAFKA

    said = deploy(re.sub(rf"  {NEW}:\n(?:    .*\n)+", "", renamed))
    assert stacks(shop) == others, said
    assert engines.live(new) == []
    assert asked() == [("BatchStopJobRun", new)]
    assert any("refunds_landed" in line and "stay" in line for line in said), said

    said = deploy(first)
    assert stacks(shop) == {*others, GLUE_KAFKA}, said
    assert len(engines.live(old)) == 1
    assert asked() == [("StartJobRun", old)]
    shown = shop.millrace("deploy", "--diff")
    assert shown.stdout.splitlines() == ["nothing changes"], shown.stdout


def test_a_job_takes_the_name_of_one_that_leaves(
    shop: Shop, engines: Engines, deploy: Callable[[str], list[str]]
) -> None:
    """Both run, and what is deployed under the name ends before the other one continues there."""
    first, second = shop.file.read_text(), f"{GLUE_KAFKA}-v2"
    start = first.index(f"  {GLUE_KAFKA}:\n")
    body = first[start:].replace(f"  {GLUE_KAFKA}:\n", "").replace("refunds_landed", "refunds_v2_landed")
    deploy(f"{first}  {second}:\n{body}")
    old, new = shop.names.job(GLUE_KAFKA), shop.names.job(second)
    assert [len(engines.live(job)) for job in (old, new)] == [1, 1]

    said = deploy(f"{first[:start]}  {GLUE_KAFKA}:\n    renamed_from: {second}\n{body}")
    calls = [(name, given.get("JobName")) for name, given in engines.asked]
    assert [each for each in calls if each[1] in (old, new)] == [
        *(("BatchStopJobRun", job) for job in (new, old)),
        ("StartJobRun", old),
    ], said
    assert [len(engines.live(job)) for job in (old, new)] == [1, 0]
    assert checkpoints(shop, GLUE_KAFKA) == second
    shown = shop.millrace("deploy", "--diff")
    assert shown.stdout.splitlines() == ["nothing changes"], shown.stdout


def checkpoints(shop: Shop, job: str) -> str:
    """The folder of a job's checkpoints, by the launch document that it is started with."""
    bucket, _, key = read_deployed_version(shop.aws, job).document_url.removeprefix("s3://").partition("/")
    body = shop.stack.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
    return str(json.loads(body)["settings"]["checkpoints"]).rpartition("/")[2]
