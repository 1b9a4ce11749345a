"""Input and answer of a claim's check."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from typing import Any, TypeVar
from urllib.request import Request, urlopen

from millrace.config.aws.pagination import list_all
from millrace.config.model import EmrJob, GlueJob
from millrace.lifecycle.account.deployed_environment import DeployedEnvironment, read_stack_outputs
from millrace.sizing.costs.price_table_update import PriceRenewal, renew_prices
from millrace.sizing.prices_and_limits import Price, all_required_prices_by_name

LIVED = ("RUNNING", "STOPPED", "STOPPING", "SUCCEEDED", "SUCCESS", "CANCELLED", "CANCELLING")
"""States of a run, of either engine, that exclude a run that could not start."""


J = TypeVar("J", GlueJob, EmrJob)


class UndeterminedError(Exception):
    """A claim that this environment cannot prove or refute; the message says why."""


def require(evidence: object, otherwise: str) -> None:
    """Raise :class:`UndeterminedError` with a reason where there is no evidence."""
    if not evidence:
        raise UndeterminedError(otherwise)


@dataclass(frozen=True)
class CheckAnswer:
    """Answer of a check.

    Attributes
    ----------
    seen
        AWS' own terms, numbers and versions; never a name of the account.
    """

    holds: bool
    seen: str


@dataclass(frozen=True)
class ClaimContext(DeployedEnvironment):
    """An environment in its account, for checks.

    Attributes
    ----------
    policies
        Policies of deployers and operators, by file name; none where the environment file names no account.
    pricing
        A boto3 client of the Price List API, whose endpoint is in a region of its own.
    """

    services: tuple[str, ...]
    policies: Mapping[str, Mapping[str, Any]]
    pricing: Any
    today: date
    fetch: Callable[[Request], Any] = lambda request: urlopen(request, timeout=60.0)  # noqa: S310 - https, written in the checks

    @property
    def region(self) -> str:
        """Region of the environment."""
        return self.names.environment.region

    def items_of_all_pages(
        self, service: str, operation: str, result_key: str, **asked: Any
    ) -> Iterator[Any]:
        """Return the items of all pages of an answer."""
        return list_all(self.client(service), operation, result_key, **asked)

    @cached_property
    def required_prices_by_name(self) -> dict[str, Price]:
        """Prices of Millrace's tables."""
        return all_required_prices_by_name(self.region)

    @cached_property
    def price_list_renewal(self) -> PriceRenewal:
        """The same prices by the Price List API."""
        return renew_prices(self.pricing, self.region, self.required_prices_by_name, self.today)

    def jobs_of_engine(self, kind: type[J]) -> dict[str, J]:
        """Return the jobs of an engine.

        Raises
        ------
        UndeterminedError
            There are none.
        """
        result = {name: job for name, job in self.names.environment.jobs.items() if isinstance(job, kind)}
        require(result, f"the environment has no job on {kind.title}")
        return result

    def physical_ids(self, part: str, kind: str) -> list[str]:
        """Return the physical ids of a stack's resources of one type."""
        stack = self.names.stack(part)
        read_stack_outputs(self.client("cloudformation"), stack)  # raises an error if there is no stack
        return [
            each["PhysicalResourceId"]
            for each in self.items_of_all_pages(
                "cloudformation", "list_stack_resources", "StackResourceSummaries", StackName=stack
            )
            if each["ResourceType"] == kind and "PhysicalResourceId" in each
        ]

    def newest_started_glue_runs(self, job: str) -> list[dict[str, Any]]:
        """Return the newest runs of a job that really started."""
        runs = self.client("glue").get_job_runs(JobName=self.names.job(job), MaxResults=50)["JobRuns"]
        return [r for r in runs if r["JobRunState"] in LIVED and r.get("ExecutionTime", 0) > 0]

    def newest_started_emr_runs(self, job: str) -> list[dict[str, Any]]:
        """Return the newest runs of a job that really started."""
        application, emr = self.job_outputs(job)["ApplicationId"], self.client("emr-serverless")
        # All pages: no document says in which order the runs come.
        listed = self.items_of_all_pages(
            "emr-serverless", "list_job_runs", "jobRuns", applicationId=application
        )
        result = [
            emr.get_job_run(applicationId=application, jobRunId=run["id"])["jobRun"]
            for run in sorted(listed, key=lambda run: run["createdAt"], reverse=True)[:20]
            if run["state"] in LIVED
        ]
        return [
            run for run in result if run["state"] == "RUNNING" or run.get("totalExecutionDurationSeconds")
        ]


Check = Callable[[ClaimContext], CheckAnswer]
