"""A simulated account that answers the commands and records each call with IAM action, resource and condition keys."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError
from botocore.validate import ParamValidator

from millrace.config import Names
from millrace.config.aws.iam_statements import Grant

MACHINE = "LifecycleA1B2-x"
TAGS = ("aws:ResourceTag/millrace:project", "aws:ResourceTag/millrace:environment")
_SERVICES = {"monitoring": "cloudwatch"}
_NONE = ClientError({"Error": {"Code": "NoSuchResourceException", "Message": ""}}, "GetServiceQuota")
_PREFLIGHT: dict[str, Any] = {
    "GetServiceQuota": _NONE,
    "GetAWSDefaultServiceQuota": {"Quota": {"Value": 1e6}},
    "DescribeLimits": {"OpenShardCount": 9, "ShardLimit": 10_000},
    "DescribeStreamSummary": {"StreamDescriptionSummary": {"OpenShardCount": 4}},
    "DescribeAlarms": {"MetricAlarms": []},
    "DescribeAvailabilityZones": {
        "AvailabilityZones": [{"ZoneId": f"use1-az{n}", "State": "available"} for n in (1, 2, 4)]
    },
    "ListKafkaVersions": {"KafkaVersions": [{"Version": "3.9.x.kraft", "Status": "ACTIVE"}]},
    "HeadBucket": {},
    "GetBucketEncryption": {"ServerSideEncryptionConfiguration": {"Rules": []}},
    "GetAccountSummary": {"SummaryMap": {"Roles": 1, "RolesQuota": 1000}},
    "ValidateStateMachineDefinition": {"result": "OK", "diagnostics": []},
    "ValidatePolicy": {"findings": []},
}
"""Answers for ``millrace preflight``: all is in order."""

_ACTIONS = {
    "s3:HeadObject": ("s3:GetObject",),
    "s3:HeadBucket": ("s3:ListBucket",),
    "s3:GetBucketEncryption": ("s3:GetEncryptionConfiguration",),
    "s3:ListObjectsV2": ("s3:ListBucket",),
    "s3:CopyObject": ("s3:GetObject", "s3:PutObject"),
}


@dataclass(frozen=True)
class Asked:
    """One thing that IAM is asked for."""

    action: str
    resource: str
    context: tuple[tuple[str, str], ...] = ()

    def allowed(self, grant: Grant) -> bool:
        """Whether a statement is about it; of its conditions, those that the context has keys for must hold."""
        given = dict(self.context)
        for operator, keys in grant.conditions.items():
            assert operator in ("StringEquals", "StringLike"), operator
            for key, wanted in keys.items():
                patterns = [wanted] if isinstance(wanted, str) else wanted
                if not any(fnmatchcase(given.get(key, "\0"), pattern) for pattern in patterns):
                    return False
        return self.action in grant.actions and any(fnmatchcase(self.resource, r) for r in grant.resources)


@dataclass
class Account:
    """Answers from an assembly, as if all of it were deployed in an earlier version."""

    names: Names
    assembly: Path
    asked: set[Asked] = field(default_factory=set)
    objects: dict[tuple[str, str], bytes] = field(default_factory=dict)
    states: list[str] = field(default_factory=lambda: ["STARTED"])
    lines: list[dict[str, Any]] = field(default_factory=list)
    tables: dict[str, str] = field(default_factory=dict)
    """URL of the metadata file, by table."""

    versions: dict[str, list[str]] = field(default_factory=dict)

    def metadata_urls(self) -> dict[str, str]:
        """URLs of the metadata files among the objects, by table."""
        found = {}
        for bucket, key in self.objects:
            if key.endswith(".metadata.json"):
                database, table = key.split("/")[1:3]
                found[f"{database.removesuffix('.db')}.{table}"] = f"s3://{bucket}/{key}"
        return found

    @property
    def tags(self) -> tuple[tuple[str, str], ...]:
        environment = self.names.environment
        return ((TAGS[0], environment.project), (TAGS[1], environment.name))

    def call(self, client: Any, operation: str, params: dict[str, Any]) -> dict[str, Any]:
        """Take the place of botocore's own method."""
        shape = client.meta.service_model.operation_model(operation).input_shape
        if shape is not None:
            # botocore takes it apart itself before it validates.
            checked = {**params, "CopySource": "x"} if "CopySource" in params else params
            errors = ParamValidator().validate(checked, shape)
            assert not errors.has_errors(), errors.generate_report()
        name = client.meta.service_model.signing_name
        service = _SERVICES.get(name, name)
        self.asked |= set(self._as_iam(service, operation, params))
        if operation in _PREFLIGHT:
            if isinstance(answer := _PREFLIGHT[operation], ClientError):
                raise answer
            return answer
        return dict(getattr(self, f"_{service.replace('-', '_')}")(operation, params))

    # ---- what IAM is asked ----

    def _as_iam(self, service: str, operation: str, params: dict[str, Any]) -> Iterator[Asked]:
        if (service, operation) == ("sts", "GetCallerIdentity"):
            return  # needs no permission (API reference)
        action = f"{service}:{operation}"
        if service == "s3":
            yield from self._of_s3(action, params)
        elif service == "glue" and "Name" in params:
            database = params["DatabaseName"]
            for resource in ("catalog", f"database/{database}", f"table/{database}/{params['Name']}"):
                yield Asked(action, self._arn("glue", resource))
        elif service == "states" and operation != "ValidateStateMachineDefinition":
            arn = params.get("stateMachineArn") or params["executionArn"]
            yield Asked(action, arn, self.tags)
            yield from (self._key("states", verb) for verb in ("Decrypt", "GenerateDataKey"))
        elif service == "emr-serverless":
            resource = f"/applications/{params['applicationId']}"
            resource += f"/jobruns/{params['jobRunId']}" if "jobRunId" in params else ""
            yield Asked(
                action, self._arn("emr-serverless", resource), () if "jobRunId" in params else self.tags
            )
        else:
            yield Asked(action, self._resource(service, operation, params))
            if operation == "GetRecords":
                yield self._key("kinesis", "Decrypt")

    def _of_s3(self, action: str, params: dict[str, Any]) -> Iterator[Asked]:
        bucket = f"arn:{self.names.aws_partition}:s3:::{params['Bucket']}"
        for each in _ACTIONS.get(action, (action,)):
            if "Key" not in params:
                yield Asked(each, bucket, (("s3:prefix", params["Prefix"]),) if "Prefix" in params else ())
                continue
            yield Asked(each, f"{bucket}/{params['Key']}")
            if "-assets-" in bucket or each == "s3:DeleteObject":
                continue  # the bootstrap's bucket has no key of ours
            yield self._key("s3", "GenerateDataKey" if each == "s3:PutObject" else "Decrypt")

    def _key(self, service: str, verb: str) -> Asked:
        via = ("kms:ViaService", f"{service}.{self.names.environment.region}.amazonaws.com")
        return Asked(f"kms:{verb}", self._arn("kms", "key/1234"), (*self.tags, via))

    def _resource(self, service: str, operation: str, params: dict[str, Any]) -> str:
        if service == "ce" and "TimePeriod" in params:
            return f"arn:{self.names.aws_partition}:billing::{self.names.account}:billingview/primary"
        if service == "cloudformation" and "StackName" in params:
            return self._arn(service, f"stack/{params['StackName']}/id")
        if service == "ssm":
            return self._arn(service, f"parameter{params['Name']}")
        if service == "glue":
            return self._arn(service, f"job/{params['JobName']}")
        if service == "servicequotas":
            code = f"{params['ServiceCode']}/{params['QuotaCode']}"
            return self._arn(service, code) if operation == "GetServiceQuota" else "*"
        if operation == "DescribeAlarms":
            return self._arn(service, "alarm:all")
        if service == "kinesis" and operation != "DescribeLimits":
            stream = params.get("StreamName") or params["ShardIterator"]
            return self._arn(service, f"stream/{stream}")
        if service == "logs" and "logGroupName" in params:
            stream = params.get("logStreamName")
            ending = f":log-stream:{stream}" if stream else ""
            return self._arn(service, f"log-group:{params['logGroupName']}{ending}")
        return "*"

    def _arn(self, service: str, resource: str) -> str:
        names = self.names
        return f"arn:{names.aws_partition}:{service}:{names.environment.region}:{names.account}:{resource}"

    # ---- answers ----

    def _sts(self, *_: Any) -> dict[str, Any]:
        return {"Account": self.names.account}

    def _ssm(self, operation: str, params: dict[str, Any]) -> dict[str, Any]:
        if operation == "GetParameterHistory":
            told = [{"Value": each} for each in self.versions[params["Name"]]]
            return {"Parameters": told}
        return {"Parameter": {"Value": "28"}}

    def old_url(self, stack: str) -> str:
        url: str = self._template(stack)["Outputs"]["LaunchDocument"]["Value"]
        return f"{url.rsplit('/', 1)[0]}/old.json"

    def _template(self, stack: str) -> dict[str, Any]:
        return dict(json.loads((self.assembly / f"{stack}.template.json").read_text()))

    def deploy(self, stack: str) -> None:
        """Lay the launch documents of a job's stack where its files are, the one of before and the new one."""
        url = self._template(stack)["Outputs"]["LaunchDocument"]["Value"]
        body = (self.assembly / f"asset.{url.rsplit('/', 1)[1]}").read_bytes()
        for each, text in ((url, body), (self.old_url(stack), body)):
            bucket, key = each.removeprefix("s3://").split("/", 1)
            self.objects[bucket, key] = text

    def _cloudformation(self, operation: str, params: dict[str, Any]) -> dict[str, Any]:
        if operation == "ListStacks":
            stacks = [f.name.removesuffix(".template.json") for f in self.assembly.glob("*.template.json")]
            return {"StackSummaries": [{"StackName": s, "StackStatus": "CREATE_COMPLETE"} for s in stacks]}
        stack = params["StackName"]
        template = self._template(stack)
        if operation == "GetTemplate":
            for resource in template["Resources"].values():
                if resource["Type"] == "AWS::EMRServerless::Application":
                    resource["Properties"]["Architecture"] = "OLD"  # so that it is stopped for the change
            return {"TemplateBody": template}
        result = {"StackStatus": "CREATE_COMPLETE", "Outputs": []}
        if "-job-" in stack:
            values = {
                "LaunchDocument": self.old_url(stack),
                "StateMachineArn": self._arn("states", f"stateMachine:{MACHINE}-{stack}"),
            }
            if "ApplicationId" in template["Outputs"]:
                values["ApplicationId"] = "00f1"
            result["Outputs"] = [{"OutputKey": k, "OutputValue": v} for k, v in values.items()]
        return {"Stacks": [result]}

    def _states(self, operation: str, params: dict[str, Any]) -> dict[str, Any]:
        if operation == "StartExecution":
            return {"executionArn": params["stateMachineArn"].replace("stateMachine:", "execution:") + ":1"}
        if operation == "GetExecutionHistory":
            return {"events": []}
        if operation == "DescribeExecution":
            answer = {"outcome": "status", "message": "", "desired_state": "running", "run": "r1"}
            return {"status": "SUCCEEDED", "output": json.dumps(answer)}
        raise AssertionError(operation)

    def _glue(self, operation: str, params: dict[str, Any]) -> dict[str, Any]:
        if operation == "GetJobRun":
            return {"JobRun": {"JobRunState": "SUCCEEDED"}}
        location = self.tables.get(f"{params['DatabaseName']}.{params['Name']}")
        if location is not None:
            return {"Table": {"Name": params["Name"], "Parameters": {"metadata_location": location}}}
        raise ClientError(
            {"Error": {"Code": "EntityNotFoundException", "Message": params["Name"]}}, operation
        )

    def _emr_serverless(self, operation: str, _: Any) -> dict[str, Any]:
        if operation == "GetApplication":
            return {"application": {"state": self.states[-1]}}
        if operation == "StopApplication":
            self.states.append("STOPPED")
        return {"jobRun": {"state": "SUCCESS"}}

    def _cloudwatch(self, operation: str, params: dict[str, Any]) -> dict[str, Any]:
        now = datetime.now(UTC)
        result = [{"Id": q["Id"], "Values": [1.0], "Timestamps": [now]} for q in params["MetricDataQueries"]]
        return {"MetricDataResults": result}

    def _logs(self, operation: str, params: dict[str, Any]) -> dict[str, Any]:
        if operation == "DescribeLogGroups":
            return {"logGroups": [{"logGroupName": params["logGroupNamePrefix"]}]}
        for event in ("replayed", "backfilled"):
            if f'"{event}"' in params.get("filterPattern", ""):
                return {"events": list(self._told(event))}
        return {"events": self.lines}

    def _told(self, event: str) -> Iterator[dict[str, Any]]:
        """What a run says at its end, of whichever query was asked for: the command would wait for it."""
        for job in self.names.environment.jobs.values():
            for query in job.queries:
                said = {"message": json.dumps({"event": event, "query": query}), "logStreamName": "driver"}
                yield said | {"timestamp": int(datetime.now(UTC).timestamp() * 1000), "eventId": query}

    def _kinesis(self, operation: str, params: dict[str, Any]) -> dict[str, Any]:
        if operation == "ListShards":
            return {
                "Shards": [{"ShardId": "shardId-0", "SequenceNumberRange": {"StartingSequenceNumber": "0"}}]
            }
        if operation == "GetShardIterator":
            return {"ShardIterator": params["StreamName"]}
        return {"Records": [], "MillisBehindLatest": 0}

    def _kafka(self, operation: str, params: dict[str, Any]) -> dict[str, Any]:
        if operation == "ListClustersV2":
            name = params["ClusterNameFilter"]
            arn = self._arn("kafka", f"cluster/{name}/1234")
            return {"ClusterInfoList": [{"ClusterArn": arn, "ClusterName": name}]}
        return {"BootstrapBrokerStringSaslIam": "b-1:9098"}

    def _ce(self, *_: Any) -> dict[str, Any]:
        return {"ResultsByTime": [], "CostAllocationTags": []}

    def _s3(self, operation: str, params: dict[str, Any]) -> dict[str, Any]:
        now, bucket = datetime.now(UTC), params["Bucket"]
        if operation == "ListObjectsV2":
            keys = [k for b, k in self.objects if b == bucket and k.startswith(params["Prefix"])]
            return {"Contents": [{"Key": key, "LastModified": now, "Size": 1} for key in keys]}
        place = (bucket, params["Key"])
        if operation == "PutObject":
            self.objects[place] = params["Body"]
        elif operation == "CopyObject":
            source = (bucket, params["CopySource"]["Key"])
            if source not in self.objects:
                raise ClientError({"Error": {"Code": "NoSuchKey", "Message": source[1]}}, operation)
            self.objects[place] = self.objects[source]
        elif operation == "DeleteObject":
            self.objects.pop(place, None)
        elif place not in self.objects:
            raise ClientError({"Error": {"Code": "NoSuchKey", "Message": params["Key"]}}, operation)
        result: dict[str, Any] = {"ETag": '"1"', "LastModified": now}
        if operation in ("GetObject", "HeadObject"):
            result |= {"Body": io.BytesIO(self.objects[place]), "ContentLength": len(self.objects[place])}
            date = now.strftime("%a, %d %b %Y %H:%M:%S GMT")
            result["ResponseMetadata"] = {"HTTPHeaders": {"date": date}}
        return result
