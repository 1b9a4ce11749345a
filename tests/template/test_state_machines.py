"""Templates of the state machines, their roles and their triggers."""

from __future__ import annotations

import json
from typing import Any

from millrace.config.model import EmrJob, GlueJob
from tests.template.conftest import Synthesis


def definition(found: Synthesis, job: str) -> dict[str, Any]:
    text = found.the("AWS::StepFunctions::StateMachine", f"job-{job}")["DefinitionString"]
    if isinstance(text, dict):
        parts = text["Fn::Join"][1]
        text = "".join(part if isinstance(part, str) else "RESOLVED" for part in parts)
    return dict(json.loads(text))


def test_every_state_is_reached_and_leads_somewhere(each: Synthesis) -> None:
    for job in each.environment.jobs:
        machine = definition(each, job)
        states = machine["States"]
        reached, waiting = set(), [machine["StartAt"]]
        while waiting:
            name = waiting.pop()
            if name in reached:
                continue
            reached.add(name)
            state = states[name]
            following = [state.get("Next"), state.get("Default")]
            following += [rule["Next"] for rule in (*state.get("Choices", ()), *state.get("Catch", ()))]
            assert state["Type"] in ("Succeed", "Fail") or any(following), name
            waiting += [step for step in following if step]
        assert reached == states.keys()


def test_every_call_is_tried_again_and_caught(each: Synthesis) -> None:
    for job in each.environment.jobs:
        for name, state in definition(each, job)["States"].items():
            if state["Type"] == "Task":
                assert state["Retry"], name
                assert state["Catch"][-1]["ErrorEquals"] == ["States.ALL"], name


def test_an_emr_run_is_what_the_launch_document_says(each: Synthesis) -> None:
    for job, section in each.environment.jobs.items():
        if not isinstance(section, EmrJob):
            continue
        call = definition(each, job)["States"]["StartRun"]["Arguments"]
        document = each.documents[job]
        # Twelve hours, where the time is left out; a run of its own of mode BATCH may not take forever: seven days are the most.
        assert call["Mode"] == "{% $verb = 'once' ? 'BATCH' : 'STREAMING' %}"
        assert call["ExecutionTimeoutMinutes"] == f"{{% $verb = 'once' ? {7 * 24 * 60} : 0 %}}"
        retries = f"{{'MaxFailedAttemptsPerHour': {document['retries_per_hour']}}}"
        assert call["RetryPolicy"] == f"{{% $verb = 'once' ? {{'MaxAttempts': 1}} : {retries} %}}"
        submit = call["JobDriver"]["SparkSubmit"]
        url = each.templates[f"job-{job}"]["Outputs"]["LaunchDocument"]["Value"]
        assert submit["EntryPoint"] == document["entry_script"]
        given = json.dumps([*document["arguments"], "--launch-document", url])
        assert submit["EntryPointArguments"].startswith(f"{{% $append({given}, $once.(")
        given = dict(
            setting.split("=", 1)
            for setting in submit["SparkSubmitParameters"].removeprefix("--conf ").split(" --conf ")
        )
        for group in call.get("ConfigurationOverrides", {}).get("ApplicationConfiguration", ()):
            given |= group["Properties"]
        assert given.pop("spark.submit.pyFiles") == document["archive"]
        jars = given.pop("spark.jars").split(",")
        assert jars == [*document["spark"]["spark.jars"].split(","), *document["jars"]]
        assert given == {key: value for key, value in document["spark"].items() if key != "spark.jars"}


def test_logs_and_metrics_of_a_run_are_the_applications(each: Synthesis) -> None:
    for job, section in each.environment.jobs.items():
        if not isinstance(section, EmrJob):
            continue
        call = definition(each, job)["States"]["StartRun"]["Arguments"]
        # One of the run's own would take the place of all of the application's, Prometheus with it.
        assert "MonitoringConfiguration" not in call.get("ConfigurationOverrides", {})
        monitoring = each.the("AWS::EMRServerless::Application", f"job-{job}")["MonitoringConfiguration"]
        assert monitoring["S3MonitoringConfiguration"]["LogUri"] == each.documents[job]["event_logs"]
        assert monitoring["CloudWatchLoggingConfiguration"]["Enabled"] is True
        assert (
            "PrometheusMonitoringConfiguration" in monitoring
        ) == each.environment.observability.prometheus


def test_machines_are_encrypted_logged_and_traced(each: Synthesis) -> None:
    for job in each.environment.jobs:
        machine = each.the("AWS::StepFunctions::StateMachine", f"job-{job}")
        assert machine["EncryptionConfiguration"]["Type"] == "CUSTOMER_MANAGED_KMS_KEY"
        assert machine["LoggingConfiguration"]["Level"] == "ALL"
        assert machine["TracingConfiguration"] == {"Enabled": True}


def test_only_emr_passes_a_role_and_only_the_jobs_own(each: Synthesis) -> None:
    passed = [
        (part, statement)
        for part, statement in each.statements()
        if part.startswith("job-") and "iam:PassRole" in statement["Action"]
    ]
    emr = {f"job-{job}" for job, section in each.environment.jobs.items() if isinstance(section, EmrJob)}
    assert {part for part, _ in passed} == emr
    for part, statement in passed:
        assert statement["Condition"] == {
            "StringEquals": {"iam:PassedToService": "emr-serverless.amazonaws.com"}
        }, part
        assert "*" not in json.dumps(statement["Resource"]), part


def test_every_end_of_a_run_reaches_the_machine(each: Synthesis) -> None:
    for job, section in each.environment.jobs.items():
        rules = [r["Properties"] for r in each.resources("AWS::Events::Rule", f"job-{job}").values()]
        (ended,) = (rule["EventPattern"] for rule in rules if "EventPattern" in rule)
        if isinstance(section, GlueJob):
            assert ended["detail"] == {
                "jobName": [each.names.job(job)],
                "state": ["SUCCEEDED", "FAILED", "TIMEOUT", "STOPPED"],
            }
        else:
            assert ended["detail"]["state"] == ["SUCCESS", "FAILED", "CANCELLED"]
            assert ended["detail"]["applicationId"] == [{"Fn::GetAtt": ["Application", "ApplicationId"]}]
        assert [rule["ScheduleExpression"] for rule in rules if "ScheduleExpression" in rule] == [
            "rate(15 minutes)"
        ]
        assert all(rule.get("State", "ENABLED") == "ENABLED" for rule in rules)


def test_the_limit_is_the_jobs_own(each: Synthesis) -> None:
    for job, section in each.environment.jobs.items():
        conditions = [c["Condition"] for c in definition(each, job)["States"]["Decide"]["Choices"]]
        assert f"{{% $verb = 'restart' and $recent >= {section.restarts_per_hour} %}}" in conditions


def test_a_stop_switches_exactly_the_alarms_that_silence_sets_off(each: Synthesis) -> None:
    deployed = each.resources("AWS::CloudWatch::Alarm", "observability").values()
    for job in each.environment.jobs:
        names = {each.names.job(job)}
        silent = {
            alarm["Properties"]["AlarmName"]
            for alarm in deployed
            if alarm["Properties"]["TreatMissingData"] == "missing"
            and names & {d["Value"] for d in alarm["Properties"]["Dimensions"]}
        }
        assert silent
        switches = {
            name: state
            for name, state in definition(each, job)["States"].items()
            if "AlarmActions" in str(state.get("Resource"))
        }
        assert {"SwitchOffAlarms", "SwitchOnAlarms", "KeepAlarmsOff", "KeepAlarmsOn"} <= switches.keys()
        for name, state in switches.items():
            assert set(state["Arguments"]["AlarmNames"]) == silent, name
        (allowed,) = (
            s for _, s in each.statements() if s.get("Sid") == "SwitchAlarms" and _names(s) & silent
        )
        assert _names(allowed) == silent
        assert "*" not in str(allowed["Resource"])


def _names(statement: dict[str, Any]) -> set[str]:
    resources = statement["Resource"]
    arns = resources if isinstance(resources, list) else [resources]
    return {arn.rpartition(":alarm:")[2] for arn in arns}


def test_a_grace_period_comes_from_the_jobs_own_batches(each: Synthesis) -> None:
    for job, section in each.environment.jobs.items():
        states = definition(each, job)["States"]
        assert ("Measure" in states) == isinstance(section, EmrJob)
        if isinstance(section, EmrJob):
            asked = states["Measure"]["Arguments"]["MetricDataQueries"]
            assert {q["MetricStat"]["Metric"]["MetricName"] for q in asked} == {"BatchDuration"}
            assert len(asked) == len(section.queries)
