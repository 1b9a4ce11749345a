"""Checks of deployed names and tags: AWS accepts each, and no two resources get the same name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import get_args

from millrace.config.aws.resource_names import Bucket, Names
from millrace.config.document.problems import Finding, Path
from millrace.config.model import Environment
from millrace.config.queries import LandQuery

_BUCKET_LIMIT = 63
_LIMITS = {
    "an EMR Serverless application": 64,
    "an MSK cluster": 64,
    "a CloudFormation stack": 128,
    "a Kinesis stream": 128,
    "a consumer of a Kinesis stream": 128,
}
"""Most characters of a name: ``ApplicationName``, ``ClusterName``, ``StreamName`` and ``ConsumerName`` of botocore's models,
``StackName`` of CloudFormation's API reference. Glue jobs allow 255; no derived name is that long.
"""

_OTHERS = 255
"""Most characters for all other kinds."""

_BUCKET_PREFIXES = ("xn--", "sthree-", "amzn-s3-demo-")
"""Prefixes that no bucket's name may have (S3 user guide, "General purpose bucket naming rules")."""

_NO_BUCKET = re.compile(
    r".*(-s3alias|--ol-s3|\.mrap|--x-s3|--table-s3)|.*\.\..*|\d+(\.\d+){3}|xn--.*|sthree-.*|amzn-s3-demo-.*"
)
"""Names of other things than buckets, such as access points, and names that no bucket has (the same page)."""

_RESERVED = ("aws", "ssm")
"""Prefixes that no parameter of Systems Manager may have (botocore's model, ``PutParameter``); each job has one."""

_MOST_TAGS = 50
_OWN_TAGS = ("millrace:project", "millrace:environment", "millrace:job", "millrace:stream")
"""Tags that stacks add; a resource has at most three of them (a job's stack, or a stream)."""
_OWN_AT_ONCE = 3

_TAG = re.compile(r"[\w.:/=+\-@ ]*")
_TAG_OF_EMR = re.compile(r"[A-Za-z0-9 /_.:=+@-]*")
"""Letters of any language for IAM (``tagKeyType``), English letters for EMR Serverless (``TagKey``)."""


def check_names(environment: Environment) -> Iterator[Finding]:
    """Check that AWS accepts every name that this environment creates, and that each names one resource."""
    names = Names(environment, environment.account or "0" * 12)
    yield from _check_bucket_names(names)
    if names.prefix.startswith(_RESERVED):
        company = environment.governance.name_prefix
        yield Finding(
            ("project",) if company is None else ("governance", "name_prefix"),
            company or environment.project,
            f"a name that does not begin with {' or '.join(_RESERVED)}, as no parameter of Systems Manager may",
        )
    for kind, path, name in _named_resources(names):
        room = _LIMITS.get(kind, _OTHERS)
        if len(name) > room:
            yield Finding(
                path,
                f"{name}, {len(name)} characters",
                f"a shorter name: {kind} has up to {room} characters, and {names.prefix} begins each",
            )
    for check in (_check_unique_names, _check_unique_consumers, _check_unique_checkpoint_folders):
        yield from check(names)


def _check_bucket_names(names: Names) -> Iterator[Finding]:
    reserved = next((each for each in _BUCKET_PREFIXES if names.prefix.startswith(each)), None)
    if reserved is not None and any(
        kind not in names.environment.storage.buckets for kind in get_args(Bucket)
    ):
        company = names.environment.governance.name_prefix
        yield Finding(
            ("project",) if company is None else ("governance", "name_prefix"),
            company or names.environment.project,
            f"a name that does not begin with {reserved}, as S3 refuses buckets with that prefix",
        )
    for kind, bucket in names.environment.storage.buckets.items():
        if _NO_BUCKET.fullmatch(bucket):
            yield Finding(
                ("storage", "buckets", kind),
                bucket,
                "the name of a bucket: S3 has none that is an address, has two periods together, begins with "
                f"{', '.join(_BUCKET_PREFIXES)}, or ends like an alias of an access point",
            )
    longest = max(len(names.bucket(kind)) for kind in get_args(Bucket))
    if longest > _BUCKET_LIMIT:
        room = len(names.prefix) - (longest - _BUCKET_LIMIT)
        yield Finding(
            ("project",),
            names.environment.project,
            f"project and environment together up to {room} characters, as buckets are named after both",
            f"{names.prefix} has {len(names.prefix)}",
        )


def _named_resources(names: Names) -> Iterator[tuple[str, Path, str]]:
    """Yield each resource whose name comes from the file: its kind, the place in the file, the name."""
    environment = names.environment
    for name, job in environment.jobs.items():
        path = ("jobs", name)
        if job.named is not None:
            yield job.named, path, names.job(name)
        yield "a CloudFormation stack", path, names.stack(f"job-{name}")
        for query_name, query in job.queries.items():
            if isinstance(query, LandQuery) and query.fan_out:
                consumer = names.fan_out_consumer(name, query_name)
                yield "a consumer of a Kinesis stream", (*path, "queries", query_name), consumer
    for name in environment.created_clusters:
        yield "an MSK cluster", ("kafka", name), names.cluster(name)
    for name, stream in environment.streams.items():
        if stream.is_created:
            yield f"a {stream.title}", ("streams", name), names.stream(name)


def _check_unique_names(names: Names) -> Iterator[Finding]:
    owners: dict[tuple[str, str], str] = {}
    for name, stream in names.environment.streams.items():
        physical = names.stream(name)
        if (first := owners.setdefault((stream.name_scope, physical), name)) != name:
            yield Finding(
                ("streams", name, stream.named_by),
                physical,
                f"a name of its own: streams.{first} is {physical} on {stream.name_scope} already",
            )


def _check_unique_checkpoint_folders(names: Names) -> Iterator[Finding]:
    """Check that no two jobs have the same checkpoints, which a name of before may bring."""
    jobs = names.environment.jobs
    owners = {name: name for name, job in jobs.items() if job.renamed_from is None}
    for name, job in jobs.items():
        if job.renamed_from is None:
            continue
        first = owners.setdefault(job.renamed_from, name)
        if first != name or job.renamed_from == name:
            yield Finding(
                ("jobs", name, "renamed_from"),
                job.renamed_from,
                f"a former name of this job alone: job {first} already uses the checkpoints of {job.renamed_from}",
            )


def _check_unique_consumers(names: Names) -> Iterator[Finding]:
    """Check that each consumer has one reader: two would take over each other's subscription."""
    owners = {
        (name, consumer): f"streams.{name}.fan_out_consumers"
        for name, stream in names.environment.streams.items()
        for consumer in stream.consumers_of_other_programs
    }
    for job_name, name, query in names.environment.queries:
        if not isinstance(query, LandQuery) or not query.fan_out:
            continue
        consumer = names.fan_out_consumer(job_name, name)
        here = f"jobs.{job_name}.queries.{name}"
        if (first := owners.setdefault((query.source, consumer), here)) != here:
            yield Finding(
                ("jobs", job_name, "queries", name),
                f"consumer {consumer} of {query.source}",
                f"a name that makes another consumer: {first} has this one",
            )


def check_tags(environment: Environment) -> Iterator[Finding]:
    """Check that every service accepts the tags, which all resources get."""
    most = _MOST_TAGS - _OWN_AT_ONCE
    if len(environment.tags) > most:
        yield Finding(
            ("tags",),
            f"{len(environment.tags)} tags",
            f"up to {most}: a resource has {_MOST_TAGS} with our own",
        )
    english = any(job.english_tags for job in environment.jobs.values())
    pattern, letters = (_TAG_OF_EMR, "English letters") if english else (_TAG, "letters")
    allowed = f"{letters}, digits, spaces and _ . : / = + - @, which every service takes"
    seen = {key.lower(): key for key in _OWN_TAGS}
    for key, value in environment.tags.items():
        if key.lower().startswith("aws:"):
            yield Finding(("tags", key), value, "a key that does not begin with aws:")
        if not 1 <= len(key) <= 128 or len(value) > 256:
            yield Finding(("tags", key), value[:40], "keys up to 128 and values up to 256 characters")
        if not pattern.fullmatch(key):
            yield Finding(("tags", key), f"the key {key}", allowed)
        elif not pattern.fullmatch(value):
            yield Finding(("tags", key), value[:80], allowed)
        first = seen.setdefault(key.lower(), key)
        if first != key or key in _OWN_TAGS:
            yield Finding(
                ("tags", key),
                f"the key {key}",
                f"a key that differs from {first} in more than upper and lower case, which IAM ignores",
            )
