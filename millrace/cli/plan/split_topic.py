"""``millrace split``: divides one topic among several jobs."""

from __future__ import annotations

import dataclasses
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer
from ruamel.yaml import YAML

from millrace.cli.shared.console import print_json
from millrace.cli.shared.options import (
    AsJson,
    EnvironmentName,
    JobName,
    choose_query_name,
    load_environment_with_job,
)
from millrace.config import Environment, Finding, Names
from millrace.config.kafka.login import secret_and_key_arns_of_login
from millrace.config.model import ExternalCluster, KafkaTopic
from millrace.config.queries import LandQuery

if TYPE_CHECKING:
    from millrace.lifecycle.account.kafka_access import Settings
    from millrace.lifecycle.audits.balance_partitions_over_jobs import TopicSplit


def split(
    env: EnvironmentName,
    job: JobName,
    jobs: Annotated[int, typer.Option(min=2, help="Number of jobs that share the topic.")],
    query: Annotated[
        str | None, typer.Option(help="The land query; needed where the job has several that read topics.")
    ] = None,
    minutes: Annotated[
        int, typer.Option(min=1, max=7 * 24 * 60, help="Measure the traffic of the last MINUTES minutes.")
    ] = 60,
    as_json: AsJson = False,
) -> None:
    """Divide the partitions of a topic among several jobs, balanced by recent traffic.

    Reads the current partitions and traffic from the brokers, and prints the jobs in the form of the environment
    file: no partition twice and none missing; every load of the file checks that again. Nothing is changed. If a
    partition is added later, the jobs stop with an error.

    [bold]Examples[/bold]

      millrace split flights --env prod --jobs 3

      millrace split flights --env prod --jobs 2 --minutes 1440 --json
    """
    from millrace.lifecycle.audits.balance_partitions_over_jobs import (
        TopicSplit,
        balance_partitions,
        count_records_by_partition,
        names_of_jobs,
    )
    from millrace.lifecycle.audits.kafka import TopicReader

    environment = load_environment_with_job(env, job)
    known = {
        name: (each.source, topic, each.table)
        for name, each in environment.jobs[job].queries.items()
        if isinstance(each, LandQuery)
        and isinstance(topic := environment.streams[each.source], KafkaTopic)
        and topic.pattern is None
    }
    name = choose_query_name(environment, job, query, list(known), "a job with a land query on a topic")
    stream, topic_settings, table = known[name]
    end = datetime.now(UTC)
    begin = end - timedelta(minutes=minutes)
    topic_name = Names(environment, environment.account or "").stream(stream)
    records = count_records_by_partition(
        TopicReader(topic_name, _kafka_connection_settings(environment, topic_settings.cluster)), begin, end
    )
    if jobs > len(records):
        allowed = f"2 to {len(records)}: topic {topic_name} has {len(records)} partitions"
        raise environment.value_locations.error_of_findings(
            [Finding(("jobs", job), value=f"--jobs {jobs}", allowed=allowed)]
        )
    lists = balance_partitions(records, jobs)
    landing = {
        other: each.kafka.partitions if each.kafka is not None else None
        for other, settings in environment.jobs.items()
        for each in settings.queries.values()
        if isinstance(each, LandQuery) and (each.source, each.table) == (stream, table)
    }
    sharing = {other: listed for other, listed in landing.items() if listed is not None}
    names = names_of_jobs(job, lists, sharing, environment.jobs)
    result = TopicSplit(job, name, tuple(landing), names, stream, topic_name, begin, end, records, lists)
    if as_json:
        jobs_of_lists = dict(zip(result.job_names, result.lists, strict=True))
        print_json(dataclasses.asdict(result) | {"jobs": jobs_of_lists}, indent=None)
        return
    sys.stderr.write(_split_summary_text(result))
    _print_yaml_of_split_jobs(environment, result)


def _kafka_connection_settings(environment: Environment, cluster: str) -> Settings:
    """Return the connection settings of a cluster: of the running sandbox, of the file, or from AWS."""
    from millrace.lifecycle.account.kafka_access import cluster_connection_settings
    from millrace.sandbox.operate_running_sandbox import (
        running_sandbox_deployment,
        sandbox_or_account_with_connection,
    )

    kafka = environment.kafka[cluster]
    login = kafka.authentication
    if (
        running_sandbox_deployment(environment) is None
        and isinstance(kafka, ExternalCluster)
        and login.kind != "iam"
        and secret_and_key_arns_of_login(login) is None
    ):
        # No AWS service is called.
        names = Names(environment, environment.account or "")
        return cluster_connection_settings(names, cluster, lambda service: service)
    place, _ = sandbox_or_account_with_connection(environment)
    return place.kafka(cluster)


def _split_summary_text(result: TopicSplit) -> str:
    total = sum(result.records.values())
    lines = [
        f"{result.topic}: {len(result.records)} partitions, {total:,} records "
        f"in the {(result.end - result.begin).total_seconds() / 60:g} minutes before {result.end:%H:%M}Z"
    ]
    for name, partitions in zip(result.job_names, result.lists, strict=True):
        share = f"{result.record_count_of_partitions(partitions) / total:.0%}" if total else "of nothing"
        listed = ", ".join(map(str, partitions))
        lines.append(
            f"  {name}: {result.record_count_of_partitions(partitions):,} records, {share}, partitions {listed}"
        )
    if not total:
        lines.append("No records arrived: the lists are balanced by number of partitions.")
    elif max(result.records.values()) * len(result.lists) > total * 1.1:
        busiest = max(result.records, key=lambda p: result.records[p])
        lines.append(
            f"Partition {busiest} alone has {result.records[busiest] / total:.0%}: its job has that load in any list. "
            "The plan assumes equal loads; pin the cores of that job."
        )
    return "\n".join(lines) + "\n"


def _print_yaml_of_split_jobs(environment: Environment, result: TopicSplit) -> None:
    assert environment.value_locations.tree is not None, "the environment was loaded from a file"
    raw: dict[str, Any] = environment.value_locations.tree.nearest_existing(("jobs", result.job)).to_json()
    yaml = YAML()
    yaml.default_flow_style = None
    yaml.width = 110
    sys.stdout.write(
        f"# Replaces {', '.join(f'jobs.{each}' for each in result.replaced)}; drain first (millrace drain). Jobs of new names start\n"
        "# on checkpoints of their own.\n"
        "# Records that they read again are not landed twice, because they write the same table. To read less again, set start:\n"
        "# to a time before the drain.\n"
    )
    pinned = environment.streams[result.stream].given_partitions
    if pinned != len(result.records):
        yaml.dump({"streams": {result.stream: {"partitions": len(result.records)}}}, sys.stdout)
    yaml.dump({"jobs": result.job_entries(raw)}, sys.stdout)
