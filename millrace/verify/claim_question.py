"""What a check of a claim is given, and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from typing import Any

from millrace.config.model import EmrJob, GlueJob
from millrace.config.names import Names
from millrace.lifecycle.deployed import outputs
from millrace.lifecycle.history_image import Open, open_url
from millrace.lifecycle.state_machine import Aws
from millrace.sizing.pricelist import Renewal, renew
from millrace.sizing.prices_and_limits import Price, known

LIVED = ("RUNNING", "STOPPED", "STOPPING", "SUCCEEDED", "SUCCESS", "CANCELLED", "CANCELLING")
"""States of a run, of either engine, that an engine does not give to one that could not begin."""


@dataclass(frozen=True)
class Answer:
    """What a check saw.

    Attributes
    ----------
    holds
        None where it cannot be told.
    seen
        Words of AWS's, numbers and versions; never a name of the account's.
    """

    holds: bool | None
    seen: str = ""


@dataclass
class Question:
    """An environment in its account.

    Attributes
    ----------
    policies
        Of people, by file name; none where the environment file names no account.
    pricing
        A boto3 client of the Price List API, whose endpoint is in a region of its own.
    """

    aws: Aws
    services: tuple[str, ...]
    policies: Mapping[str, Mapping[str, Any]]
    pricing: Any
    today: date
    fetch: Open = open_url
    _clients: dict[str, Any] = field(default_factory=dict)

    @property
    def names(self) -> Names:
        """Deployed names."""
        return self.aws.names

    @property
    def region(self) -> str:
        """Of the environment."""
        return self.names.environment.region

    def client(self, service: str) -> Any:
        """Make a boto3 client, once."""
        if service not in self._clients:
            self._clients[service] = self.aws.client(service)
        return self._clients[service]

    def pages(self, service: str, operation: str, of: str, **asked: Any) -> Iterator[Any]:
        """Yield the items of all pages of an answer."""
        for page in self.client(service).get_paginator(operation).paginate(**asked):
            yield from page[of]

    @cached_property
    def prices_before(self) -> dict[str, Price]:
        """Prices as the tables have them."""
        return known(self.region)

    @cached_property
    def prices_now(self) -> Renewal:
        """What the Price List API says of them."""
        return renew(self.pricing, self.region, self.prices_before, self.today)

    def glue_jobs(self) -> dict[str, GlueJob]:
        """Jobs on Glue."""
        jobs = self.names.environment.jobs
        return {name: job for name, job in jobs.items() if isinstance(job, GlueJob)}

    def emr_jobs(self) -> dict[str, EmrJob]:
        """Jobs on EMR Serverless."""
        jobs = self.names.environment.jobs
        return {name: job for name, job in jobs.items() if isinstance(job, EmrJob)}

    def output(self, job: str, key: str) -> str:
        """Read one output of a job's stack.

        Raises
        ------
        NotDeployedError
            There is no such stack.
        """
        return outputs(self.client("cloudformation"), self.names.stack(f"job-{job}"))[key]

    def resources(self, part: str, kind: str) -> list[str]:
        """Physical ids of a stack's resources of one type."""
        stack = self.names.stack(part)
        outputs(self.client("cloudformation"), stack)  # says that there is none
        found = self.pages(
            "cloudformation", "list_stack_resources", "StackResourceSummaries", StackName=stack
        )
        return [
            each["PhysicalResourceId"]
            for each in found
            if each["ResourceType"] == kind and "PhysicalResourceId" in each
        ]

    def newest_glue_runs(self, job: str) -> list[dict[str, Any]]:
        """The newest runs of a job that lived."""
        runs = self.client("glue").get_job_runs(JobName=self.names.job(job), MaxResults=50)["JobRuns"]
        return [r for r in runs if r["JobRunState"] in LIVED and r.get("ExecutionTime", 0) > 0]

    def lived_on_emr(self, job: str) -> list[dict[str, Any]]:
        """The newest runs of a job that lived."""
        application, emr = self.output(job, "ApplicationId"), self.client("emr-serverless")
        runs = emr.list_job_runs(applicationId=application, maxResults=20)["jobRuns"]
        found = [
            emr.get_job_run(applicationId=application, jobRunId=run["id"])["jobRun"]
            for run in runs
            if run["state"] in LIVED
        ]
        return [run for run in found if run["state"] == "RUNNING" or run.get("totalExecutionDurationSeconds")]


Check = Callable[[Question], Answer]
