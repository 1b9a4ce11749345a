"""Network of each job: a VPC, or AWS's public endpoints, which a Glue job without a connection reaches (Glue developer guide)."""

from __future__ import annotations

from collections.abc import Iterator

from millrace.config.document.problems import Finding
from millrace.config.engines import Job
from millrace.config.model import Environment, MskCluster


def reason_job_runs_in_vpc(environment: Environment, name: str) -> str | None:
    """Return the reason why a job runs in a VPC; None for a job that reaches AWS by its public endpoints.

    A job stays where it is deployed: its way out of the private network is a change of the file.
    """
    job, network = environment.jobs[name], environment.network
    own = getattr(job, "network", None)
    if (needed := reason_job_requires_vpc(environment, job)) is not None or own == "none":
        return needed
    if own == "vpc":
        return f"jobs.{name}.network asks for it"
    if network.vpc is not None or network.allowed_domains is not None:
        return f"network.{'vpc' if network.vpc else 'allowed_domains'} is given"
    if name in environment.deployed_sizes.in_vpc:
        return "it is deployed there" if environment.deployed_sizes.in_vpc[name] else None
    return "the file has a section network" if network.model_fields_set else None


def reason_job_requires_vpc(environment: Environment, job: Job) -> str | None:
    """Return what a job needs a VPC for; None if AWS's public endpoints are enough."""
    return next(_reasons_job_requires_vpc(environment, job), None)


def _reasons_job_requires_vpc(environment: Environment, job: Job) -> Iterator[str]:
    if not job.runs_without_vpc:
        yield f"{job.title} reaches neither Kinesis nor CloudWatch's metrics without one"
    for query in job.queries.values():
        for name in query.source_stream_names:
            # A stream that is not declared is another mistake.
            stream = environment.streams.get(name)
            if stream is not None and not stream.is_public:
                yield f"it reads {stream.title} {name}"
    for sink in job.sinks:
        if not sink.is_public:
            yield f"it writes {sink.kind}"
    if any(not each.can_decode_outside_vpc for each in job.formats):
        yield "it reads schemas from a registry's server"


def reasons_for_vpc_by_part(environment: Environment) -> dict[str, str]:
    """Return what needs the VPC, each with its reason; empty for an environment without one."""
    jobs = {f"job {name}": reason_job_runs_in_vpc(environment, name) for name in environment.jobs}
    reasons = {name: why for name, why in jobs.items() if why is not None}
    msk = [name for name, each in environment.kafka.items() if isinstance(each, MskCluster)]
    reasons |= {f"cluster {name}": "brokers are in a VPC" for name in msk}
    return reasons | (
        {} if environment.history is None else {"history server": "it is reached from inside only"}
    )


def check_job_networks(environment: Environment) -> Iterator[Finding]:
    """Refuse `network: none` for a job that needs a VPC."""
    for name, job in environment.jobs.items():
        needed = reason_job_requires_vpc(environment, job)
        if needed is not None and getattr(job, "network", None) == "none":
            yield Finding(("jobs", name, "network"), "none", f"vpc, or nothing: {needed}")
