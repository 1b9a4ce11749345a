"""Logs of endless jobs are rolled on the worker and expire in the bucket (docs/logs.md)."""

from __future__ import annotations

from millrace.config.model import GlueJob
from tests.template.conftest import Synthesis


def test_event_logs_are_rolled_by_glue_and_left_to_the_service_on_emr(each: Synthesis) -> None:
    for name, job in each.environment.jobs.items():
        settings = {k: v for k, v in each.documents[name]["spark"].items() if k.startswith("spark.eventLog.")}
        if isinstance(job, GlueJob):
            assert settings == {
                "spark.eventLog.rolling.enabled": "true",
                "spark.eventLog.rolling.maxFileSize": "64m",
            }
            arguments = each.the("AWS::Glue::Job", f"job-{name}")["NonOverridableArguments"]
            assert "spark.eventLog.rolling.enabled=true" in arguments["--conf"]
        else:
            assert settings == {}


def test_event_logs_expire_in_their_bucket_and_lines_in_their_groups(each: Synthesis) -> None:
    wanted = each.environment.storage.event_log_retention.days
    (bucket,) = (
        resource["Properties"]
        for resource in each.resources("AWS::S3::Bucket", "storage").values()
        if "event-logs" in str(resource["Properties"].get("BucketName"))
    )
    rules = bucket["LifecycleConfiguration"]["Rules"]
    assert wanted in [rule.get("ExpirationInDays") for rule in rules]
    for path, group in each.resources("AWS::Logs::LogGroup").items():
        assert group["Properties"]["RetentionInDays"] <= 90, path
