"""A table has one owner: who continues from its position, and who would not, is known before a job is drained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from millrace.cli.run.changes_report import (
    change_lines,
    changes_document,
    jobs_that_continue_checkpoints,
)
from millrace.lifecycle.account.deployed_environment import DeployedEnvironment
from millrace.lifecycle.changes.table_writer_changes import output_writer_changes
from millrace.lifecycle.deploy import compare_with_deployed
from tests.unit.lifecycle.deployed_jobs import (
    BUCKET,
    CHECKPOINTS,
    begin,
    new,
    stand,
    template,
    with_jobs,
    writing,
)


@pytest.mark.parametrize(
    ("given", "continues", "refused"),
    [
        ({}, None, "`renamed_from: before`"),
        ({"checkpoints": "before"}, "before", None),
        ({"table": "db.other"}, None, None),
        ({"partitions": [0, 1]}, None, None),
    ],
    ids=["a rename that is not written", "a rename", "another table", "a split"],
)
def test_a_table_has_one_owner(
    aws: DeployedEnvironment,
    tmp_path: Path,
    given: dict[str, Any],
    continues: str | None,
    refused: str | None,
) -> None:
    stand(aws, before=writing("before"))
    result = compare_with_deployed(aws, new(tmp_path, clicks=writing("clicks", **given)))
    assert [job.continues for job in result.jobs if job.job == "clicks"] == [continues]
    assert [removal.renamed_to for removal in result.removals] == ["clicks" if continues else None]
    assert bool(result.refused) == bool(refused)
    assert all(str(refused) in line for line in result.refused)
    # After a failure between the deployment and the removal both exist: the new one still starts.
    if continues:
        url = f"s3://{BUCKET}/new-clicks.json"
        aws.client("s3").put_object(Bucket=BUCKET, Key="new-clicks.json", Body=b"{}")
        aws.client("s3").put_object(
            Bucket=BUCKET, Key="new-clicks.json", Body=json.dumps(writing("clicks", **given))
        )
        aws.client("cloudformation").create_stack(
            StackName="hello-minimal-job-clicks", TemplateBody=json.dumps(template(1, url))
        )
        again = compare_with_deployed(aws, tmp_path)
        assert [(job.job, job.after) for job in again.jobs] == [("before", "remove"), ("clicks", "restart")]


def test_a_query_whose_checkpoint_was_carried_over_may_write_the_table(
    aws: DeployedEnvironment, tmp_path: Path
) -> None:
    stand(aws, clicks=writing("clicks", table="db.other"), before=writing("before"))
    folder = new(tmp_path, clicks=writing("clicks"), before=writing("before", table="db.third"))
    aws = with_jobs(aws, "clicks", "before")
    (line,) = compare_with_deployed(aws, folder).refused
    assert "`millrace checkpoint move before land clicks/land --env minimal`" in line
    begin(aws, "clicks/land")
    assert compare_with_deployed(aws, folder).refused == ()


SINK = {"kind": "kinesis", "stream": "outs"}


@pytest.mark.parametrize(
    "given",
    [{}, {"source": {"start": "latest"}}, {"sink": SINK}],
    ids=["land", "land from latest", "a sink that knows no record again"],
)
def test_a_query_that_is_renamed_in_its_job_continues_after_a_move(
    aws: DeployedEnvironment, tmp_path: Path, given: dict[str, Any]
) -> None:
    stand(aws, clicks=writing("clicks", **given))
    begin(aws, "clicks/land")
    folder = new(tmp_path, clicks=writing("clicks", query="arrive", **given))
    (line,) = compare_with_deployed(aws, folder).refused
    assert "`millrace checkpoint move clicks land clicks/arrive --env minimal`" in line
    begin(aws, "clicks/arrive")
    (line,) = compare_with_deployed(aws, folder).refused
    assert "`millrace checkpoint reset clicks arrive --env minimal`" in line, "both exist: nobody moved it"
    for log in ("offsets", "commits"):
        aws.client("s3").delete_object(Bucket=aws.names.bucket("checkpoints"), Key=f"clicks/land/{log}/0")
    result = compare_with_deployed(aws, folder)
    assert result.refused == ()
    assert result.jobs[0].resumes == ("arrive",)


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        ({}, False),
        ({"source": {"start": "latest"}}, True),
        (
            {"source": {"start": "latest", "reading": {"partitions": [2, 3], "start_offsets": {"2": 7}}}},
            False,
        ),
        ({"sink": SINK}, True),
    ],
    ids=["a table", "from latest", "from given offsets", "a sink that knows no record again"],
)
def test_partitions_that_another_job_takes_are_neither_skipped_nor_written_twice(
    aws: DeployedEnvironment, tmp_path: Path, given: dict[str, Any], refused: bool
) -> None:
    stand(aws, clicks=writing("clicks", **{**given, "source": {**given.get("source", {}), "reading": {}}}))
    shared = {
        "clicks": writing("clicks", **{**given, "source": {"reading": {"partitions": [0, 1]}}}),
        "other": writing("other", partitions=[2, 3], **given),
    }
    lines = compare_with_deployed(with_jobs(aws, *shared), new(tmp_path, **shared)).refused
    assert ["job other, query land" in line and "start_offsets" in line for line in lines] == [True] * refused


def connected(document: dict[str, Any], **connections: dict[str, Any]) -> dict[str, Any]:
    document["settings"]["connections"] = connections
    return document


@pytest.mark.parametrize(
    ("before", "after", "refused"),
    [
        ({"name": "a", "topic": None, "stream": "x"}, {"name": "b", "topic": None, "stream": "x"}, True),
        ({"connection": "one"}, {"connection": "two"}, True),
        ({"connection": "one"}, {"connection": "three"}, False),
    ],
    ids=["a stream", "a cluster", "another cluster"],
)
def test_a_source_is_known_by_its_name_at_the_service(
    aws: DeployedEnvironment,
    tmp_path: Path,
    before: dict[str, Any],
    after: dict[str, Any],
    refused: bool,
) -> None:
    """In the file, the job and the stream or the cluster get other names in one edit."""
    clusters = {"one": {"cluster": "c-1"}, "two": {"cluster": "c-1"}, "three": {"cluster": "c-2"}}
    stand(aws, before=connected(writing("before", source=before), **clusters))
    folder = new(tmp_path, clicks=connected(writing("clicks", source=after), **clusters))
    assert bool(compare_with_deployed(aws, folder).refused) == refused


def test_checkpoints_that_an_earlier_job_left_are_shown_and_checked(
    aws: DeployedEnvironment, tmp_path: Path
) -> None:
    stand(aws)
    folder = new(tmp_path, clicks=writing("clicks"))
    assert jobs_that_continue_checkpoints(compare_with_deployed(aws, folder)) == []
    begin(aws, "clicks/land")
    result = compare_with_deployed(aws, folder)
    assert jobs_that_continue_checkpoints(result) == ["clicks"]
    (line,) = (line for line in change_lines(result) if line.startswith("job clicks"))
    assert (
        line == "job clicks: deploy, start: is new; continues from checkpoints that no deployed job has: land"
    )


def test_abandoned_checkpoints_are_no_position_that_somebody_carried_over(
    aws: DeployedEnvironment, tmp_path: Path
) -> None:
    stand(aws, planes=writing("planes"))
    begin(aws, "planes/land", "clicks/land")
    (line,) = compare_with_deployed(aws, new(tmp_path, clicks=writing("clicks"))).refused
    assert "`renamed_from: planes`" in line


def test_the_first_name_is_advised_after_a_second_rename(aws: DeployedEnvironment, tmp_path: Path) -> None:
    stand(aws, schedule=writing("schedule", checkpoints="flights"))
    given = {"clicks": writing("clicks", checkpoints="schedule")}
    (line,) = compare_with_deployed(aws, new(tmp_path, **given)).refused
    assert "write `renamed_from: flights` into job clicks" in line


def test_a_first_name_that_left_the_file_is_advised_again(aws: DeployedEnvironment, tmp_path: Path) -> None:
    stand(aws, clicks=writing("clicks", checkpoints="flights"))
    (line,) = compare_with_deployed(aws, new(tmp_path, clicks=writing("clicks"))).refused
    assert "write `renamed_from: flights` into job clicks" in line
    assert "checkpoint move" not in line


def test_another_bucket_of_checkpoints_gets_a_copy(aws: DeployedEnvironment, tmp_path: Path) -> None:
    document = writing("clicks")
    stand(aws, clicks=json.loads(json.dumps(document).replace(CHECKPOINTS, "s3://company")))
    (line,) = compare_with_deployed(aws, new(tmp_path, clicks=document)).refused
    assert f"`aws s3 mv --recursive s3://company/clicks {CHECKPOINTS}/clicks`" in line


@pytest.mark.parametrize(("cluster", "owned"), [("one", 1), ("two", 0)])
def test_a_topic_of_the_same_name_on_another_cluster_is_another_output(cluster: str, owned: int) -> None:
    documents = (
        connected(
            writing(job, sink={"kind": "kafka", "topic": "outs", "connection": "d"}),
            c={"cluster": "read"},
            d={"cluster": written},
        )
        for job, written in (("before", "one"), ("clicks", cluster))
    )
    old, now = ({job: each} for job, each in zip(("before", "clicks"), documents, strict=True))
    assert len(list(output_writer_changes(old, now))) == owned


def landed_and_derived(land: str, derive: str, table: str, sink: dict[str, str]) -> dict[str, Any]:
    """Return a job that lands a topic, and derives from the table into a sink."""
    document = writing("shop", query=land, table=table)
    document["settings"]["queries"].append(
        {"kind": "derive", "name": derive, "source_table": table, "sink": sink, "route": None}
    )
    return document


@pytest.mark.parametrize(
    "sink", [{"kind": "iceberg", "table": "db.priced"}, SINK], ids=["a table", "a stream"]
)
@pytest.mark.parametrize("way", ["another landing table", "directly", "from directly"])
def test_the_same_records_by_another_way_are_refused(
    aws: DeployedEnvironment, tmp_path: Path, sink: dict[str, str], way: str
) -> None:
    before = landed_and_derived("land", "price", "db.landed", sink)
    direct = writing("shop", query="price-now", sink=sink)
    direct["settings"]["queries"].append(before["settings"]["queries"][0])
    after = (
        landed_and_derived("land-all", "price-all", "db.raw", sink) if way.startswith("another") else direct
    )
    if way.startswith("from"):
        before, after = after, before
    stand(aws, shop=before)
    folder = new(tmp_path, shop=after)
    refused = compare_with_deployed(with_jobs(aws, "shop"), folder).refused
    place = sink.get("table") or sink["stream"]
    (line,) = (each for each in refused if f": {place} is written by" in each)
    assert "another table or target, as this one would get the records of the same stream again" in line
    assert "checkpoint move" not in line


def test_records_of_another_stream_into_the_same_sink_are_its_owners_business(
    aws: DeployedEnvironment, tmp_path: Path
) -> None:
    stand(aws, shop=landed_and_derived("land", "price", "db.landed", SINK))
    other = json.dumps(landed_and_derived("land-all", "price-all", "db.raw", SINK)).replace(
        '"topic": "t"', '"topic": "u"'
    )
    assert compare_with_deployed(with_jobs(aws, "shop"), new(tmp_path, shop=json.loads(other))).refused == ()


KAFKA = {"kind": "kafka", "topic": "t2", "connection": "c", "key": "customer"}
KINESIS = {"kind": "kinesis", "stream": "s2", "region": "us-east-1", "key": None}


def direct(sink: dict[str, Any], letters: str | None) -> dict[str, Any]:
    document = writing("clicks", sink=sink)
    document["settings"]["queries"][0]["dead_letters"] = letters
    return document


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ((KAFKA, "db.a"), (KAFKA, "db.a"), []),
        (
            (KAFKA, "db.a"),
            ({**KAFKA, "key": None}, "db.a"),
            ["topic t2 have the key the identity, until now customer", "partition", "compacted"],
        ),
        ((KINESIS, None), ({**KINESIS, "key": "id"}, "db.a"), ["key id, until now the identity", "another shard", "no order"]),
        ((KAFKA, "db.a"), (KAFKA, "db.b"), ["the dead letters until now stay in db.a", "`millrace replay`", "before"]),
        ((KAFKA, "db.a"), (KAFKA, None), ["stay in db.a"]),
        ((KAFKA, "db.a"), ({**KAFKA, "topic": "t3", "key": "id"}, "db.a"), []),
        ((KAFKA, "db.a"), (KINESIS, "db.a"), []),
    ],
    ids=["nothing", "a Kafka key", "a Kinesis key", "a table", "no table", "a topic", "a kind"],
)  # fmt: skip
def test_another_key_or_table_of_dead_letters_is_named(
    aws: DeployedEnvironment, tmp_path: Path, before: Any, after: Any, said: list[str]
) -> None:
    """Both were taken without a word beside the changed number."""
    stand(aws, clicks=direct(*before))
    result = compare_with_deployed(aws, new(tmp_path, clicks=direct(*after)))
    assert changes_document(result)["consequences"] == result.consequences
    assert len(result.consequences) == bool(said)
    for line in result.consequences:
        assert f"  {line}" in change_lines(result)
        assert line.startswith("job clicks, query land: ")
        assert [part for part in said if part not in line] == []


@pytest.mark.parametrize(
    ("key", "before", "after", "said"),
    [
        ("redact", ["name"], ["card", "email", "name"], "card, email will be null in later rows"),
        ("redact", ["name"], [], None),
        ("source", {"start": "earliest"}, {"start": "latest"}, "its start counts only until it has a checkpoint"),
        ("source", {"reading": {"start_offsets": {"0": 5}}}, {"reading": {"start_offsets": {"0": 9}}}, "its start counts only"),
        ("source", {"start": "latest"}, {"start": "latest"}, None),
    ],
)  # fmt: skip
def test_what_a_change_does_not_do_to_earlier_records_is_named(
    aws: DeployedEnvironment, tmp_path: Path, key: str, before: Any, after: Any, said: str | None
) -> None:
    def landing(value: Any) -> dict[str, Any]:
        document = writing("clicks")
        route = document["settings"]["queries"][0]["routes"][0]
        route[key] = {**route["source"], **value} if key == "source" else value
        return document

    stand(aws, clicks=landing(before))
    lines = compare_with_deployed(aws, new(tmp_path, clicks=landing(after))).consequences
    assert len(lines) == (said is not None)
    assert all(str(said) in line for line in lines)
