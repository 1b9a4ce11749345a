"""Derivation of a plan's numbers as a tree: formula, inputs, and the origin of each input."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, is_dataclass
from typing import Any

from millrace.config.document.explain_validation_errors import did_you_mean_text
from millrace.config.document.problems import ConfigurationError, Problem, dotted_path
from millrace.config.model import Environment
from millrace.sizing.plan_model import CostItem, Figure, FigureInput, Plan
from millrace.sizing.planning import total_cost

Number = Figure[Any] | CostItem


@dataclass(frozen=True)
class DerivationNode(FigureInput):
    """One step of a derivation, a number or an input of one, with its origin in words: file and line if the file gives it."""

    inputs: tuple[DerivationNode, ...] = ()


def derivation_of_number(environment: Environment, plan: Plan, key: str) -> DerivationNode:
    """Return the derivation of a number.

    Parameters
    ----------
    environment, plan
        An environment and its plan.
    key
        Key of one of the plan's numbers, such as ``jobs.flights.max_workers``.

    Raises
    ------
    ConfigurationError
        There is no such number; the message names the nearest keys.
    """
    numbers = _numbers_by_key(plan)
    if key not in numbers:
        known = tuple(numbers)
        last = key.split(".")[-1]
        like = [each for each in known if each.endswith(f".{last}")] or [
            each for each in known if each.startswith(key.rsplit(".", 1)[0])
        ]
        allowed = f"one of the plan's {len(known)} numbers, such as {', '.join(like[:5] or known[:5])}"
        raise ConfigurationError(
            [Problem("command line", 0, "--explain", key, allowed, did_you_mean_text(key, known))]
        )
    return _derivation_node(environment, numbers, key)


def _derivation_node(
    environment: Environment, numbers: Mapping[str, Number], figure: FigureInput | str
) -> DerivationNode:
    step = figure if isinstance(figure, FigureInput) else _number_as_input(figure, numbers[figure])
    inputs = tuple(_derivation_node(environment, numbers, each) for each in step.inputs)
    return DerivationNode(
        step.name, step.value, step.how, _origin_of_input(environment, step), step.path, inputs
    )


def _number_as_input(key: str, number: Number) -> FigureInput:
    if isinstance(number, CostItem):
        return FigureInput(key, f"${number.usd:,.2f}", number.why, inputs=number.inputs())
    unit = number.unit.removesuffix("s") if number.value == 1 and len(number.unit) > 1 else number.unit
    value = f"{number.value:,} {unit}" if isinstance(number.value, int) else f"{number.value} {unit}"
    if number.unit == "USD/month":
        value = f"${number.value:,.2f} a month"
    marks = ", rests on an assumption" if number.assumed else ""
    how = f"{number.formula}: {number.why}" if number.formula else number.why
    return FigureInput(key, value + marks, how, inputs=number.inputs())


def _origin_of_input(environment: Environment, step: FigureInput) -> str:
    if not step.path:
        return step.origin
    (file, line), tree = (
        environment.value_locations.file_and_line(step.path),
        environment.value_locations.tree,
    )
    place = f"{file}:{line}" if line else file
    if step.origin:
        return f"{step.origin} ({place})" if line else step.origin
    written = tree is not None and tree.at(step.path) is not None
    return f"{place} {dotted_path(step.path)}" if written else f"default of {dotted_path(step.path)}"


def _numbers_by_key(plan: Plan) -> dict[str, Number]:
    return {**_numbers_within_by_key(plan, ()), "total": total_cost(plan)}


def _numbers_within_by_key(value: Any, path: tuple[str, ...]) -> dict[str, Number]:
    if isinstance(value, Figure | CostItem):
        return {".".join(path): value}
    parts: Iterable[tuple[object, Any]] = ()
    if isinstance(value, Mapping):
        parts = value.items()
    elif isinstance(value, tuple):
        parts = ((each.name.replace(" ", "_"), each) for each in value if isinstance(each, CostItem))
    elif is_dataclass(value):
        parts = vars(value).items()
    return {
        key: each
        for name, part in parts
        for key, each in _numbers_within_by_key(part, (*path, str(name))).items()
    }
