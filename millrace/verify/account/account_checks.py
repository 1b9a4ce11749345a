"""Checks that ask an account, with or without a deployment; each only reads."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any
from urllib.request import Request

from millrace.config.aws.history_server_image import PUBLIC_IMAGE, TAG
from millrace.config.aws.kafka_versions import STANDARD
from millrace.lifecycle.account.deployed_environment import ignoring_not_found_errors
from millrace.sizing.prices_and_limits import ELSEWHERE
from millrace.verify.account.check_input_and_answer import Check, CheckAnswer, ClaimContext, require

RESOURCE_TYPES = {
    "AWS::ECR::PullThroughCacheRule": ("EcrRepositoryPrefix", "UpstreamRegistry", "UpstreamRegistryUrl"),
    "AWS::EMRServerless::Application": (
        *("Architecture", "AutoStartConfiguration", "AutoStopConfiguration", "MaximumCapacity"),
        *("MonitoringConfiguration", "Name", "NetworkConfiguration", "ReleaseLabel", "Tags", "Type"),
    ),
    "AWS::LakeFormation::PrincipalPermissions": (
        *("Permissions", "PermissionsWithGrantOption", "Principal", "Resource"),
    ),
    "AWS::MSK::Topic": ("ClusterArn", "Configs", "PartitionCount", "ReplicationFactor", "TopicName"),
}
"""Newer resource types, with the properties that the templates set."""

TOPIC_REPLACED_BY = {"ClusterArn", "ReplicationFactor", "TopicName"}

_SHOWN = 6
"""Shown entries of a list; the others are counted."""


def shortened_list_text(names: Iterable[str]) -> str:
    """Return the first entries of a list in words, and the number of the others."""
    items = sorted(names)
    more = f" and {len(items) - _SHOWN} more" if len(items) > _SHOWN else ""
    return ", ".join(items[:_SHOWN]) + more


def answer_without_faults(faults: Iterable[str], right: str) -> CheckAnswer:
    """Return an answer that faults refute, with the first of them; without any, with what is right."""
    shown = shortened_list_text(faults)
    return CheckAnswer(not shown, shown or right)


def policy_error_codes(context: ClaimContext, policies: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the codes of IAM Access Analyzer's findings on identity policies: errors and security warnings.

    Source: IAM Access Analyzer API reference, "ValidatePolicy".
    """
    validate = partial(
        context.items_of_all_pages,
        *("accessanalyzer", "validate_policy", "findings"),
        policyType="IDENTITY_POLICY",
    )
    return {
        f"{finding['findingType']} {finding['issueCode']}"
        for policy in policies
        for finding in validate(policyDocument=json.dumps(policy))
        if finding["findingType"] in ("ERROR", "SECURITY_WARNING")
    }


def check_people_policies(context: ClaimContext) -> CheckAnswer:
    """Let IAM Access Analyzer validate the policies of deployers and operators."""
    require(context.policies, "the environment file names no account")
    wrong = policy_error_codes(context, context.policies.values())
    return answer_without_faults(wrong, f"{len(context.policies)} policies")


def check_price_products(context: ClaimContext) -> CheckAnswer:
    """Ask the Price List API for every product."""
    now = context.price_list_renewal
    stayed = (f"{name}: {why}" for name, why in now.stayed.items())
    return answer_without_faults(stayed, f"{now.renewed_count} prices")


def check_unconfirmed_prices(context: ClaimContext) -> CheckAnswer:
    """Compare prices that are marked unconfirmed with those of the Price List API."""
    require(context.region == ELSEWHERE, f"the figures are those of {ELSEWHERE}")
    before, now = context.required_prices_by_name, context.price_list_renewal
    answered = [
        name
        for name, price in before.items()
        if not price.confirmed and name not in now.stayed and name not in now.unknown
    ]
    require(answered, "the price list has no such price")
    other = [
        f"{name}: {before[name].usd:g} here, {now.table.prices[name].usd:g} there"
        for name in answered
        if not math.isclose(before[name].usd, now.table.prices[name].usd, rel_tol=1e-3)
    ]
    return answer_without_faults(other, f"{len(answered)} prices")


def check_msk_versions(context: ClaimContext) -> CheckAnswer:
    """Ask MSK for its versions of Kafka."""
    there = {
        each["Version"]: each["Status"]
        for each in context.items_of_all_pages("kafka", "list_kafka_versions", "KafkaVersions")
    }
    lacking = [version for version in STANDARD if there.get(version) != "ACTIVE"]
    return CheckAnswer(
        not lacking,
        f"not active: {shortened_list_text(lacking)}" if lacking else shortened_list_text(STANDARD),
    )


def check_endpoint_services(context: ClaimContext) -> CheckAnswer:
    """Ask EC2 for the region's endpoint services; a service's name ends with the region and its own name."""
    there = tuple(context.items_of_all_pages("ec2", "describe_vpc_endpoint_services", "ServiceNames"))
    lacking = [
        service
        for service in context.services
        if not any(name.endswith(f".{context.region}.{service}") for name in there)
    ]
    seen = f"not there: {shortened_list_text(lacking)}" if lacking else f"{len(context.services)} services"
    return CheckAnswer(not lacking, seen)


def _resource_schema(context: ClaimContext, kind: str) -> dict[str, Any] | None:
    cloudformation = context.client("cloudformation")
    with ignoring_not_found_errors("TypeNotFoundException"):
        answer = cloudformation.describe_type(Type="RESOURCE", TypeName=kind)
        return dict(json.loads(answer["Schema"]))
    return None


def check_resource_types(context: ClaimContext) -> CheckAnswer:
    """Ask CloudFormation for the newer resource types and their properties."""
    wrong = []
    for kind, properties in RESOURCE_TYPES.items():
        if (schema := _resource_schema(context, kind)) is None:
            wrong.append(f"{kind} is not there")
        else:
            wrong += [f"{kind} has no {each}" for each in properties if each not in schema["properties"]]
    return answer_without_faults(wrong, f"{len(RESOURCE_TYPES)} types")


def check_replacing_topic_properties(context: ClaimContext) -> CheckAnswer:
    """Ask CloudFormation for the properties of a topic whose change replaces it."""
    schema = _resource_schema(context, "AWS::MSK::Topic")
    require(schema, "AWS::MSK::Topic is not there")
    replacing = {path.rsplit("/", 1)[-1] for path in (schema or {}).get("createOnlyProperties", ())}
    return CheckAnswer(replacing == TOPIC_REPLACED_BY, f"made again by {shortened_list_text(replacing)}")


_IMAGE_INDEX = (
    "application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.list.v2+json"
)


def check_history_image_tag(context: ClaimContext) -> CheckAnswer:
    """Ask the public gallery for the image's manifest."""
    address = f"https://public.ecr.aws/token/?service=public.ecr.aws&scope=repository:{PUBLIC_IMAGE}:pull"
    with context.fetch(Request(address)) as answer:
        headers = {"Authorization": f"Bearer {json.loads(answer.read())['token']}", "Accept": _IMAGE_INDEX}
    with context.fetch(
        Request(f"https://public.ecr.aws/v2/{PUBLIC_IMAGE}/manifests/{TAG}", headers=headers)
    ) as answer:
        tags = json.loads(answer.read())
    kinds = {"manifests", "layers"} & tags.keys()
    return CheckAnswer(bool(kinds), f"answers with {shortened_list_text(kinds)}" if kinds else "no manifest")


ALL: tuple[Check, ...] = (
    *(check_people_policies, check_price_products, check_unconfirmed_prices, check_msk_versions),
    *(
        check_endpoint_services,
        check_resource_types,
        check_replacing_topic_properties,
        check_history_image_tag,
    ),
)
