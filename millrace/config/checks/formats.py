"""Checks of payload formats: the schema file exists and has the right type; each format checks its content itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path as FilePath

from millrace.config.document.explain_validation_errors import did_you_mean_text
from millrace.config.document.problems import Finding, Path
from millrace.config.document.yaml_tree import is_file
from millrace.config.formats import KINDS
from millrace.config.formats.base import FormatUse
from millrace.config.model import Environment
from millrace.config.queries import DirectQuery, DirectRoute, Payload


def check_format(path: Path, query: Payload, root: FilePath) -> Iterator[Finding]:
    """Check a query's schema file and its format.

    Yields
    ------
    Finding
        Nothing if the job can start with them.
    """
    payload_format, pipelines = query.format, (root / "pipelines").resolve()
    use = FormatUse(path, query, (root / query.schema_).resolve(), root)
    if use.schema.suffix != payload_format.suffix or not use.schema.is_relative_to(pipelines):
        of = f" for format {payload_format.kind}"
        if "format" not in query.model_fields_set:
            others = [
                kind
                for kind, each in KINDS.items()
                if each.suffix == use.schema.suffix != payload_format.suffix
            ]
            of = f"; with format {others[0]}: {use.schema.suffix}" if others else ""
        a = "an" if payload_format.suffix == ".avsc" else "a"
        yield use.wrong_schema_finding(
            f"{a} {payload_format.suffix} file below pipelines/, which travels with the job{of}"
        )
    elif not is_file(use.schema):
        known = [
            str(each.relative_to(root.resolve()))
            for each in sorted(pipelines.rglob(f"*{payload_format.suffix}"))
        ]
        yield Finding(
            (*path, "schema"), query.schema_, "a file that exists", did_you_mean_text(query.schema_, known)
        )
    else:
        yield from payload_format.check_schema(use)
    yield from payload_format.check(use)
    if payload_format.deletes and isinstance(query, DirectQuery | DirectRoute):
        yield Finding(
            (*path, "format", "kind"),
            payload_format.kind,
            "a format of rows, or a land query and a derive query with latest_by: a change may delete, and rows of this query are "
            "known by their place in the topic",
        )


def advice_on_schemas(environment: Environment, root: FilePath) -> Iterator[str]:
    """Yield what is valid in the schemas of an environment and yet lets records pass that nobody means."""
    for job, each in environment.jobs.items():
        for name, query in each.queries.items():
            for payload in query.stream_readings_by_place.values():
                fields = payload.format.fields(root / payload.schema_) or ()
                for advice in payload.format.schema_advice(fields):
                    yield f"jobs.{job}.queries.{name}: {payload.schema_}: {advice}"
