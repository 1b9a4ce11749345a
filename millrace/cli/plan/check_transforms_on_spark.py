"""Check of an environment's transforms by Spark, on empty tables: the text of a transform does not show its columns."""

from __future__ import annotations

from importlib.util import find_spec
from subprocess import TimeoutExpired

from millrace.cli.shared.console import open_progress_display
from millrace.config import ConfigurationError, Environment, Finding, Names
from millrace.etl.launch import typed_json
from millrace.infra.launch.launch_settings import job_settings
from millrace.sizing import Plan

_UNCHECKED = "the columns of transforms were not checked"


def check_transforms_and_list_unchecked(environment: Environment, sized: Plan) -> list[str]:
    """Plan each transform with the columns that it will get: finds unknown columns, and a lack of those that it must keep.

    Returns
    -------
    list of str
        What was not checked, and why.

    Raises
    ------
    ConfigurationError
        Spark refuses some; each mistake once, however many queries have it.
    """
    transforms = {
        (job, name): {
            end.transform: (*place, "transform")
            for place, end in query.sinks_by_place.items()
            if end.transform
        }
        for job, name, query in environment.queries
    }
    if not any(transforms.values()):
        return []
    if find_spec("pyspark") is None:
        return [f"{_UNCHECKED}: PySpark is not installed"]
    from millrace.etl.queries.transform import INPUT_COLUMNS
    from millrace.sandbox.programs.child_processes import SandboxError
    from millrace.sandbox.rehearse_job_table_changes import rehearse_starts

    names = Names(environment, environment.account or "0" * 12)
    settings = [
        typed_json.to_json_value(job_settings(environment, each, names)) for each in sized.jobs.values()
    ]
    for route in (
        route for each in settings for query in each["queries"] for route in query.get("routes", ())
    ):
        if route["format"].get("avro"):
            route["format"] |= {"avro": None}
        if route["format"].get("registry"):
            # No server is asked; the schemas of writers do not change the columns.
            route["format"] |= {"framing": "none", "registry": None, "subject": None}
    try:
        with open_progress_display("planning transforms on Spark", lines_in_pipe=False):
            rehearsal = rehearse_starts(environment, settings, None)
    except (SandboxError, TimeoutExpired) as error:
        reason = str(error).splitlines()[-1].rpartition("Error: ")[2]
        return [f"{_UNCHECKED}: {reason}"]
    findings: dict[str, Finding] = {}
    unchecked = list(rehearsal.unchecked)
    for each in rehearsal.refused:
        if each.planned_on:
            own_line = environment.jobs[each.job].spark_line.name
            unchecked.append(
                f"jobs.{each.job}.queries.{each.query} was not checked on its Spark {own_line}, which is not installed; "
                f"{each.planned_on} refuses it: {each.why}"
            )
            continue
        # The columns of its input differ by query.
        why = each.why.partition(INPUT_COLUMNS)[0]
        own = transforms[each.job, each.query]
        value = next((name for name in own if f"transform {name}" in why), each.query)
        path = ("jobs", each.job, "queries", each.query, *own.get(value, ()))
        findings.setdefault(why, Finding(path, value, f"what Spark can plan; {each.why}"))
    if findings:
        raise ConfigurationError(map(environment.value_locations.problem_of_finding, findings.values()))
    return unchecked
