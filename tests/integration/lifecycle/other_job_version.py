"""Another version of a deployed job, and a deployment by CloudFormation alone."""

from __future__ import annotations

import json
import time
from pathlib import Path

from millrace.lifecycle.account.deployed_environment import split_s3_url
from millrace.lifecycle.upgrade_or_rollback_job import JobVersion
from tests.integration.lifecycle.deployed_shop import Shop


def another_version(shop: Shop, job: str, deployed: JobVersion) -> JobVersion:
    """Publish a launch document with another trigger; the version that names it."""
    s3 = shop.stack.client("s3")
    document = deployed.read_launch_document(s3)
    document["settings"]["queries"][0]["trigger_seconds"] += 1
    bucket, key = split_s3_url(deployed.document_url)
    name = key.rpartition("/")[2]
    other = f"{'f' * 64}.json"
    s3.put_object(Bucket=bucket, Key=key.replace(name, other), Body=json.dumps(document).encode())
    template = json.loads(json.dumps(deployed.template).replace(name, other))
    return JobVersion(job, deployed.at, deployed.document_url.replace(name, other), template)


def update_stack(shop: Shop, assembly: Path, stack: str) -> None:
    """Deploy one stack of an assembly."""
    cloudformation = shop.stack.client("cloudformation")
    body = (assembly / f"{stack}.template.json").read_text()
    cloudformation.update_stack(StackName=stack, TemplateBody=body, Capabilities=["CAPABILITY_NAMED_IAM"])
    cloudformation.get_waiter("stack_update_complete").wait(
        StackName=stack, WaiterConfig={"Delay": 1, "MaxAttempts": 120}
    )


def tell_failure(shop: Shop, job: str) -> None:
    """Write the line of a query that failed into the job's log group."""
    logs = shop.stack.client("logs")
    group, stream = f"/{shop.names.prefix}/jobs/{job}", f"run-{time.time_ns()}"
    if not logs.describe_log_groups(logGroupNamePrefix=group)["logGroups"]:
        logs.create_log_group(logGroupName=group)
    logs.create_log_stream(logGroupName=group, logStreamName=stream)
    line = {"event": "failed", "job": job, "query": f"land-{job}", "error": "the new version cannot"}
    event = {"timestamp": round(time.time() * 1000) + 1000, "message": json.dumps(line)}
    logs.put_log_events(logGroupName=group, logStreamName=stream, logEvents=[event])
