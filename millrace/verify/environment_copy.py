"""Copy of an environment for a verification: small, short-lived, and like the verified one."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from ruamel.yaml import YAML

from millrace.config import ConfigurationError, Finding, Names, load
from millrace.config.job_networks import reason_job_runs_in_vpc, reasons_for_vpc_by_part
from millrace.config.model import EmrJob, Environment, GlueJob, Job, KafkaTopic
from millrace.config.network_storage_governance_observability import Bucket, Disposable
from millrace.config.queries import Payload
from millrace.lifecycle.account.real_cost import ENVIRONMENT, PROJECT
from millrace.sandbox import payloads as making
from millrace.sandbox.localstack_deployment import error_in_users_file
from millrace.sandbox.payloads import PayloadWriters
from millrace.sandbox.programs.child_processes import SandboxError

TAG = "millrace:verify"
"""Tag of everything that a verification creates; its value is :func:`environment_identifier` of the verified environment."""

NAME = re.compile(r"verify-[0-9a-f]{4}")
"""Names of environments that verifications create."""

SHARDS = 2
PARTITIONS = 2
TRIGGER_SECONDS = 2
ZONES = 2
"""Minimum number of zones of a VPC by Millrace: each has the cost of its own endpoints."""

_BUCKET_LIMIT = 63
"""Maximum number of characters of a bucket's name (S3 user guide, "General purpose bucket naming rules")."""

_RESTARTS_PER_HOUR = 20
"""More than the kills of a verification, at most 15, so that the limit on restarts stops none."""

_RECORD_BYTES = 1024
_RATE = {"records_per_second_per_core": 5000, "batch_overhead": "1s"}


@dataclass(frozen=True)
class VerificationSettings:
    """Settings of a verification.

    Attributes
    ----------
    records
        Minimum number of records for each stream; more are sent where kills and reshards take longer.
    per_second
        Records a second for each stream.
    kills, reshards
        Number of kills of each job, and of splits or merges of the Kinesis stream.
    dirty
        Share of records that no query can decode.
    seed
        The same seed gives the same records, and the same times of kills in a batch.
    """

    records: int = 5000
    per_second: float = 50.0
    kills: int = 3
    reshards: int = 2
    dirty: float = 0.02
    seed: int = 1


@dataclass(frozen=True)
class StreamThroughJob:
    """Path of a stream through one job: one query lands it, the other derives from it."""

    job: str
    stream: str
    landed: str
    derived: str


@dataclass(frozen=True)
class VerificationCopy:
    """The environment that a verification creates.

    Attributes
    ----------
    file
        Its file for the deployment.
    names
        Names of everything in it.
    sources
        Writers of the records of each stream, which its kind names.
    """

    file: Path
    environment: Environment
    names: Names
    sources: Mapping[str, PayloadWriters]
    legs: tuple[StreamThroughJob, ...]

    @property
    def tags(self) -> dict[str, str]:
        """Tags of everything that is created, the stacks included."""
        return {
            TAG: self.environment.tags[TAG],
            ENVIRONMENT: self.environment.name,
            PROJECT: self.environment.project,
        }

    @property
    def kafka_cluster(self) -> str | None:
        """The cluster with the copy's topic; None without one."""
        return next((s.cluster for s in self.environment.streams.values() if isinstance(s, KafkaTopic)), None)


def environment_identifier(environment: Environment) -> str:
    """Return a mark that identifies an environment in an account and region: another project may use its name."""
    return f"{environment.project}/{environment.name}"


def random_verification_name() -> str:
    """Return a name that no environment has."""
    return f"verify-{secrets.token_hex(2)}"


def write_verification_environment(
    environment: Environment,
    name: str,
    *,
    account: str,
    settings: VerificationSettings,
    root: Path,
    folder: Path,
    clusters: Mapping[str, Mapping[str, Any]],
    without_kafka: bool = False,
) -> VerificationCopy:
    """Write and return the environment that verifies another one.

    It has the other's account, region, governance, network, keys, and version and worker of each engine in use. Its data is
    its own, and disposable. Existing resources of the other (buckets, database, roles of jobs, streams) are not used, as a
    verification writes into everything that it uses.

    Parameters
    ----------
    environment
        The environment to verify.
    name
        Name of the new one, from :func:`random_verification_name`.
    account
        Account of the new one.
    settings
        Settings of the verification.
    root
        The project, whose schemas the records have.
    folder
        Folder of the new file.
    clusters
        Sections ``kafka`` of clusters on which a stack can create a topic that can be used from here, by logical name.
    without_kafka
        Read only Kinesis, also in jobs with Kafka.

    Raises
    ------
    ConfigurationError
        It is not possible: no schema for generated records, a cluster that cannot be used, or a name that is too long.
    """
    streams = _first_payload_and_writers_by_kind(environment, root)
    kinds = _stream_kinds_by_engine(environment, streams, without_kafka=without_kafka)
    used = tuple(dict.fromkeys(kind for own in kinds.values() for kind in own))
    document: dict[str, Any] = {
        "project": _short_project_name(environment, name, account),
        "account": account,
        "region": environment.region,
        "removal": "destroy",
        "tags": {**environment.tags, TAG: environment_identifier(environment)},
        "network": _network_section(environment),
        "storage": {"disposable": list(get_args(Disposable))},
        "governance": environment.governance.model_dump(mode="json", exclude_none=True),
        "streams": {},
        "jobs": {},
    }
    if keys := environment.storage.keys.model_dump(mode="json", exclude_none=True):
        document["storage"]["keys"] = keys
    traffic = {"records_per_second": settings.per_second, "record_size": f"{_RECORD_BYTES}B"}
    if "kinesis" in used:
        document["streams"]["kinesis"] = {
            "kind": "kinesis",
            "shards": SHARDS,
            "disposable": True,
            "traffic": traffic,
        }
    if "kafka" in used:
        cluster = _reachable_cluster(environment, clusters)
        document["kafka"] = {cluster: dict(clusters[cluster])}
        prefix = "-".join(
            part for part in (environment.governance.name_prefix, document["project"], name) if part
        )
        document["streams"]["kafka"] = {
            "kind": "kafka",
            "cluster": cluster,
            "topic": f"{prefix}-records",
            "partitions": PARTITIONS,
            "retention": "1d",
            "disposable": True,
            "traffic": traffic,
        }
    legs = []
    for engine, own in kinds.items():
        first, job = next((key, each) for key, each in environment.jobs.items() if each.engine == engine)
        outside = reason_job_runs_in_vpc(environment, first) is None and "kafka" not in own
        queries: dict[str, Any] = {}
        for kind in own:
            leg = StreamThroughJob(engine, kind, f"{engine}_{kind}_landed", f"{engine}_{kind}_derived")
            legs.append(leg)
            queries |= _query_sections(leg, _payload_and_writers_of_kind(streams, kind)[0])
        document["jobs"][engine] = {
            **_job_section(job),
            **({"network": "none"} if outside else {}),
            "queries": queries,
        }
    file = folder / f"{name}.yaml"
    folder.mkdir(parents=True, exist_ok=True)
    with file.open("w") as out:
        YAML(typ="safe").dump(document, out)
    try:
        copy = load(file, root=root)
    except ConfigurationError as error:
        file.unlink()
        where = "in the small environment that `millrace verify` makes of this one"
        raise error_in_users_file(error, environment, file, where) from None
    sources = {kind: _payload_and_writers_of_kind(streams, kind)[1] for kind in used}
    return VerificationCopy(file, copy, Names(copy, account), sources, tuple(legs))


_Streams = Mapping[str, tuple[Payload, PayloadWriters]]


def _payload_and_writers_of_kind(streams: _Streams, kind: str) -> tuple[Payload, PayloadWriters]:
    """Return the writers of records of a kind of stream; those of another kind where the environment has no such stream."""
    return streams[kind] if kind in streams else next(iter(streams.values()))


def _engines_stream_kinds_and_formats(environment: Environment) -> Iterator[tuple[str, str, Payload]]:
    """Yield the engine, the kind of the stream, and the format there, of all that queries of the environment read."""
    return (
        (environment.jobs[job].engine, environment.streams[reading.source].kind, reading)
        for job, _, query in environment.queries
        for reading in query.stream_readings_by_place.values()
    )


def _first_payload_and_writers_by_kind(environment: Environment, root: Path) -> _Streams:
    """Return, for each kind of stream, the first payloads for which records can be generated."""
    streams: dict[str, tuple[Payload, PayloadWriters]] = {}
    refused: list[str] = []
    for _, kind, payload in _engines_stream_kinds_and_formats(environment):
        if kind in streams:
            continue
        try:
            streams[kind] = (payload, making.payload_writers_of_query(payload, root))
        except SandboxError as error:
            refused.append(str(error))
    if not streams:
        why = "; ".join(dict.fromkeys(refused)) or "no query reads a stream"
        allowed = "a query of whose schema records can be made (docs/verify.md)"
        raise environment.value_locations.error_of_findings([Finding(("jobs",), why, allowed)])
    return streams


def _stream_kinds_by_engine(
    environment: Environment, streams: _Streams, *, without_kafka: bool
) -> dict[str, tuple[str, ...]]:
    """Return the kinds of streams that each engine in use reads."""
    kinds = streams.keys() - ({"kafka"} if without_kafka else set())
    read = {(engine, kind) for engine, kind, _ in _engines_stream_kinds_and_formats(environment)}
    return {
        job.engine: tuple(kind for kind in sorted(kinds) if (job.engine, kind) in read) or ("kinesis",)
        for job in environment.jobs.values()
    }


def _short_project_name(environment: Environment, name: str, account: str) -> str:
    """Return the project's name, cut where buckets with it would have too long names."""
    longest = max(map(len, get_args(Bucket)))
    company = environment.governance.name_prefix
    length = len(f"-{name}--{account}-{environment.region}") + longest + (len(company) + 1 if company else 0)
    return environment.project[: max(2, _BUCKET_LIMIT - length)].rstrip("-")


def _network_section(environment: Environment) -> dict[str, Any]:
    if not reasons_for_vpc_by_part(environment):
        return {}
    section: dict[str, Any] = environment.network.model_dump(mode="json", exclude_none=True)
    if environment.network.vpc is None:
        section["availability_zones"] = ZONES
    return {key: value for key, value in section.items() if value not in ([], {})}


def _reachable_cluster(environment: Environment, clusters: Mapping[str, Any]) -> str:
    """Return the first cluster with a topic that can be used from here."""
    cluster_names = [s.cluster for s in environment.streams.values() if isinstance(s, KafkaTopic)]
    for cluster in cluster_names:
        if cluster in clusters:
            return cluster
    raise environment.value_locations.error_of_findings(
        [
            Finding(
                ("kafka", cluster_names[0]),
                "a cluster whose topics no stack creates, or in a VPC that cannot be reached from here",
                "an MSK cluster that exists already, in a VPC that exists",
                "with --no-kafka, the engines are verified on a Kinesis stream",
            )
        ]
    )


def _query_sections(stream_path: StreamThroughJob, payload: Payload) -> dict[str, Any]:
    section = payload.format.model_dump(mode="json", exclude_none=True)
    trigger = f"{TRIGGER_SECONDS}s"
    land: dict[str, Any] = {
        "kind": "land",
        "source": stream_path.stream,
        "table": stream_path.landed,
        "format": section,
        "schema": payload.schema_,
        "trigger": trigger,
    }
    derive = {
        "kind": "derive",
        "source": stream_path.landed,
        "sink": {"kind": "iceberg", "table": stream_path.derived},
        "trigger": trigger,
    }
    return {f"land-{stream_path.stream}": land, f"derive-{stream_path.stream}": derive}


def _job_section(job: Job) -> dict[str, Any]:
    section: dict[str, Any] = {
        "engine": job.engine,
        "version": job.version,
        "latency": "60s",
        "rate": _RATE,
        "restarts_per_hour": _RESTARTS_PER_HOUR,
        "spark": json.loads(json.dumps(job.spark)),
    }
    if isinstance(job, GlueJob):
        return {**section, "worker": job.worker, "maintenance_window": job.maintenance_window}
    assert isinstance(job, EmrJob), "an engine of Millrace"
    mib = 1024**2
    worker = {
        "vcpu": job.worker.vcpu,
        "memory": f"{job.worker.memory // mib}MiB",
        "disk": f"{job.worker.disk // mib}MiB",
    }
    return {**section, "worker": worker, "architecture": job.architecture}
