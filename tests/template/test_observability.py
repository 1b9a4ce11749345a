"""Alarms, dashboards, the topic and the Prometheus workspace."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from millrace.config import load
from millrace.etl.launch.metric_names import BY_NAME, METRICS
from millrace.infra.cloudwatch_and_grafana_dashboards import (
    cloudwatch_dashboard_body,
    grafana_dashboard,
    split_into_dashboards,
)
from millrace.infra.dashboard_sections import dashboard_sections
from millrace.sizing.alarms.reported_metrics import metric_namespace
from tests.template.conftest import ROOT, Synthesis, Synthesise
from tests.template.test_security import listed


def alarms(found: Synthesis) -> dict[str, dict[str, Any]]:
    return {
        r["Properties"]["AlarmName"].removeprefix(f"{found.names.prefix}/"): r["Properties"]
        for r in found.resources("AWS::CloudWatch::Alarm", "observability").values()
    }


def test_alarms_are_the_plans(each: Synthesis) -> None:
    deployed = alarms(each)
    assert deployed.keys() == {alarm.name for alarm in each.plan.alarms}
    for alarm in each.plan.alarms:
        result = deployed[alarm.name]
        assert (result["Namespace"], result["MetricName"]) == (alarm.namespace, alarm.metric)
        assert {d["Name"]: d["Value"] for d in result["Dimensions"]} == alarm.dimensions
        assert (result["Threshold"], result["Period"], result["EvaluationPeriods"]) == (
            alarm.threshold,
            alarm.period,
            alarm.of,
        )
        assert result["TreatMissingData"] == alarm.missing
        assert result["ComparisonOperator"].startswith("GreaterThan" if alarm.above else "LessThan")


def test_thresholds_follow_the_plan_into_the_template(prod: Synthesis) -> None:
    deployed = alarms(prod)
    for job in prod.plan.jobs.values():
        for query in job.queries.values():
            name = f"job/{job.name}/{query.name}"
            trigger = query.trigger_seconds.value
            assert deployed[f"{name}/record-age"]["Threshold"] == query.latency_seconds.value
            assert deployed[f"{name}/batch-duration"]["Threshold"] == pytest.approx(1.2 * trigger, abs=1e-3)
            silent = deployed[f"{name}/no-batch"]
            assert silent["Period"] * silent["EvaluationPeriods"] >= 3 * trigger
            assert silent["TreatMissingData"] == "missing"


def test_records_with_none_of_their_fields_have_an_alarm(
    synthesise: Synthesise, dev: Synthesis, tmp_path: Path
) -> None:
    """Their rule is in the launch document, although the file has no rules."""
    root, environment = dev.environment.value_locations.root, dev.environment.model_copy()
    landing = environment.jobs["flights"].queries["land-flights"].stream_readings_by_place[()]
    assert not landing.rules_with_any_field_rule(root)
    (tmp_path / landing.schema_).parent.mkdir(parents=True)
    (tmp_path / landing.schema_).write_text("carrier STRING, `air time` INT")
    environment._places = replace(environment.value_locations, root=tmp_path)
    result = synthesise(environment)
    assert "job/flights/land-flights/broken-rules" in alarms(result).keys() - alarms(dev).keys()
    queries = result.documents["flights"]["settings"]["queries"]
    [query] = [each for each in queries if each["name"] == "land-flights"]
    [rule] = query["routes"][0]["rules"]
    assert (rule["name"], rule["action"]) == ("any_field", "warn")
    assert rule["where"] == rule["where_landed"] == "`carrier` IS NOT NULL OR `air time` IS NOT NULL"


def test_every_alarm_tells_the_topic(each: Synthesis) -> None:
    for path, alarm in each.resources("AWS::CloudWatch::Alarm").items():
        properties = alarm["Properties"]
        (action,) = properties["AlarmActions"]
        assert "Alerts" in json.dumps(action), path
        # A new alarm has no data. Who were told of missing data by ALARM would be called before a job's first start.
        silent = properties["TreatMissingData"] == "missing"
        assert properties.get("InsufficientDataActions") == ([action] if silent else None), path
        assert silent is properties.get("AlarmName", "").endswith("/no-batch"), path


def test_the_topic_is_encrypted_and_refuses_plain_http(each: Synthesis) -> None:
    topic = each.the("AWS::SNS::Topic", "lifecycle")
    assert topic["TopicName"] == f"{each.names.prefix}-alerts"
    assert "Fn::GetAtt" in topic["KmsMasterKeyId"]
    statements = each.the("AWS::SNS::TopicPolicy", "lifecycle")["PolicyDocument"]["Statement"]
    denied = [s for s in statements if s["Effect"] == "Deny"]
    assert {"Bool": {"aws:SecureTransport": "false"}} in [s["Condition"] for s in denied]


def test_addresses_are_subscribed(synthesise: Synthesise, dev: Synthesis) -> None:
    watched = dev.environment.observability.model_copy(update={"notify": ("oncall@example.com",)})
    result = synthesise(dev.environment.model_copy(update={"observability": watched}))
    subscription = result.the("AWS::SNS::Subscription", "observability")
    assert (subscription["Protocol"], subscription["Endpoint"]) == ("email", "oncall@example.com")


def test_channels_get_alarms_and_can_change_nothing(synthesise: Synthesise, dev: Synthesis) -> None:
    team, tenant = "11111111-2222-3333-4444-555555555555", "66666666-7777-8888-9999-000000000000"
    channels = ("slack:T0123ABCD/C0123ABCD", f"teams:{team}/{tenant}/19%3aabc%40thread.tacv2")
    role = f"arn:aws:iam::{dev.names.account}:role/alarms-in-chat"
    watched = dev.environment.observability.model_copy(update={"channels": channels, "channel_role": role})
    result = synthesise(dev.environment.model_copy(update={"observability": watched}))
    slack = result.the("AWS::Chatbot::SlackChannelConfiguration", "observability")
    teams = result.the("AWS::Chatbot::MicrosoftTeamsChannelConfiguration", "observability")
    assert (slack["SlackWorkspaceId"], slack["SlackChannelId"]) == ("T0123ABCD", "C0123ABCD")
    assert (teams["TeamId"], teams["TeamsTenantId"]) == (team, tenant)
    assert teams["TeamsChannelId"] == "19%3aabc%40thread.tacv2"
    for each in (slack, teams):
        assert "Alerts" in json.dumps(each["SnsTopicArns"])
        assert each["IamRoleArn"] == role
        assert "CloudWatchReadOnlyAccess" in json.dumps(each["GuardrailPolicies"])
    assert slack["ConfigurationName"] != teams["ConfigurationName"]


def test_the_core_is_told_the_name_that_alarms_watch(each: Synthesis) -> None:
    for job, document in each.documents.items():
        watched = {
            alarm.dimensions["job"]
            for alarm in each.plan.alarms
            if alarm.subject == f"job/{job}" and alarm.namespace == metric_namespace(document["name"])
        }
        assert watched == {document["name"]}


def test_alarms_beyond_one_stack_are_the_jobs_own(synthesise: Synthesise, dev: Synthesis) -> None:
    apart = dev.environment.observability.model_copy(update={"alarms": "by-job"})
    result = synthesise(dev.environment.model_copy(update={"observability": apart}))
    homes = {
        resource["Properties"]["AlarmName"].removeprefix(f"{result.names.prefix}/"): part.split("/")[0]
        for part, resource in result.resources("AWS::CloudWatch::Alarm").items()
        if "AlarmName" in resource["Properties"]  # those of the plan
    }
    assert homes == {
        alarm.name: alarm.subject.replace("job/", "job-") if alarm.watches_job else "observability"
        for alarm in result.plan.alarms
    }
    # Names are taken until the stack that had them has let go.
    for job in result.environment.jobs:
        assert (
            result.names.stack("observability")
            in result.manifest[result.names.stack(f"job-{job}")]["dependencies"]
        )


def test_a_row_of_a_chart_repeats_nothing_of_the_row_before(dev: Synthesis) -> None:
    """ "." stands for the value at the same place before ("Dashboard body structure and syntax", CloudWatch)."""
    rows = next(
        widget["properties"]["metrics"]
        for widget in body(dev)["widgets"]
        if widget["properties"].get("title", "").startswith("Age of records at commit: half")
    )
    assert rows[0][:3] == ["Millrace/flights-dev-departures", "RecordAge", "job"]
    assert rows[0][-1] == {"label": f"{rows[0][5]} p50", "stat": "p50"}
    same = [row for row in rows if row[:5] == ["."] * 5]
    assert rows[1:] == same
    assert {row[-1]["stat"] for row in rows} == {"p50", "p95", "p99"}


@pytest.mark.slow
def test_what_grows_with_topics_and_queries_is_as_long_as_aws_takes_it(synthesise: Synthesise) -> None:
    """A cluster's alarm names all its topics, a Glue job all its queries: 1,024 and 2,048 characters (botocore's models)."""
    environment = load("dev", root=ROOT)
    topic = environment.streams["flights"].model_copy(update={"existing": True, "partitions": 1})
    topics = {f"topic-with-a-name-of-thirty-{n:02}": topic for n in range(60)}
    (name,) = (name for name, job in environment.jobs.items() if job.engine == "glue")
    job = environment.jobs[name]
    ((first, query), *_) = job.queries.items()
    queries = {f"{first}-of-a-long-name-{n:02}-{'x' * 10}"[-40:]: query for n in range(60)}
    result = synthesise(
        environment.model_copy(
            update={
                "streams": {**environment.streams, **topics},
                "jobs": environment.jobs | {name: job.model_copy(update={"queries": queries})},
            }
        )
    )
    alarm = alarms(result)["cluster/main/offline-partitions"]["AlarmDescription"]
    assert "topic-with-a-name-of-thirty-01" in alarm
    assert len(alarm) <= 1024
    assert alarm.endswith("#offline-partitions)")
    assert len(result.the("AWS::Glue::Job", f"job-{name}")["Description"]) <= 2048
    # CloudFormation takes 1 MB; 450 alarms in one stack are allowed here.
    template = result.folder / f"{result.names.stack('observability')}.template.json"
    assert len(alarms(result)) == 379
    assert template.stat().st_size < 1_000_000 * 379 / 450


def test_no_dashboard_holds_more_than_cloudwatch_shows(each: Synthesis) -> None:
    shown = dashboard_sections(each.names, each.plan) * 40
    arns = tuple(f"arn:{n}" for n in range(250))
    parts = split_into_dashboards(shown, len(arns))
    assert len(parts) > 1
    assert tuple(section for part in parts for section in part) == shown
    for part in parts:
        widgets = cloudwatch_dashboard_body(part, "us-east-1", arns)["widgets"]
        metrics = [len(w["properties"]["metrics"]) for w in widgets if w["type"] == "metric"]
        assert sum(metrics) <= 2500
        assert max(metrics) <= 500
        assert len(widgets) <= 500
        alarms = [w["properties"]["alarms"] for w in widgets if w["type"] == "alarm"]
        assert [len(each) for each in alarms] == [100, 100, 50]
        assert [arn for each in alarms for arn in each] == list(arns)
        assert len({(w["x"], w["y"]) for w in widgets}) == len(widgets)


def body(found: Synthesis) -> dict[str, Any]:
    shown = dashboard_sections(found.names, found.plan)
    return cloudwatch_dashboard_body(shown, found.environment.region, ())


def test_the_dashboard_shows_every_job_stream_and_cluster(each: Synthesis) -> None:
    titles = [w["properties"]["markdown"] for w in body(each)["widgets"] if w["type"] == "text"]
    expected = [f"## Job {job}" for job in each.environment.jobs]
    expected += [f"## Stream {name}" for name, s in each.environment.streams.items() if s.kind == "kinesis"]
    expected += [f"## Kafka cluster {name}" for name in each.environment.kafka]
    assert titles == expected
    deployed = each.the("AWS::CloudWatch::Dashboard", "observability")["DashboardBody"]
    text = deployed if isinstance(deployed, str) else json.dumps(deployed)
    for query in (q for job in each.environment.jobs.values() for q in job.queries):
        assert query in text


def test_widgets_do_not_overlap(prod: Synthesis) -> None:
    taken: set[tuple[int, int]] = set()
    for widget in body(prod)["widgets"]:
        cells = {
            (x, y)
            for x in range(widget["x"], widget["x"] + widget["width"])
            for y in range(widget["y"], widget["y"] + widget["height"])
        }
        assert not cells & taken
        assert widget["x"] + widget["width"] <= 24
        taken |= cells


def board(found: Synthesis) -> dict[str, Any]:
    url = found.templates["observability"]["Outputs"]["GrafanaDashboard"]["Value"]
    return dict(json.loads((found.folder / f"asset.{url.rsplit('/', 1)[1]}").read_text()))


def test_the_grafana_dashboard_travels_as_a_file(prod: Synthesis) -> None:
    result = board(prod)
    shown = dashboard_sections(prod.names, prod.plan)
    assert result == grafana_dashboard(shown, title="flights-prod", uid="flights-prod", region="us-east-1")
    assert len({panel["id"] for panel in result["panels"]}) == len(result["panels"])
    assert [p["title"] for p in result["panels"] if p["type"] == "row"] == [s.title for s in shown]
    age = next(p for p in result["panels"] if p["title"] == "Age of records at commit")
    steps = [step["value"] for step in age["fieldConfig"]["defaults"]["thresholds"]["steps"]]
    latencies = {q.latency_seconds.value for q in prod.plan.jobs["departures"].queries.values()}
    assert steps == [None, *sorted(latencies)]


def test_dashboards_ask_for_metrics_that_are_reported(prod: Synthesis) -> None:
    asked = {
        (target["namespace"], target["metricName"], *sorted(target["dimensions"]))
        for panel in board(prod)["panels"]
        for target in panel.get("targets", ())
    }
    jobs = {metric_namespace(document["name"]) for document in prod.documents.values()}
    ours = {each for each in asked if each[0] in jobs}
    # No query of prod has latest_by.
    assert {name for _, name, *_ in ours} == set(BY_NAME) - {"UnorderedKeys"}, "every metric of ours is shown"
    for _, name, *dimensions in ours:
        assert dimensions == (["job", "query"] if BY_NAME[name].is_per_query else ["job"])


def test_a_topics_traffic_is_the_sum_of_what_its_brokers_report(dev: Synthesis) -> None:
    """The metrics of a provisioned cluster's topics have the dimensions Cluster Name, Broker ID and Topic, no fewer."""
    (shown,) = (
        widget["properties"]["metrics"]
        for widget in body(dev)["widgets"]
        if widget["type"] == "metric" and widget["properties"]["title"] == "Bytes in, a second"
    )
    wanted = (
        """SUM(SEARCH('{AWS/Kafka,"Cluster Name",Topic,"Broker ID"} MetricName="BytesInPerSec" """
        """"Cluster Name"="flights-dev-main" Topic="flights"', 'Average', 60))"""
    )
    assert shown == [[{"expression": wanted, "label": "flights"}]]
    (panel,) = (p for p in board(dev)["panels"] if p["title"] == "Bytes in, a second")
    assert [(t["metricEditorMode"], t["expression"]) for t in panel["targets"]] == [(1, wanted)]


def test_the_document_lists_the_metrics() -> None:
    text = (ROOT / "docs" / "metrics.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| ([\w/]+) \| (job, query|job) \|", text, re.MULTILINE)
    assert rows == [(m.name, m.unit, "job, query" if m.is_per_query else "job") for m in METRICS]
    assert f"`{metric_namespace('flights-prod-departures')}`" in text


def test_standard_output_goes_where_cloudwatch_reads_metrics_out_of_it(each: Synthesis) -> None:
    """Without it every alarm of ours is blind; and each role must be allowed to write there."""
    for name, job in each.environment.jobs.items():
        group = f"/{each.names.prefix}/jobs/{name}"
        part = f"job-{name}"
        if job.engine == "glue":
            arguments = each.the("AWS::Glue::Job", part)["NonOverridableArguments"]
            assert arguments["--custom-logGroup-prefix"] == group
        else:
            monitoring = each.the("AWS::EMRServerless::Application", part)["MonitoringConfiguration"]
            logging = monitoring["CloudWatchLoggingConfiguration"]
            assert logging["Enabled"] is True
            assert "LogTypeMap" not in logging, "by itself it takes the driver's standard output"
            logs = each.resources("AWS::Logs::LogGroup", part)
            assert group in [result["Properties"]["LogGroupName"] for result in logs.values()]
        if job.role is None:
            writing = [
                s for p, s in each.statements() if p == part and "logs:PutLogEvents" in listed(s["Action"])
            ]
            patterns = [r.split(":log-group:")[1] for s in writing for r in listed(s["Resource"])]
            named = [group, f"{group}:log-stream:driver"]
            if job.engine == "glue":
                named += [f"{group}/output", f"{group}/error:log-stream:run"]
                named += [
                    f"{group}-{each.names.job(name)}{rest}" for rest in ("", "/output", "-role/x/error")
                ]
            for allowed in named:
                assert any(fnmatchcase(allowed, pattern) for pattern in patterns), allowed
            # A job whose name begins with this one's has a group of its own.
            for foreign in (f"{group}-eu", f"{group}2", f"{group}-eu/output", f"{group}2:log-stream:driver"):
                assert not any(fnmatchcase(foreign, pattern) for pattern in patterns), foreign


def test_prometheus_is_written_by_emr_jobs_only(dev: Synthesis, prod: Synthesis) -> None:
    workspace = dev.the("AWS::APS::Workspace", "observability")
    assert workspace["WorkspaceConfiguration"] == {"RetentionPeriodInDays": 150}
    assert "LogsKey" in str(workspace["KmsKeyArn"])
    assert "LogGroupArn" in workspace["LoggingConfiguration"]
    monitoring = dev.the("AWS::EMRServerless::Application", "job-flights")["MonitoringConfiguration"]
    url = json.dumps(monitoring["PrometheusMonitoringConfiguration"]["RemoteWriteUrl"])
    assert "api/v1/remote_write" in url
    writers = {part for part, s in dev.statements() if "aps:RemoteWrite" in listed(s["Action"])}
    assert writers == {"job-flights"}
    assert prod.resources("AWS::APS::Workspace") == {}
    monitoring = prod.the("AWS::EMRServerless::Application", "job-flights")["MonitoringConfiguration"]
    assert "PrometheusMonitoringConfiguration" not in monitoring
