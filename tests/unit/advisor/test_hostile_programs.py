"""Programs that would exhaust the reader of their source are refused."""

from __future__ import annotations

import tracemalloc

import pytest

from millrace.advisor.programs import evaluate_expressions
from tests.unit.advisor.settings_of_program import settings_of_program

DOUBLED = "a0 = 'xxxxxxxx'\n" + "".join(f"a{n + 1} = f'{{a{n}}}{{a{n}}}'\n" for n in range(60))
CALLS = "".join(f"def f{n}():\n  return f{n + 1}() + f{n + 1}()\n" for n in range(40)) + "f0()\n"
BRANCHES = "".join(f"if c{n}:\n  x{n} = {n}\n" for n in range(20_000))


FUNCTIONS = (
    "def main():\n"
    + "".join(f"  def f{n}(r):\n    return {' + '.join(f'f{m}(r)' for m in range(30))}\n" for n in range(30))
    + "  spark.readStream.format('kafka').load().writeStream.foreachBatch(f0).start()\nmain()\n"
)


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(
            DOUBLED + "s.readStream.format('kafka').option('subscribe', a60)", id="names that double"
        ),
        pytest.param("f'" + "{a}" * 20_000 + "'", id="many parts"),
        pytest.param("x = " + "-" * 200_000 + "1", id="nested operators"),
        pytest.param("x = " + "(" * 10_000 + ")" * 10_000, id="nested brackets"),
        pytest.param("x = " + "a." * 200_000 + "b", id="a long chain"),
        pytest.param("x = " + "not " * 100_000 + "b", id="nots"),
        pytest.param("x = " + "[" * 90 + "]" * 90, id="nested lists"),
        pytest.param("x = f'{x:{y:{z:{a}}}}'", id="nested f-strings"),
        pytest.param("x = 0x" + "f" * 900_000, id="a huge number"),
        pytest.param("x = 'a'\0", id="a NUL"),
        pytest.param("#" * 2_000_000, id="a long program"),
        pytest.param("s.option('maxOffsetsPerTrigger', 0x" + "f" * 100_000 + ")", id="a huge option"),
        pytest.param("x = 'a' * 10**9\ny = [x] * 10**9\nz = '%1000000000d' % 1\nw = '{:>999999999}'.format(1)", id="widths"),
        pytest.param("import re\nx = re.match('(a+)+$', 'a' * 60 + 'b')\nre.match('.*.*.*.*.*.*.*b', 'a' * 255)", id="patterns"),
        pytest.param("def f():\n  return f()\nf()", id="a function that calls itself"),
        pytest.param(CALLS, id="calls that double"),
        pytest.param(BRANCHES, id="branches"),
        pytest.param("x = 1\nwhile x:\n  x = x + 1\nfor a in x:\n  for b in a:\n    for c in b:\n      x = [x, x]", id="loops"),
        pytest.param("x = [0, 1]\n" + "x = [y + z for y in x for z in x]\n" * 50, id="comprehensions"),
        pytest.param("d = {}\nd['d'] = d\nclass A:\n  x = d\nA().x['y'] = A()\nA.x.update(A.x)", id="things in themselves"),
        pytest.param("x = 1 << 10**9\ny = 10 ** 10 ** 9\nz = range(10**12)\nw = list(z)", id="huge computations"),
        pytest.param("try:\n  from x import A\nexcept ImportError:\n  class A:\n    def f(self): pass", id="a class or another"),
        pytest.param(FUNCTIONS, id="functions that use one another"),
        pytest.param("import json\nx = json.loads('[' * 3000 + ']' * 3000)", id="nested JSON"),
    ],
)  # fmt: skip
def test_no_program_exhausts_the_reading(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluate_expressions, "_STEPS", 20_000)  # the limit itself takes seconds
    tracemalloc.start()
    found = settings_of_program(program)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.name is None
    assert most < 500 << 20
