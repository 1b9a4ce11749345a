"""Read permissions of a job: streams of all kinds, in this account and in others, and secrets of Kafka clusters."""

from __future__ import annotations

from millrace.config.aws.iam_statements import Grant, allow
from millrace.config.aws.resource_names import Names
from millrace.config.kafka.login import secret_and_key_arns_of_login
from millrace.config.model import Job
from millrace.config.queries import SourceQueryBase
from millrace.config.sources import KINDS
from millrace.config.sources.base import ReadingJob

from ..launch.launch_settings import connected_kafka_clusters, source_streams_of_job


def kafka_secret_grants(names: Names, job: Job) -> list[Grant]:
    """Return the statements with which a job signs in to the Kafka clusters that it reads and writes."""
    environment = names.environment
    pairs = [
        arn
        for c in connected_kafka_clusters(environment, job)
        if (arn := secret_and_key_arns_of_login(environment.kafka[c].authentication)) is not None
    ]
    secrets = dict.fromkeys(secret for secret, _ in pairs)
    keys = dict.fromkeys(key for _, key in pairs if key is not None)
    return [
        allow("ReadKafkaSecrets", ["secretsmanager:GetSecretValue"], list(secrets)),
        allow("DecryptKafkaSecrets", ["kms:Decrypt"], list(keys)),
    ]


def source_grants(names: Names, job: str) -> list[Grant]:
    """Return the statements with which a job's role reads its sources, in the order of the kinds.

    Parameters
    ----------
    job
        The job's logical name.
    """
    settings = names.environment.jobs[job]
    queries = {name: query for name, query in settings.queries.items() if isinstance(query, SourceQueryBase)}
    context, grants = ReadingJob(names, job, queries), []
    for kind in KINDS.values():
        streams = source_streams_of_job(names.environment, settings).items()
        mine = {name: stream for name, stream in streams if isinstance(stream, kind)}
        grants += list(kind.grants(mine, context)) if mine else []
    return grants
