"""Values that the interpreter finds for a program include those of a run in Python."""

from __future__ import annotations

import random
from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as some

from millrace.advisor.programs.interpreter import Interpreter
from millrace.advisor.programs.library_functions import LaunchArguments
from millrace.advisor.programs.possible_values import (
    Unknown,
    Values,
)
from millrace.advisor.programs.python_values import (
    NoPythonValueError,
    to_python_value,
)
from tests.run import examples

NAMES = ("a", "b", "c")
SIMPLE = some.one_of(
    some.sampled_from(NAMES), some.sampled_from(["'x'", "'yz'", "''", "1", "2", "0", "None", "True"])
)
EXPRESSIONS = some.recursive(
    SIMPLE,
    lambda inner: some.one_of(
        some.tuples(inner, inner).map("(str({0[0]}) + str({0[1]}))".format),
        some.tuples(inner, inner)
        .map("f'{{{0[0]}}}-{{{0[1]}}}'".format)
        .filter(lambda text: text.count("'") == 2),
        some.tuples(inner, inner, inner).map("({0[0]} if {0[1]} == {0[2]} else {0[1]})".format),
        some.tuples(inner, inner).map("({0[0]} or {0[1]})".format),
        some.tuples(inner, inner).map("({0[0]} and {0[1]})".format),
        some.tuples(inner, inner, inner).map("{{'k': {0[0]}, 'l': {0[1]}}}.get('k', {0[2]})".format),
        some.tuples(inner, inner).map("[{0[0]}, {0[1]}][-1]".format),
        some.tuples(inner, inner).map("join({0[0]}, q={0[1]})".format),
        inner.map("str({0}).upper()".format),
        inner.map("(not {0})".format),
    ),
    max_leaves=4,
)
CONDITIONS = some.one_of(EXPRESSIONS, some.just("flag()"), EXPRESSIONS.map("{} != 'x'".format))


@some.composite
def statements(draw: some.DrawFn, depth: int = 0) -> list[str]:
    """Lines of a block."""
    found: list[str] = []
    for _ in range(draw(some.integers(1, 3))):
        kind = draw(
            some.sampled_from(["set", "set", "add", "key"] + ["if", "for", "while", "try"] * (depth < 2))
        )
        name = draw(some.sampled_from(NAMES))
        inner = (
            [f"  {each}" for each in draw(statements(depth + 1))]
            if kind in ("if", "for", "while", "try")
            else []
        )
        leave = draw(some.sampled_from(["", "", "  break", "  continue", "  if flag():\n    break"]))
        if kind == "set":
            found.append(f"{name} = {draw(EXPRESSIONS)}")
        elif kind == "add":
            found.append(f"{name} = str({name}); {name} += 's'")
        elif kind == "key":
            found.append(f"d = {{'k': {name}}}; d['k'] = {draw(EXPRESSIONS)}; {name} = d['k']")
        elif kind == "if":
            found += [f"if {draw(CONDITIONS)}:", *inner, "else:", f"  {name} = {draw(EXPRESSIONS)}"]
        elif kind == "for":
            over = draw(some.sampled_from(["['x', 1]", "[]", "{'k': 1}", "some()"]))
            found += [f"for {name} in {over}:", *inner, *filter(None, [leave])]
        elif kind == "while":
            found += ["while True:", *inner, *filter(None, [leave.replace("continue", "break")]), "  break"]
        else:
            found += [
                "try:",
                *inner,
                f"  {name} = {name}.upper()",
                "except AttributeError:",
                f"  {name} = 'e'",
            ]
    return [line for each in found for line in each.split("\n")]


BEFORE = (
    "a = 'x'\nb = 1\nc = None\ndef join(p, q='q'):\n  if p == q:\n    return 'same'\n  return f'{p}{q}'\n"
)


class Plain(Interpreter):
    """Evaluation of a program without streams."""

    def streaming_attribute(self, values: Values, name: str, line: int) -> None:
        return None

    def call_streaming_method(self, *_: object) -> None:
        return None


def told(values: Values) -> Iterator[object]:
    for each in values:
        try:
            yield to_python_value(each.value)
        except NoPythonValueError:
            yield Unknown


@settings(max_examples=examples(150), deadline=None)
@given(body=statements(), seed=some.integers(0, 50))
def test_the_value_of_a_run_is_among_those_that_the_text_tells(body: list[str], seed: int) -> None:
    import ast

    text = BEFORE + "\n".join(body)
    chance = random.Random(seed)
    run: dict[str, object] = {
        "flag": lambda: chance.random() < 0.5,
        "some": lambda: ["u", 7][: chance.randrange(3)],
    }
    exec(compile(text, "program", "exec"), run)  # noqa: S102
    evaluated = Plain(LaunchArguments())
    evaluated.run_statements(ast.parse(text).body, evaluated.module)
    for name in NAMES:
        found = list(told(evaluated.module.values[name]))
        same = any(type(each) is type(run[name]) and each == run[name] for each in found)
        assert same or Unknown in found, (name, run[name], found, text)
