"""Checks of queries that keep state, and of transforms that need state."""

from __future__ import annotations

from collections.abc import Iterator

from millrace.config.checks.transforms import ProjectModules, check_transform, is_function_used_by_transform
from millrace.config.document.explain_validation_errors import did_you_mean_text
from millrace.config.document.problems import MISSING, Finding, Path
from millrace.config.queries import DeriveQuery, WritesSink

_SESSION = "session_window"


def check_state(path: Path, query: DeriveQuery, landing: list[str]) -> Iterator[Finding]:
    """Check that the keys of ``state`` are consistent.

    Parameters
    ----------
    landing
        Names of all landing tables.
    """
    state, here = query.state, (*path, "state")
    if state is None:
        return
    if query.latest_by:
        yield Finding(
            (*path, "latest_by"),
            ", ".join(query.latest_by.key),
            "nothing beside state, whose key says what identifies a result",
        )
    join = state.join
    if join is not None and (
        join.source not in landing or (join.source, join.route) == (query.source, query.route)
    ):
        others = [each for each in landing if each != query.source]
        yield Finding(
            (*here, "join", "source"),
            join.source,
            f"the table of another land query: {', '.join(others) or 'there is none'}",
            did_you_mean_text(join.source, others),
        )
    if query.transform is None and (state.key or join is not None or not state.distinct):
        yield Finding(
            (*path, "transform"),
            MISSING,
            "a function that computes the results: state without a function only supports distinct",
        )
    if "output_mode" in state.model_fields_set and not state.key:
        yield Finding(
            (*here, "output_mode"),
            state.output_mode,
            "nothing without state.key: each row is then a record, which is appended once",
        )


def check_transform_and_its_state(path: Path, end: WritesSink, modules: ProjectModules) -> Iterator[Finding]:
    """Check a transform, and that the query can run what it does to records.

    Parameters
    ----------
    end
        The query or route with the transform.
    """
    if end.transform is None:
        return
    state = end.state if isinstance(end, DeriveQuery) else None
    takes = 2 if state is not None and state.join is not None else 1
    yield from check_transform((*path, "transform"), end.transform, takes, modules)
    if not is_function_used_by_transform(end.transform, _SESSION, modules):
        return
    if not isinstance(end, DeriveQuery):
        yield Finding(
            (*path, "transform"),
            end.transform,
            f"a function without {_SESSION}: a session lasts over many batches; land the topic, then derive with state",
        )
    elif state is None:
        yield Finding(
            (*path, "state"), MISSING, f"a watermark and a key, as {end.transform} has a {_SESSION}"
        )
    elif not state.key:
        yield Finding(
            (*path, "state", "key"),
            MISSING,
            "columns that identify a session, such as a user and when the session began",
        )
    elif state.output_mode != "append":
        yield Finding(
            (*path, "state", "output_mode"),
            state.output_mode if "output_mode" in state.model_fields_set else MISSING,
            f"append: Spark writes the result of a {_SESSION} once, when the watermark has passed its end",
        )
