"""Actual cost of an environment from Cost Explorer, by the tags that every stack sets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from millrace.config.base import grouped
from millrace.config.model import Environment
from millrace.lifecycle.account.deployed_environment import NotDeployedError
from millrace.lifecycle.aws_error_messages import AwsError, translating_aws_errors

PROJECT, ENVIRONMENT, JOB, STREAM = (
    f"millrace:{name}" for name in ("project", "environment", "job", "stream")
)
"""Keys of the tags; the first two are on all resources of a deployment, the others on those of a job or stream."""


@dataclass(frozen=True)
class AwsBill:
    """Cost of some days.

    Attributes
    ----------
    since, until
        The second is the day after the last.
    usage
        Unblended cost in USD by subject (``jobs.NAME``, ``streams.NAME``, or ``shared`` for resources without these tags) and by
        AWS' name of the usage type, such as ``USE1-ETL-Flex-DPU-Hour``; the largest first.
    estimated
        Whether AWS' figures are preliminary: always for the last days, for a month until it is billed.
    """

    since: date
    until: date
    usage: Mapping[str, Mapping[str, float]]
    estimated: bool

    @property
    def day_count(self) -> int:
        """Number of days."""
        return (self.until - self.since).days


def read_bill(ce: Any, environment: Environment, since: date, until: date) -> AwsBill:
    """Ask Cost Explorer; each request costs a cent, and this takes two or a few.

    Parameters
    ----------
    ce
        A boto3 client of ``ce``, of any region: Cost Explorer answers for all of its partition.
    environment
        The environment, for its tags.
    since, until
        Days; the second is not included.

    Raises
    ------
    millrace.lifecycle.account.deployed_environment.NotDeployedError
        No resource has the tags, although they are activated.
    millrace.lifecycle.aws_error_messages.AwsError
        The tags are not activated for the bill, a permission is missing, or AWS refused for another reason.
    """
    with translating_aws_errors("cannot read costs from Cost Explorer"):
        by_job = list(_costs_by_tag_and_usage_type(ce, environment, since, until, JOB))
        by_stream = list(_costs_by_tag_and_usage_type(ce, environment, since, until, STREAM))
    estimated = any(each for *_, each in (*by_job, *by_stream))
    if not by_job:
        _raise_for_empty_bill(ce, environment, since, until)
    lines: defaultdict[tuple[str, str], float] = defaultdict(float)
    for name, usage, usd, _ in by_job:
        lines[f"jobs.{name}" if name else _SHARED, usage] += usd
    for name, usage, usd, _ in by_stream:
        if name:
            lines[f"streams.{name}", usage] += usd
            lines[_SHARED, usage] -= usd
    costs = grouped(
        (subject, (usage, usd))
        for (subject, usage), usd in sorted(lines.items(), key=lambda line: (line[0][0], -line[1]))
        if subject != _SHARED or abs(usd) >= _CENT / 100
    )
    return AwsBill(since, until, {subject: dict(usages) for subject, usages in costs.items()}, estimated)


_CENT = 0.01
_SHARED = "shared"


def _costs_by_tag_and_usage_type(
    ce: Any, environment: Environment, since: date, until: date, tag: str
) -> Iterator[tuple[str, str, float, bool]]:
    """Yield tag value, usage type, dollars and whether they are preliminary, by the month."""
    query: dict[str, Any] = {
        "TimePeriod": {"Start": since.isoformat(), "End": until.isoformat()},
        "Granularity": "MONTHLY",
        "Metrics": ["UnblendedCost"],
        "Filter": {
            "And": [
                {"Tags": {"Key": PROJECT, "Values": [environment.project]}},
                {"Tags": {"Key": ENVIRONMENT, "Values": [environment.name]}},
            ]
        },
        "GroupBy": [{"Type": "TAG", "Key": tag}, {"Type": "DIMENSION", "Key": "USAGE_TYPE"}],
    }
    while True:
        answer: Mapping[str, Any] = ce.get_cost_and_usage(**query)
        for span in answer["ResultsByTime"]:
            for group in span.get("Groups", ()):
                value, usage = group["Keys"]
                amount = group["Metrics"]["UnblendedCost"]
                if amount["Unit"] != "USD":
                    raise AwsError(
                        f"Cost Explorer reports costs in {amount['Unit']}, which cannot be compared with a plan in USD"
                    )
                # AWS writes "key$value", with nothing after the $ for a missing tag.
                yield value.split("$", 1)[-1], usage, float(amount["Amount"]), bool(span.get("Estimated"))
        if not answer.get("NextPageToken"):
            return
        query["NextPageToken"] = answer["NextPageToken"]


def _raise_for_empty_bill(ce: Any, environment: Environment, since: date, until: date) -> None:
    """Raise an error that explains a bill without lines."""
    with translating_aws_errors("cannot list the cost allocation tags"):
        answer = ce.list_cost_allocation_tags(TagKeys=[PROJECT, ENVIRONMENT, JOB, STREAM])
    known = {each["TagKey"]: each["Status"] for each in answer["CostAllocationTags"]}
    if missing := [key for key in (PROJECT, ENVIRONMENT, JOB, STREAM) if known.get(key) != "Active"]:
        status = " ".join(f"TagKey={key},Status=Active" for key in missing)
        raise AwsError(
            f"the cost allocation tags {', '.join(missing)} are not active; activate them once in the payer account "
            f"(`aws ce update-cost-allocation-tags-status --cost-allocation-tags-status {status}`). AWS counts from "
            "that day on, and lists a tag there up to a day after its first use"
        )
    raise NotDeployedError(
        f"{environment.project}-{environment.name} has no cost from {since} to {until}: it was not deployed then, or "
        "Cost Explorer does not have the figures of the last day yet; try again a day later"
    )
