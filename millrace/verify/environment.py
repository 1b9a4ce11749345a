"""The environment that a verification makes for itself: small, short-lived, and like the one that it stands for."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from ruamel.yaml import YAML

from millrace.config import load
from millrace.config.model import EmrJob, Environment, GlueJob, Job, KafkaTopic, MskCluster
from millrace.config.names import Names
from millrace.config.platform import Bucket, Disposable
from millrace.config.problems import ConfigurationError, Finding
from millrace.config.queries import Payload, Routing, StreamQuery
from millrace.lifecycle.real_cost import ENVIRONMENT, PROJECT
from millrace.sandbox import payloads as making
from millrace.sandbox.child_processes import SandboxError
from millrace.sandbox.payloads import Payloads

TAG = "millrace:verify"
"""On all that a verification makes; its value is :func:`environment_mark` of the environment that is verified."""

CLUSTER_TAG = "millrace:verify-cluster"
"""On all of a verification that made a topic on a cluster that no stack of it knows; its value is that cluster's name."""

NAME = re.compile(r"verify-[0-9a-f]{4}")
"""Environments that verifications make."""

Kind = str
Engine = str

SHARDS = 2
PARTITIONS = 2
TRIGGER_SECONDS = 2
ZONES = 2
"""As few as a VPC of ours may have: each costs its own endpoints."""

_BUCKET_LIMIT = 63
"""Characters of a bucket's name (S3 user guide, "General purpose bucket naming rules")."""

_RESTARTS_PER_HOUR = 20
"""More than a verification kills, so that the limit on restarts stops none."""

MOST_KILLS = 15
MOST_RESHARDS = 10
"""In 24 hours (Kinesis API reference, "UpdateShardCount")."""

_RECORD_BYTES = 1024
_RATE = {"records_per_second_per_core": 5000, "batch_overhead": "1s"}


@dataclass(frozen=True)
class VerificationSettings:
    """What a verification does.

    Attributes
    ----------
    records
        Sent to each stream at least; more where kills and reshards take longer.
    per_second
        Records a second for each stream.
    kills, reshards
        How often each job is killed, and the Kinesis stream split or merged.
    dirty
        Share of records that no query can decode.
    seed
        The same makes the same records, and kills at the same moments of a batch.
    """

    records: int = 5000
    per_second: float = 50.0
    kills: int = 3
    reshards: int = 2
    dirty: float = 0.02
    seed: int = 1


@dataclass(frozen=True)
class Source:
    """A stream of the copy, and how its records are written."""

    name: str
    kind: Kind
    payloads: Payloads


@dataclass(frozen=True)
class Leg:
    """A stream's way through one job: landed by one query, derived from by the other."""

    job: str
    stream: str
    landed: str
    derived: str


@dataclass(frozen=True)
class VerificationCopy:
    """The environment that a verification makes.

    Attributes
    ----------
    file
        It as it is deployed.
    names
        Of all that is made.
    """

    file: Path
    environment: Environment
    names: Names
    sources: tuple[Source, ...]
    legs: tuple[Leg, ...]

    @property
    def tags(self) -> dict[str, str]:
        """On all that is made, the stacks themselves included."""
        own = {key: self.environment.tags[key] for key in (TAG, CLUSTER_TAG) if key in self.environment.tags}
        return {**own, ENVIRONMENT: self.environment.name, PROJECT: self.environment.project}

    @property
    def kafka(self) -> str | None:
        """The cluster that a topic is made on."""
        return next((s.cluster for s in self.environment.streams.values() if isinstance(s, KafkaTopic)), None)


def environment_mark(environment: Environment) -> str:
    """What tells an environment from all others of an account and region: another project may have one of its name."""
    return f"{environment.project}/{environment.name}"


def new_name() -> str:
    """Make a name that no environment has."""
    return f"verify-{secrets.token_hex(2)}"


def derive(
    environment: Environment,
    name: str,
    *,
    account: str,
    wanted: VerificationSettings,
    root: Path,
    folder: Path,
    clusters: Mapping[str, Mapping[str, Any]],
    without_kafka: bool = False,
) -> VerificationCopy:
    """Write the environment that verifies another one.

    It has the other's account, region, governance, network, keys, and of each engine in use the version and worker; what
    it holds is its own, and disposable. Nothing that the other has by reference (buckets, database, roles of jobs,
    streams) is taken over, as a verification writes into all that it uses.

    Parameters
    ----------
    environment
        What is verified.
    name
        Of the new one, as :func:`new_name` makes it.
    account
        That it is made in.
    wanted
        How much is sent.
    root
        The project, whose schemas the records have.
    folder
        Takes the file.
    clusters
        Sections ``kafka`` of clusters on which a topic can be made from here, by logical name.
    without_kafka
        Read Kinesis alone, with Kafka's jobs too.

    Raises
    ------
    ConfigurationError
        It cannot be made: no schema of which records can be made, Kafka that cannot be used, a name too long.
    """
    streams = _first_streams(environment, root)
    kinds = _kinds(environment, streams, without_kafka=without_kafka)
    used = tuple(dict.fromkeys(kind for own in kinds.values() for kind in own))
    document: dict[str, Any] = {
        "project": _short(environment, name, account),
        "account": account,
        "region": environment.region,
        "removal": "destroy",
        "tags": {**environment.tags, TAG: environment_mark(environment)},
        "network": _network(environment),
        "storage": {"disposable": list(get_args(Disposable))},
        "governance": environment.governance.model_dump(mode="json", exclude_none=True),
        "streams": {},
        "jobs": {},
    }
    keys = environment.storage.keys.model_dump(mode="json", exclude_none=True)
    if keys:
        document["storage"]["keys"] = keys
    traffic = {"records_per_second": wanted.per_second, "record_size": f"{_RECORD_BYTES}B"}
    if "kinesis" in used:
        document["streams"]["kinesis"] = {
            "kind": "kinesis",
            "shards": SHARDS,
            "disposable": True,
            "traffic": traffic,
        }
    if "kafka" in used:
        cluster = _cluster(environment, clusters)
        document["kafka"] = {cluster: dict(clusters[cluster])}
        if clusters[cluster]["kind"] == "external":
            document["tags"][CLUSTER_TAG] = cluster
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
        job = next(each for each in environment.jobs.values() if each.engine == engine)
        queries: dict[str, Any] = {}
        for kind in own:
            leg = Leg(engine, kind, f"{engine}_{kind}_landed", f"{engine}_{kind}_derived")
            legs.append(leg)
            queries |= _queries(leg, _payload_of(streams, kind))
        document["jobs"][engine] = {**_job(job), "queries": queries}
    file = folder / f"{name}.yaml"
    folder.mkdir(parents=True, exist_ok=True)
    with file.open("w") as out:
        YAML(typ="safe").dump(document, out)
    try:
        copy = load(file, root=root)
    except ConfigurationError as error:
        file.unlink()
        raise _of_model(error, environment, file) from None
    sources = tuple(Source(kind, kind, _payload_of(streams, kind)[1]) for kind in used)
    return VerificationCopy(file, copy, Names(copy, account), sources, tuple(legs))


def _of_model(error: ConfigurationError, environment: Environment, made: Path) -> ConfigurationError:
    """Name the file that people have in place of the one that was made of it."""
    file = environment.places.of(())[0]
    where = "in the small environment that `millrace verify` makes of this one"
    return ConfigurationError(
        replace(each, file=file, line=0, hint=f"{each.hint}; {where}" if each.hint else where)
        if Path(each.file).name == made.name
        else each
        for each in error.problems
    )


_Streams = Mapping[Kind, tuple[Payload, Payloads]]


def _payload_of(streams: _Streams, kind: Kind) -> tuple[Payload, Payloads]:
    """How records of a kind of stream are written; those of the other where the environment has no such stream."""
    return streams[kind] if kind in streams else next(iter(streams.values()))


def _readings(environment: Environment) -> Iterator[tuple[Engine, Kind, Payload]]:
    """Yield what every query of the environment reads, and how it is written there."""
    for job in environment.jobs.values():
        for query in job.queries.values():
            if isinstance(query, StreamQuery):
                yield job.engine, environment.streams[query.source].kind, query
            elif isinstance(query, Routing):
                for route in query.routes.values():
                    yield job.engine, environment.streams[route.source].kind, route


def _first_streams(environment: Environment, root: Path) -> _Streams:
    """Of each kind of stream the first payloads of which records can be made."""
    found: dict[Kind, tuple[Payload, Payloads]] = {}
    refused: list[str] = []
    for _, kind, payload in _readings(environment):
        if kind in found:
            continue
        try:
            found[kind] = (payload, making.of_query(payload, root))
        except SandboxError as error:
            refused.append(str(error))
    if not found:
        why = "; ".join(dict.fromkeys(refused)) or "no query reads a stream"
        allowed = "a query of whose schema records can be made (docs/verify.md)"
        raise environment.places.error([Finding(("jobs",), why, allowed)])
    return found


def _kinds(
    environment: Environment, streams: _Streams, *, without_kafka: bool
) -> dict[Engine, tuple[Kind, ...]]:
    """Which kinds of streams each engine in use is to read."""
    found: dict[Engine, list[Kind]] = {job.engine: [] for job in environment.jobs.values()}
    for engine, kind, _ in _readings(environment):
        if kind in streams and kind not in found[engine] and not (without_kafka and kind == "kafka"):
            found[engine].append(kind)
    return {engine: tuple(sorted(kinds)) or ("kinesis",) for engine, kinds in found.items()}


def _short(environment: Environment, name: str, account: str) -> str:
    """The project's name, cut where buckets named after it would be too long."""
    longest = max(map(len, get_args(Bucket)))
    company = environment.governance.name_prefix
    taken = len(f"-{name}--{account}-{environment.region}") + longest + (len(company) + 1 if company else 0)
    return environment.project[: max(2, _BUCKET_LIMIT - taken)].rstrip("-")


def _network(environment: Environment) -> dict[str, Any]:
    given: dict[str, Any] = environment.network.model_dump(mode="json", exclude_none=True)
    if environment.network.vpc is None:
        given["availability_zones"] = ZONES
    return {key: value for key, value in given.items() if value not in ([], {})}


def _cluster(environment: Environment, clusters: Mapping[str, Any]) -> str:
    """The first cluster with a topic that can be used from here."""
    wanted = [s.cluster for s in environment.streams.values() if isinstance(s, KafkaTopic)]
    for cluster in wanted:
        if cluster in clusters:
            return cluster
    raise environment.places.error(
        [
            Finding(
                ("kafka", wanted[0]),
                "a cluster that this environment makes, inside a VPC that nothing from outside reaches",
                "a cluster that exists already or is external, and whose brokers can be reached from here",
                "--without-kafka verifies the engines on a Kinesis stream",
            )
        ]
    )


def cluster_section(environment: Environment, name: str) -> dict[str, Any]:
    """A cluster as the environment's file has it, with all that a verification would make disposable."""
    cluster = environment.kafka[name]
    given: dict[str, Any] = cluster.model_dump(mode="json", exclude_none=True)
    if isinstance(cluster, MskCluster) and cluster.existing is None:
        given["disposable"] = True
    return given


def _queries(leg: Leg, how: tuple[Payload, Payloads]) -> dict[str, Any]:
    payload = how[0]
    given = payload.format.model_dump(mode="json", exclude_none=True)
    trigger = f"{TRIGGER_SECONDS}s"
    land: dict[str, Any] = {
        "kind": "land",
        "source": leg.stream,
        "table": leg.landed,
        "format": given,
        "schema": payload.schema_,
        "trigger": trigger,
    }
    derive = {
        "kind": "derive",
        "source": leg.landed,
        "sink": {"kind": "iceberg", "table": leg.derived},
        "trigger": trigger,
    }
    return {f"land-{leg.stream}": land, f"derive-{leg.stream}": derive}


def _job(job: Job) -> dict[str, Any]:
    given: dict[str, Any] = {
        "engine": job.engine,
        "version": job.version,
        "latency": "60s",
        "rate": _RATE,
        "restarts_per_hour": _RESTARTS_PER_HOUR,
        "spark": json.loads(json.dumps(job.spark)),
    }
    if isinstance(job, GlueJob):
        return {**given, "worker": job.worker, "maintenance_window": job.maintenance_window}
    assert isinstance(job, EmrJob), "an engine of Millrace"
    mib = 1024**2
    worker = {
        "vcpu": job.worker.vcpu,
        "memory": f"{job.worker.memory // mib}MiB",
        "disk": f"{job.worker.disk // mib}MiB",
    }
    return {**given, "worker": worker, "architecture": job.architecture}
