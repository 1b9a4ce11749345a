"""Environment file of a running job: its values are pinned, its streams are never owned, and what is not known stands in it as open."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from millrace.advisor.existing.import_transform_stubs import derive_query_sections
from millrace.advisor.existing.kafka_sign_in import bootstrap_servers_of, broker_authentication
from millrace.advisor.existing.read_job_to_import import RunningJob
from millrace.advisor.existing.reader_options import SHARD_LIMITS
from millrace.advisor.existing.stream_candidates_of_program import ImportedStreamSettings
from millrace.advisor.forecasts.query_twin import BatchDurationModel, QueryTwin
from millrace.config.document.placeholders_left_by_import import is_placeholder, placeholder_for_question
from millrace.config.document.problems import Path, wrong_option_error
from millrace.config.engines.base import JobBase
from millrace.config.formats import DEFAULT, KINDS
from millrace.config.units import format_duration, parse_duration

_LATENCY_PER_TRIGGER, _WITH_DERIVE = 2.0, 2.5
"""A record waits for its trigger at most, and then for a batch, which takes no longer than a trigger in a job that keeps up. Where a derive
query follows, each query has half of the SLA for its trigger and the fixed costs of a batch.
"""

_LONGEST_NAME = 32
"""Characters of a name: with ``land-`` and a number it is the key of a query."""

_DRAWS = 200
"""Refits of a log for the interval of its speed, whose ends leave out a fortieth of them on each side."""

_WIDE = 2
"""Ratio of the interval's ends from which on a speed is marked as assumed."""

_SLA_OF_RUNS, _START_AND_WORK, _SHORTEST_PERIOD = (timedelta(minutes=each) for each in (15, 5, 5))


def environment_document(
    running: RunningJob,
    *,
    env: str,
    project: str,
    schema: str | None,
    start: str,
    rate: float | None,
    record_size: str,
    twin: QueryTwin | None,
    offsets: Mapping[int, int] | None,
    partitions: int | None = None,
    cluster: str | None = None,
    latency: str | None = None,
    secret: str | None = None,
    called: str | None = None,
) -> dict[str, Any]:
    """Return the environment file's content; see :func:`find_values_to_fill_in` for what is not known.

    Parameters
    ----------
    env
        Name of the environment.
    schema
        File of the records' schema, from the project's root.
    start
        Start time of the new job, in ISO 8601.
    rate
        Records per second; by default those of the log.
    record_size
        Such as ``600B``.
    twin
        Twin from its log, if any: it gives rate, speed, trigger and limit.
    offsets
        Kafka: end of its log's last batch, by partition; the new job starts there instead of at ``start``.
    partitions
        Of a Kafka topic, or shards of a stream; by default those of the log, and of Kinesis.
    cluster
        ARN of its MSK cluster; by default the one that was found by its brokers.
    latency
        SLA; by default one that its trigger can keep.
    secret
        ARN of the secret with which jobs sign in at its brokers.
    called
        Name of the stream in the file; by default from its own name.

    Raises
    ------
    ConfigurationError
        Nothing of the program was recognised.
    """
    program = running.program
    if program.kind is None:
        raise wrong_option_error(
            "SOURCE",
            running.where,
            f"a job whose Python program names its Kinesis stream or Kafka topic ({program.why_not})",
            "name the source with --stream, or with --topic and --brokers",
        )
    job = slug(name_without_run_id(running.where).partition(":")[2])
    turns = _bounded_run_keys(latency) if all(each.ends for each in program.settings_of_all_streams) else {}
    made: dict[str, Any] = {"project": project, "account": running.account, "region": running.region}
    if running.vpc is not None:
        made["network"] = {"vpc": running.vpc, "subnets": sorted(set(running.subnets))}
    clusters, streams, queries, triggers = dict[str, Any](), dict[str, Any](), dict[str, Any](), [0.0]
    for each in program.settings_of_all_streams:
        name = called or (slug(each.name.rpartition("/")[2]) if each.name is not None else job)
        stream = next(
            one for n in itertools.count(1) if (one := f"{name}-{n}" if n > 1 else name) not in streams
        )
        query: dict[str, Any] = {
            "kind": "land",
            "source": stream,
            "table": f"{stream.replace('-', '_')}_landed",
            "schema": schema
            or placeholder_for_question(
                "a file below pipelines/ for `millrace schema infer`; --schema FILE names it"
            ),
        }
        by_suffix = (kind for kind, of in KINDS.items() if schema and schema.endswith(of.suffix))
        payload = each.payload or next(by_suffix, DEFAULT.kind)
        if payload != DEFAULT.kind:
            query["format"] = payload
        trigger = each.trigger or (twin.trigger if twin is not None and twin.trigger else None)
        if trigger and not turns:
            query["trigger"] = format_duration(timedelta(seconds=trigger))
            triggers.append(trigger)
        elsewhere, certain = each.region_elsewhere(running.region)
        shards = None if elsewhere and certain else running.shards.get(str(each.name))
        parts = (
            partitions or shards or (len(offsets) if offsets else None) or (twin.partitions if twin else None)
        )
        limit = _batch_limit(each, parts, twin)
        if limit:
            query["records_per_batch"] = limit
        if each.kind == "kafka":
            source = _topic_section(
                each,
                parts,
                _add_cluster_and_return_name(clusters, _cluster_section(running, each, cluster, secret)),
            )
            kafka = {
                key: value
                for key, value in each.reading.items()
                if not (turns and key in ("min_records_per_batch", "max_delay"))
                and not (key == "min_partitions" and parts and value <= parts)  # a task for each in any case
            }
            if offsets:
                kafka["start_offsets"] = dict(sorted(offsets.items()))
            query |= {"kafka": kafka} if kafka else {}
        else:
            question = each.open.get("name")
            if elsewhere and certain:
                question = (
                    f"{each.name} is in {elsewhere}, and an environment reads streams of its own region"
                )
            source = {
                "kind": "kinesis",
                "existing": placeholder_for_question(question) if question else each.name,
            }
            if role := each.first_option("awsSTSRoleARN", "kinesis.stsRoleArn"):
                source["read_role"] = role
            source["shards"] = parts or placeholder_for_question(
                "Kinesis does not show how many it has; give it with --partitions N"
            )
        if not offsets or each.kind != "kafka":
            query["start"] = start
        streams[stream] = source | {"traffic": _traffic_section(rate, record_size, twin)}
        queries[f"land-{stream}"] = query
    if clusters:
        made["kafka"] = clusters
    landed = [query["table"] for query in queries.values()]
    queries |= derive_query_sections(program.written, env, landed)
    sla = turns or _latency_keys(latency, max(triggers), chained=bool(program.written))
    made |= {
        "streams": streams,
        "jobs": {job: dict(running.job) | sla | _rate_keys(twin) | {"queries": queries}},
    }
    accounts = set(re.findall(r"arn:aws[a-z-]*:[a-z]+:[a-z0-9-]*:(\d{12}):", str(made))) - {running.account}
    return made | ({"governance": {"other_accounts": sorted(accounts)}} if accounts else {})


def name_without_run_id(where: str) -> str:
    """Return the part of a job's place that is the same for all runs: EMR Serverless' run id follows a slash.

    Examples
    --------
    >>> name_without_run_id("emr:00f1/00run"), name_without_run_id("glue:team/orders")
    ('emr:00f1', 'glue:team/orders')
    """
    return where.partition("/")[0] if where.startswith("emr:") else where


def slug(text: str) -> str:
    """Return a valid name of the environment file for any text."""
    words = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return (words if re.match("[a-z].", words) else f"s-{words or 'all'}")[:_LONGEST_NAME].rstrip("-")


def _add_cluster_and_return_name(clusters: dict[str, Any], cluster: Mapping[str, Any]) -> str:
    """Return the name of a cluster among those of the file, to which it is added."""
    same = next((name for name, each in clusters.items() if each == cluster), None)
    name = same or ("theirs" if not clusters else f"theirs-{len(clusters) + 1}")
    clusters[name] = cluster
    return name


def _topic_section(program: ImportedStreamSettings, parts: int | None, cluster: str) -> dict[str, Any]:
    return {
        "kind": "kafka",
        "cluster": cluster,
        "pattern" if program.pattern else "topic": program.name
        or placeholder_for_question(program.open["name"]),
        "existing": True,
        "partitions": parts
        or placeholder_for_question("no event log shows how many it has; give it with --partitions N"),
    }


def find_values_to_fill_in(section: Mapping[str, Any], path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Yield each line of an environment that a person has to fill in, with its path."""
    for key, value in section.items():
        if isinstance(value, Mapping):
            yield from find_values_to_fill_in(value, (*path, key))
        elif is_placeholder(value):
            yield (*path, key), value


def _traffic_section(rate: float | None, record_size: str, twin: QueryTwin | None) -> dict[str, Any]:
    pace = rate if rate is not None or twin is None else twin.records_per_second
    if pace is None:
        missing = placeholder_for_question(
            "records a second, as no event log shows them; give it with --rate N"
        )
        return {"records_per_second": missing, "record_size": record_size}
    traffic: dict[str, Any] = {"records_per_second": float(f"{pace:.4g}"), "record_size": record_size}
    return traffic if rate is not None else traffic | {"basis": "measured"}


def _latency_keys(latency: str | None, trigger: float | None, *, chained: bool) -> dict[str, Any]:
    """Return the SLA where the default is too short for the trigger of today."""
    default: timedelta = JobBase.model_fields["latency"].default
    needed = (_WITH_DERIVE if chained else _LATENCY_PER_TRIGGER) * timedelta(seconds=trigger or 0.0)
    if latency is None and needed <= default:
        return {}
    return {"latency": latency or format_duration(needed)}


def _bounded_run_keys(latency: str | None) -> dict[str, Any]:
    """Return the keys of a job whose runs end; none if its SLA leaves no time for runs."""
    try:
        sla = _SLA_OF_RUNS if latency is None else parse_duration(latency)
    except ValueError:
        return {}  # the check of the file reports it
    period = (sla - _START_AND_WORK) // _SHORTEST_PERIOD * _SHORTEST_PERIOD
    if period < _SHORTEST_PERIOD:
        return {}
    return {"latency": latency or format_duration(sla), "run_every": format_duration(period)}


def _cluster_section(
    running: RunningJob, program: ImportedStreamSettings, cluster: str | None, secret: str | None
) -> dict[str, Any]:
    servers = bootstrap_servers_of(program)
    login = broker_authentication(program)
    made: dict[str, Any] = {
        "kind": "external",
        "bootstrap_servers": servers
        or placeholder_for_question(program.open.get("brokers", "give them with --brokers HOST:PORT,...")),
    }
    if login.kind is None:
        made["authentication"] = placeholder_for_question(login.open)
    elif login.secret is None:
        made["authentication"] = login.kind
    else:
        missing = placeholder_for_question(
            "the program signs in by a password or a certificate; --secret ARN names a secret of Secrets Manager with it"
        )
        made["authentication"] = {"kind": login.kind, "secret": secret or login.secret or missing}
    if login.kind == "iam":
        why = f" ({running.cluster.refused})" if running.cluster.refused else ""
        missing = placeholder_for_question(
            f"no cluster seen here offers {servers or 'the brokers'} for IAM{why}; --cluster ARN names it"
        )
        made["arn"] = cluster or running.cluster.arn or missing
    return made


def _rate_keys(twin: QueryTwin | None) -> dict[str, Any]:
    """Return the speed of the log, at the slow end of its interval; without a log the plan takes its default.

    Chance alone can give the log of a light load a speed without any limit, so a wide interval is no measurement. If even
    the slow end has no limit, all seconds of the tasks count for their records: no record can cost more.
    """
    if twin is None:
        return {}

    def cost_of_record(costs: BatchDurationModel) -> float:
        return costs.per_record + costs.rest[1] * twin.cores

    fits = sorted(
        (
            twin.fit_batch_durations(twin.cores, drawn, fixed=0.0)
            for drawn in twin.resampled_batch_indexes(_DRAWS)
        ),
        key=cost_of_record,
    )
    fast, costs = fits[_DRAWS // 40], fits[-1 - _DRAWS // 40]
    if cost_of_record(costs) <= 0:
        costs = replace(twin, told=False).fit_batch_durations(twin.cores, fixed=0.0)
    each = max(cost_of_record(costs), 1e-9)
    overhead = costs.overhead + costs.rest[0] + costs.wave
    return {
        "rate": {
            "records_per_second_per_core": float(f"{1 / each:.4g}"),
            "batch_overhead": f"{max(1, round(overhead * 1e3))}ms",
            "basis": "measured" if each <= _WIDE * cost_of_record(fast) else "assumed",
        }
    }


def _batch_limit(
    program: ImportedStreamSettings, shards: int | None, twin: QueryTwin | None
) -> int | str | None:
    """Return the limit of a batch: Kinesis connectors have one for each shard, whose number may be open."""
    whole = program.first_option("maxOffsetsPerTrigger")
    if whole is not None and whole.isdecimal():
        return int(whole)
    each = program.first_option(*SHARD_LIMITS)
    if each is not None and each.isdecimal():
        missing = placeholder_for_question(
            f"{each} for each shard, and their number is open; give it with --partitions N"
        )
        return int(each) * shards if shards else missing
    return None if twin is None or twin.limit is None else int(twin.limit)
