"""Permissions of the sinks of a job's queries.

Sources of the grants: the service authorization reference's pages of each service, and for Kafka the MSK guide, "IAM access
control". ``docs/design/permissions.md#roles-of-jobs`` has the table.
"""

from __future__ import annotations

from millrace.config.aws.iam_statements import Grant, merge_grants
from millrace.config.aws.resource_names import Names
from millrace.config.model import Job
from millrace.config.queries import DeriveQuery
from millrace.config.sinks import KINDS
from millrace.config.sinks.base import SinkContext


def sink_grants(names: Names, job: Job, streams_key: str | None) -> list[Grant]:
    """Return the grants of a job's sinks beside the tables of the lake, in the order of the kinds.

    Parameters
    ----------
    streams_key
        ARN of the key of the environment's own streams; ``None`` when it has none.
    """
    uses = [
        (
            end.sink,
            SinkContext(
                names,
                deletes=isinstance(query, DeriveQuery) and bool(query.latest_by),
                streams_key=streams_key,
            ),
        )
        for query in job.queries.values()
        for end in query.sinks_by_place.values()
    ]
    uses.sort(key=lambda each: list(KINDS).index(each[0].kind))
    return merge_grants(grant for sink, context in uses for grant in sink.grants(context))
