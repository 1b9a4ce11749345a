"""Jobs of environment ``minimal`` that are deployed to moto, and assemblies with others in their place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from millrace.config import Environment, Names
from millrace.lifecycle.account.deployed_environment import DeployedEnvironment

BUCKET = "assets"
CHECKPOINTS = "s3://hello-minimal-checkpoints-123456789012-us-east-1"


def template(workers: int, url: str) -> dict[str, Any]:
    return {
        "Resources": {"Topic": {"Type": "AWS::SNS::Topic", "Properties": {"DisplayName": f"{workers}"}}},
        "Outputs": {"LaunchDocument": {"Value": url}},
    }


def writing(
    job: str,
    *,
    query: str = "land",
    table: str = "db.t",
    checkpoints: str = "",
    partitions: Any = None,
    source: dict[str, Any] | None = None,
    sink: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the launch document of a job that lands a topic in a table, or, with a sink, reads it directly."""
    read = {"kind": "kafka", "name": "s", "topic": "t", "connection": "c", "start": "earliest"}
    route = {"source": {**read, "reading": {"partitions": partitions}, **(source or {})}}
    end: dict[str, Any] = {"routes": [route], "table": table}
    if sink is not None:
        end = {"routes": [{**route, "sink": sink}]}
    settings = {
        "checkpoints": f"{CHECKPOINTS}/{checkpoints or job}",
        "queries": [{"kind": "land", "name": query, **end}],
    }
    return {"version": 1, "settings": settings}


def stand(aws: DeployedEnvironment, **jobs: dict[str, Any]) -> None:
    """Deploy jobs with launch documents, with the tags that their resources have."""
    s3 = aws.client("s3")
    for bucket in (BUCKET, aws.names.bucket("checkpoints")):
        s3.create_bucket(Bucket=bucket)
    environment = aws.names.environment
    for job, content in jobs.items():
        s3.put_object(Bucket=BUCKET, Key=f"old-{job}.json", Body=json.dumps(content))
        body = tagged(template(1, f"s3://{BUCKET}/old-{job}.json"), environment.project, environment.name)
        aws.client("cloudformation").create_stack(
            StackName=aws.names.stack(f"job-{job}"), TemplateBody=json.dumps(body)
        )


def tagged(body: dict[str, Any], project: str, environment: str) -> dict[str, Any]:
    """Return a template whose resources have the tags of an environment."""
    tags = {"millrace:project": project, "millrace:environment": environment}
    for resource in body["Resources"].values():
        resource["Properties"]["Tags"] = [{"Key": key, "Value": value} for key, value in tags.items()]
    return body


def new(folder: Path, **jobs: dict[str, Any]) -> Path:
    for job, content in jobs.items():
        (folder / f"hello-minimal-job-{job}.template.json").write_text(
            json.dumps(template(1, f"s3://{BUCKET}/new-{job}.json"))
        )
        (folder / f"asset.new-{job}.json").write_text(json.dumps(content))
    return folder


def begin(aws: DeployedEnvironment, *checkpoints: str) -> None:
    """Leave what Spark leaves of a batch, by job and query: ``clicks/land``."""
    for each in checkpoints:
        for log in ("offsets", "commits"):
            aws.client("s3").put_object(
                Bucket=aws.names.bucket("checkpoints"), Key=f"{each}/{log}/0", Body=b"v1\n{}\n{}"
            )


def with_jobs(aws: DeployedEnvironment, *names: str) -> DeployedEnvironment:
    """Return the account with an environment that has these jobs."""
    (job,) = aws.names.environment.jobs.values()
    environment: Environment = aws.names.environment.model_copy(update={"jobs": dict.fromkeys(names, job)})
    return DeployedEnvironment(Names(environment, aws.names.account), aws.client)
