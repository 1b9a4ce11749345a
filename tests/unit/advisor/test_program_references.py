"""What the interpreter knows of a program's objects is what Python makes of them: by every name, in every branch."""

from __future__ import annotations

import ast
import contextlib
import random
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from millrace.advisor.programs.evaluate_expressions import StepLimitError
from millrace.advisor.programs.library_functions import LaunchArguments
from millrace.advisor.programs.possible_values import (
    ABSENT,
    DictValue,
    ListValue,
    MutableObject,
    Unknown,
    Values,
    known_value,
)
from millrace.advisor.programs.program_streams import read_program_streams
from tests.run import examples
from tests.unit.advisor.test_program_interpreter import Plain

KNOWN = {
    "a dictionary under another name": "d = {}\ne = d\ne['k'] = 'v'\nt = d['k']",
    "a dictionary that a function changes": "def f(d):\n  d['k'] = 'v'\nd = {}\nf(d)\nt = d['k']",
    "a list that a function changes": "def f(l, v):\n  l.append(v)\nl = []\nf(l, 1)\nf(v=2, l=l)\nt = l",
    "an attribute under another name": "class A:\n  def __init__(self):\n    self.d = {'k': 1}\n  def f(self):\n    d = self.d\n    d['k'] = 2\n"
    "    return self\na = A().f()\nt = a.d",
    "update through a name": "d = {'k': 1}\ne = d\ne.update({'k': 2}, l=3)\nt = d",
    "update with pairs": "d = {}\nd.update([('k', 1), ('l', 2)])\nt = d",
    "pop of a list": "l = [1, 2, 3]\nt = l.pop(), l.pop(0), l",
    "pop of a dictionary": "d = {'a': 1, 'b': 2}\nt = d.pop('a'), d.pop('c', 7), d",
    "del of a key": "d = {'a': 1, 'b': 2}\ndel d['a']\nt = d",
    "del of a name": "t = 1\ndef f():\n  global t\n  del t\nf()\nt = 2",
    "clear": "d = {'a': 1}\nl = [1]\nd.clear()\nl.clear()\nt = d, l",
    "extend with itself": "l = [1]\nl.extend(l)\nl += l\nt = l",
    "a slice that is set": "l = [1, 2, 3]\nl[1:] = ['x']\nt = l",
    "a slice is a copy": "l = [1, 2]\nm = l[:]\nm.append(3)\nt = l, m",
    "items of a slice are the same": "l = [{}, {}]\nfor d in l[1:]:\n  d['k'] = 1\nt = l",
    "setdefault": "d = {'a': 1}\nx = d.setdefault('a', 2)\ny = d.setdefault('b', [])\ny.append(3)\nt = d, x",
    "update by an operator": "d = {'a': 1}\ne = d\nd |= {'b': 2}\nt = e, d | {'a': 3}",
    "a list in place": "l = [1]\nm = l\nl += [2]\nt = m",
    "a list not in place": "l = [1]\nm = l\nl = l + [2]\nt = m",
    "an attribute in place": "class A:\n  l = [1]\n  n = 1\na = A()\na.l += [2]\na.n += 1\nt = A.l, A.n, a.n",
    "an item in place": "d = {'n': 1, 'l': []}\nd['n'] += 1\nd['l'] += [2]\nt = d",
    "a list in a dictionary": "d = {'l': []}\nl = d['l']\nl.append(1)\nt = d",
    "a dictionary in a list": "l = [{'k': 1}]\nfor d in l:\n  d['k'] = 2\nt = l",
    "a copy by dict()": "d = {'k': 1, 'l': []}\ne = dict(d, m=2)\ne['k'] = 3\ne['l'].append(4)\nt = d, e",
    "a copy by copy()": "d = {'k': 1}\nl = [d]\ne, m = d.copy(), l.copy()\ne['k'] = 2\nm.append(3)\nm[0]['k'] = 4\nt = d, e, l, m",
    "a copy by list()": "l = [[1]]\nm = list(l)\nm[0].append(2)\nm.append(3)\nt = l, m",
    "a copy by stars": "d = {'k': 1}\ne = {**d, 'l': 2}\ne['k'] = 3\nl = [*d, *[4]]\nt = d, e, l",
    "a deep copy": "import copy\nd = {'l': [1]}\ne = copy.deepcopy(d)\ne['l'].append(2)\nf = copy.copy(d)\nf['l'].append(3)\nt = d, e",
    "several names at once": "a = b = []\na.append(1)\nt = b",
    "stars on the left": "a, *b, c = [1, 2, 3, 4]\nb.append(5)\nt = a, b, c",
    "a swap": "a, b = {'k': 1}, {'k': 2}\na, b = b, a\na['k'] = 3\nt = a, b",
    "a walrus": "d = {}\nif (e := d) is not None:\n  e['k'] = 1\nt = d",
    "a walrus in a comprehension": "l = [y := x for x in [1, 2]]\nt = y",
    "the scope of a comprehension": "x = 1\nl = [x for x in [2, 3]]\nt = x, l",
    "global": "x = 1\ndef f():\n  global x\n  x = 2\nf()\nt = x",
    "nonlocal": "def f():\n  x = 1\n  def g():\n    nonlocal x\n    x = 2\n  g()\n  return x\nt = f()",
    "a closure sees what is bound later": "x = 1\ndef f():\n  return x\nx = 2\nt = f()",
    "a default is evaluated once": "x = 1\ndef f(y=x):\n  return y\nx = 2\nt = f()",
    "a default that calls share": "def f(v, l=[]):\n  l.append(v)\n  return l\nf(1)\nt = f(2)",
    "defaults of lambdas": "l = []\nfor x in [1, 2]:\n  l.append(lambda y=x: y)\nt = [f() for f in l]",
    "an attribute of the class that instances share": "class A:\n  d = {}\n  def f(self, k):\n    self.d[k] = 1\nA().f('a')\nA().f('b')\nt = A.d",
    "an attribute that hides one of the class": "class A:\n  x = 1\na, b = A(), A()\na.x = 2\nt = a.x, b.x",
    "names of a class in its methods": "x = 1\nclass A:\n  x = 2\n  def f(self):\n    return x\nt = A().f()",
    "fields of a data class": "from dataclasses import dataclass, field\n@dataclass\nclass A:\n  l: list = field(default_factory=list)\n"
    "a, b = A(), A()\na.l.append(1)\nt = a.l, b.l",
    "fields of the data class above": "from dataclasses import dataclass\n@dataclass\nclass A:\n  x: int\n@dataclass\nclass B(A):\n  y: int\n"
    "b = B(1, 2)\nt = b.x, b.y",
    "classes over a common one": "class A:\n  x = 1\nclass B(A):\n  pass\nclass C(A):\n  x = 2\nclass D(B, C):\n  pass\nt = D.x, D().x",
    "a method above is that of a sibling": "class A:\n  def f(self):\n    return ['A']\nclass B(A):\n  def f(self):\n    return ['B', *super().f()]\n"
    "class C(A):\n  def f(self):\n    return ['C', *super().f()]\nclass D(B, C):\n  def f(self):\n    return ['D', *super().f()]\nt = D().f(), B().f()",
    "fields of data classes over a common one": "from dataclasses import dataclass\n@dataclass\nclass A:\n  x: int = 1\n@dataclass\nclass B(A):\n  y: int = 2\n"
    "@dataclass\nclass C(A):\n  x: int = 3\n@dataclass\nclass D(B, C):\n  z: int = 4\nd = D(5)\nt = d.x, d.y, d.z",
    "an early return": "def f(d):\n  if d['k'] == 1:\n    d['l'] = 'a'\n    return d\n  d['l'] = 'b'\nd = {'k': 1}\nf(d)\nt = d",
    "a loop with a counter": "l, n = [], 0\nwhile n < 3:\n  l.append(n)\n  n += 1\nt = l",
    "an object with a context": "class A:\n  def __enter__(self):\n    d['k'] = 1\n    return d\n  def __exit__(self, *e):\n    d['l'] = 2\nd = {}\n"
    "with A() as e:\n  e['m'] = 3\nt = d",
    "finally": "d = {}\ndef f():\n  try:\n    d['k'] = 1\n  finally:\n    d['k'] = 2\nf()\nt = d",
    "items of zip and enumerate": "l = [{}, {}]\nfor n, d in enumerate(l):\n  d['n'] = n\nfor d, v in zip(l, 'ab'):\n  d['v'] = v\nt = l",
    "the environment": "import os\nos.environ['TOPIC'] = 'orders'\nos.environ.setdefault('B', 'b')\nt = os.getenv('TOPIC'), os.environ.get('TOPIC', 'dev'), os.environ['B']",
    "the program's arguments": "import sys\nsys.argv[1:] = ['x']\nsys.argv.append('y')\nt = sys.argv[1:]",
    "arguments that the program gives": "import argparse\np = argparse.ArgumentParser()\np.add_argument('--topic')\nt = p.parse_args(['--topic', 'x']).topic",
    "attributes of options": "import argparse\np = argparse.ArgumentParser()\np.add_argument('--topic', default='x')\na = p.parse_args([])\na.topic = 'y'\nt = a.topic",
    "setattr": "class A:\n  pass\na = A()\nsetattr(a, 'x', 1)\nt = a.x",
    "a decorator of the program": "def twice(f):\n  def inner(x):\n    return f(x) + f(x)\n  return inner\n@twice\ndef g(x):\n  return x\nt = g('a')",
    "a tuple in a text": "t = f'{(1, 2)}', str((1,)), f'{[1]!r}', f'{\"a\"!r}', '%s-%s' % ('a', 'b')",
    "members of a set": "s = {'a', 'b', 'a'}\nt = 'a' in s, 'c' in s, 'a' not in s",
    "the same object": "l = []\nm = l\nt = l is None, l == m, None is None",
    "keys change with their dictionary": "d = {'a': 1}\nk = d.keys()\nd['b'] = 2\nt = list(k)",
    "stars in a call": "def f(a, b=2, *c, **d):\n  d['x'] = 1\n  return a, b, c, d\nd = {'k': 3}\nt = f(*[1, 2, 3], **d), d",
    "a partial function": "from functools import partial\ndef f(a, b, *c, d=0, **e):\n  return a, b, c, d, e\ng = partial(f, 1, d=2)\n"
    "t = g(3), g(4, 5, d=6, k=7), partial(g, 8)(9)",
    "functions that differ by what is around them": "def make(x):\n  def f():\n    return x\n  return f\nf, g = make(1), make(2)\nh = f\n"
    "for k in [1, 2]:\n  h = g if k == 2 else f\nt = h()",
    "two loops in a comprehension": "t = [a + b for a in 'xy' if a != 'y' for b in 'cd']",
}  # fmt: skip
"""Programs of which all is known."""

SOUND = {
    "a branch of the same kind": "d = {'k': 1}\nif flag():\n  d['k'] = 2\n  d['l'] = 3\nt = d.get('l', 4), 'l' in d, d",
    "one of two": "a, b = {'k': 1}, {'k': 1}\nc = a if flag() else b\nc['k'] = 2\nt = a, b, c",
    "one of two, each made in its branch": "if flag():\n  d = {'a': 1}\nelse:\n  d = {'b': 2}\nd['c'] = 3\nt = d",
    "one object and another": "class A:\n  def __init__(self, x):\n    self.x = x\n  def f(self):\n    self.x = 3\na, b = A(1), A(2)\n"
    "c = a if flag() else b\nc.f()\nt = a.x, b.x, c.x",
    "an attribute that a branch sets": "class A:\n  x = 1\na = A()\nif flag():\n  a.x = 2\nt = a.x",
    "and": "l = []\nflag() and l.append(1)\nt = l",
    "or": "d = {}\nt = flag() or d.setdefault('k', 1), d",
    "a return in a branch": "def f(d):\n  if flag():\n    d['k'] = 1\n    return 'a'\n  d['k'] = 2\nd = {}\nt = f(d), d",
    "continue": "x = 0\nfor y in [1, 2]:\n  if flag():\n    x = y\n    continue\n  x = 9\nt = x",
    "break": "l = []\nfor y in [1, 2]:\n  l.append(y)\n  if flag():\n    break\n  l.append('z')\nt = l",
    "an error in the middle": "x, y = 1, 0\ntry:\n  x = 2\n  fail()\n  x = 3\nexcept Exception:\n  y = x\nt = x, y",
    "an error in a function": "def f():\n  d['k'] = 1\n  fail()\n  d['k'] = 2\nd = {}\ntry:\n  f()\nexcept Exception:\n  pass\nt = d",
    "suppress": "import contextlib\nx = 1\nwith contextlib.suppress(Exception):\n  fail()\n  x = 2\nt = x",
    "finally before a return": "d = {'k': 1}\ndef f():\n  try:\n    return d['k']\n  finally:\n    d['k'] = 2\nt = f(), d",
    "an unknown loop": "l, x = [], 'a'\nfor y in rows():\n  l.append(y)\n  x = x + 'b'\nt = l, x",
    "names that move in a loop": "a, b, c, e = 1, 2, 3, 4\nfor y in rows():\n  a = b\n  b = c\n  c = e\nt = a, b, c",
    "while with a pop": "l = [1, 2, 3]\nwhile l and flag() and l.pop():\n  pass\nt = l",
    "an unknown key": "d = {'a': 1, 'b': 2}\nd[key()] = 3\nt = d",
    "an unknown index": "l = ['a', 'b']\nl[number()] = 'c'\nt = l",
    "an unknown update": "d = {'a': 1}\nd.update(table())\nt = d['a']",
    "unknown items of a dictionary": "d = {'a': 1, **table()}\nt = d['a'], d.get('z', 5)",
    "an unknown pop": "d = {'a': 1, 'b': 2}\nd.pop(key())\nt = d.get('a'), d.get('b')",
    "a method that is not computed": "l = [3, 1, 2]\nl.sort(key=lambda x: -x)\nt = l",
    "a shuffle": "import random as r\nl = [1, 2, 3]\nr.shuffle(l)\nt = l",
    "setitem": "import operator\nd = {'a': 1}\noperator.setitem(d, 'a', 2)\nt = d",
    "a list times a number": "l = [1]\nm = l\nl *= 2\nt = l, m, [1] * 2",
    "a generator": "def f():\n  yield 1\nt = f() is None",
    "a function that may fall through": "def f():\n  if flag():\n    return 1\nt = f()",
    "arguments that are not known": "t = str(*rows()[:1]), 'xuy'.split(*rows()[:1])",
    "a context that is left by an error": "class A:\n  def __enter__(self):\n    return self\n  def __exit__(self, *e):\n    l.append(2)\n    return flag()\n"
    "l = [1]\ntry:\n  with A() as a:\n    if flag():\n      fail()\n    l.append(3)\n  l.append(4)\nexcept Exception:\n  pass\nt = l",
    "a condition of a comprehension": "t = [x for x in [1, 2] if flag()]",
    "a set": "s = {'a', 'b', 'c'}\ns.discard('a')\nt = len(s), 'a' in s, sorted(s)",
    "a match of parts": "t = 1\nmatch {'k': 'a', 'l': 2}:\n  case {'k': 'b', 'l': t}:\n    pass\n  case {'k': 'a', 'l': t}:\n    pass",
    "a method under another name": "l, d = [], {'a': 1}\nf, g = l.append, d.update\nf(1)\ng(a=2)\nt = l, d",
    "a method that a library calls": "l = []\nlist(map(l.append, [1, 2]))\nt = l",
    "a method of the type": "d = {'a': 1}\ndict.update(d, a=2)\nt = d",
    "attributes in __dict__": "class A:\n  def __init__(self, **more):\n    self.x = 1\n    self.__dict__.update(more)\na = A(x=2)\n"
    "vars(a)['y'] = 3\nt = a.x",
    "getattr": "class A:\n  def f(self):\n    self.x = 2\na = A()\na.x = 1\ngetattr(a, 'f')()\nt = a.x, getattr(a, 'y', 3)",
    "a guard": "t = 1\nmatch 5:\n  case x if flag():\n    t = x\n  case _:\n    t = 6",
    "parameters by unknown names": "def f(a=1, b=2):\n  return a, b\nt = f(**options()), f(*values())",
    "a property that is set": "class A:\n  @property\n  def x(self):\n    return self.y\n  @x.setter\n  def x(self, v):\n    self.y = v + 1\na = A()\na.x = 1\nt = a.y",
    "a dictionary of two kinds": "d = {'a': 1} if flag() else {}\ne = {'a': 5, **d}\ndef f(a=7):\n  return a\nt = d.get('a', 9), e, f(**d), len(d)",
    "remove": "l = ['a', 'test', 'b']\nl.remove('test')\nt = l",
    "insert": "l = ['a']\nl.insert(0, 'b')\nt = l",
    "popitem": "d = {'a': 1, 'b': 2}\nt = d.popitem(), d",
    "del of an item": "l = [1, 2, 3]\ndel l[0]\nt = l",
    "del of a slice": "l = [1, 2, 3, 4]\ndel l[1:3]\nt = l",
    "sort and reverse": "l = ['b', 'c', 'a']\nl.sort()\nm = l[0]\nl.reverse()\nt = l, m",
    "a loop that changes its list": "l = ['a', 'b', 'c']\nfor x in l:\n  if x == 'a':\n    l.remove(x)\nt = l",
    "names of match": "match 'a':\n  case 'b':\n    t = 1\n  case 'a' | 'c':\n    t = 2\n  case _:\n    t = 3",
    "a capture of match": "match 'a':\n  case 'b':\n    t = 1\n  case t:\n    pass",
}  # fmt: skip
"""Programs of which a part is not known: what is known is right."""

READ = "spark.readStream.format('kafka')"
READERS = {
    "options that a function sets": f"def f(o):\n  o['limit'] = 5\no = {{'subscribe': 'a'}}\nf(o)\n{READ}.options(**o).load()",
    "a reader that a function sets": f"def f(r):\n  r.option('limit', 5)\nr = {READ}\nf(r)\nr.option('subscribe', 'a').load()",
    "a reader under two names": f"r = {READ}\ns = r.option('a', 1)\ns.option('b', 2)\nr.load()",
    "a reader in a list": f"rs = [{READ}, {READ}]\nfor r in rs:\n  r.option('a', 1)\nrs[0].option('b', 2)\nrs[1].load()\nrs[0].load()",
    "a reader of a branch": f"r = {READ}\nif flag():\n  r.option('a', 1)\nr.load()",
    "one of two readers": f"r, s = {READ}, {READ}\n(r if flag() else s).option('a', 1)\nr.load()\ns.load()",
    "options without a key": f"o = {{'a': 1, 'limit': 5}}\ndel o['limit']\n{READ}.options(**o).load()",
    "a reader of an object": f"class A:\n  def __init__(self):\n    self.r = {READ}\n  def set(self, k, v):\n    self.r.option(k, v)\n    return self\n"
    "A().set('a', 1).set('b', 2).r.load()",
    "options of two branches": f"o = {{'a': 1}}\nif flag():\n  o = {{'b': 2}}\n{READ}.options(**o).option('c', 3).load()",
}  # fmt: skip


class Reader:
    """A reader that keeps the options of each load with its line."""

    def __init__(self, loaded: list[tuple[int, dict[str, object]]]) -> None:
        self.loaded = loaded
        self.given: dict[str, object] = {}

    def option(self, key: str, value: object) -> Reader:
        self.given[key] = value
        return self

    def options(self, **more: object) -> Reader:
        self.given |= more
        return self

    def format(self, name: str) -> Reader:
        return self.option("format", name)

    def load(self) -> None:
        self.loaded.append((sys._getframe(1).f_lineno, dict(self.given)))


class Spark:
    """A session that keeps what is read."""

    def __init__(self) -> None:
        self.loaded: list[tuple[int, dict[str, object]]] = []

    @property
    def readStream(self) -> Reader:
        return Reader(self.loaded)


def run_in_python(text: str, seed: int) -> tuple[dict[str, Any], Spark]:
    """Return the names of a run, in which unknown functions return what comes by chance."""
    chance, spark = random.Random(seed), Spark()

    def fail() -> None:
        if chance.random() < 0.5:
            raise RuntimeError

    names: dict[str, Any] = {
        "spark": spark,
        "fail": fail,
        "flag": lambda: chance.random() < 0.5,
        "rows": lambda: ["u", "v", "w", "x"][: chance.randrange(5)],
        "key": lambda: chance.choice("ab"),
        "number": lambda: chance.randrange(2),
        "table": lambda: chance.choice([{}, {"a": 8}, {"z": 9}]),
        "options": lambda: chance.choice([{}, {"a": 8}]),
        "values": lambda: chance.choice([(), (6,), (6, 7)]),
    }
    exec(compile(text, "program", "exec"), names)  # noqa: S102
    return names, spark


def allows(values: Values, is_one: object, depth: int = 0) -> bool:
    """Return whether a value of Python is among those that the interpreter tells, or a part of it is not told."""
    return depth > 5 or any(_allows(each.value, is_one, depth + 1) for each in values)


def _allows(told: Any, is_one: object, depth: int) -> bool:
    if isinstance(told, Unknown):
        return True
    if isinstance(told, MutableObject):
        return allows(told.contents, is_one, depth)
    if isinstance(told, ListValue):
        if type(is_one) is not told.kind or len(is_one) != len(told.values):  # type: ignore[arg-type]
            return False
        items: list[Any] = list(is_one)  # type: ignore[call-overload]
        if told.kind is set:
            return all(any(allows(each, item, depth) for item in items) for each in told.values)
        return all(allows(each, item, depth) for each, item in zip(told.values, items, strict=True))
    if isinstance(told, DictValue):
        return isinstance(is_one, dict) and _allows_table(told, is_one, depth)
    if not isinstance(told, bool | int | float | str | None):
        return not isinstance(is_one, bool | int | float | str | list | tuple | set | dict | None)
    return type(told) is type(is_one) and told == is_one


def _allows_table(told: DictValue, is_one: dict[Any, Any], depth: int = 0) -> bool:
    return all(
        allows(told.values[key], is_one[key], depth) if key in told.values else bool(told.more)
        for key in is_one
    ) and all(key in is_one or ABSENT[0] in values for key, values in told.values.items())


def check_against_python(text: str, seed: int = 0) -> Plain:
    """Evaluate a program, and compare all names of its module with Python's."""
    run, _ = run_in_python(text, seed)
    evaluated = Plain(LaunchArguments())
    evaluated.run_statements(ast.parse(text).body, evaluated.module)
    for name, value in run.items():
        plain = value is None or isinstance(value, bool | int | float | str | list | tuple | set | dict)
        if plain and name != "__builtins__":
            values = evaluated.module.values.get(name, known_value(Unknown("deleted"), 0))
            assert allows(values, value), (name, value, values, text)
    return evaluated


@pytest.mark.parametrize("program", KNOWN)
def test_what_a_program_does_to_its_objects_is_known(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["program"])
    monkeypatch.setenv("TOPIC", "")
    monkeypatch.delenv("B", raising=False)
    values = check_against_python(KNOWN[program]).module.values["t"]
    assert not _has_unknown(values), values


def _has_unknown(values: Values) -> bool:
    if len(values) != 1:
        return True
    value = values[0].value
    if isinstance(value, MutableObject):
        return _has_unknown(value.contents)
    if isinstance(value, ListValue | DictValue):
        inside = value.values.values() if isinstance(value, DictValue) else value.values
        return any(map(_has_unknown, inside))
    return isinstance(value, Unknown)


@pytest.mark.parametrize("seed", range(30))
def test_an_attribute_is_looked_up_in_the_order_of_python(seed: int) -> None:
    drawn = random.Random(seed)
    text = "class C0:\n  x = 0\n"
    for number in range(1, 9):
        bases = [f"C{each}" for each in drawn.sample(range(number), min(number, drawn.randint(1, 3)))]
        definition = (
            f"class C{number}({', '.join(bases)}):\n  {f'x = {number}' if drawn.random() < 0.4 else 'pass'}\n"
        )
        with contextlib.suppress(TypeError):  # these bases have no order
            exec(text + definition, {})  # noqa: S102 - text of this test
            text += definition
            continue
        text += f"class C{number}(C0):\n  pass\n"
    values = check_against_python(f"{text}t = [{', '.join(f'C{each}.x' for each in range(9))}]")
    assert not _has_unknown(values.module.values["t"])


@pytest.mark.parametrize("program", SOUND)
def test_what_is_known_of_a_program_is_right(program: str) -> None:
    for seed in range(12):
        check_against_python(SOUND[program], seed)


@pytest.mark.parametrize("program", READERS)
def test_the_options_of_a_reader_are_those_of_a_run(program: str) -> None:
    read = read_program_streams(READERS[program], LaunchArguments())
    assert not read.why_not
    for seed in range(8):
        _, spark = run_in_python(READERS[program], seed)
        for line, options in spark.loaded:
            sources = [each for each in read.sources if each.line == line]
            assert any(
                all(_among(each.options.get(key, ()), value) or each.more for key, value in options.items())
                and all(key in options or _among(values, None) for key, values in each.options.items())
                for each in sources
            ), (line, options, sources)


def _among(values: Values, value: object) -> bool:
    return any(isinstance(each.value, Unknown) or each.value == value for each in values)


NAMES = ("a", "b", "d", "e", "l", "m")
ATOMS = some.sampled_from(
    ["'x'", "'y'", "1", "2", "None", "a", "b", "d.get('k')", "d.get('j', 'z')", "len(l)", "o.x", "A.x"]
)
HOLDERS = some.sampled_from(
    ["d", "e", "l", "m", "{}", "[]", "{'k': 1}", "['x']", "dict(d)", "list(l)", "d.copy()", "[*l]", "{**d, 'k': 'q'}", "o.d", "[d]", "o"]
)  # fmt: skip
CHANGES = (
    "d[{key}] = {atom}", "e[{key}] = {atom}", "l.append({atom})", "m.append({atom})", "l.append(d)", "d['n'] = l", "d['n'] = e",
    "d.pop({key}, {atom})", "e.update({{{key}: {atom}}})", "d.setdefault({key}, {atom})", "del d[{key}]", "l.insert(0, {atom})", "l.pop()",
    "l.remove({atom})", "m.reverse()", "l.clear()", "d.clear()", "l += [{atom}]", "m += l", "d |= {{{key}: {atom}}}", "l[0] = {atom}", "l[0:1] = [{atom}]",
    "{name} = {atom}", "{name} = {holder}", "{name} = {holder}", "d = e", "m = l", "d, e = e, d", "a, *m = [{atom}, {atom}, {atom}]", "o = A({atom})",
    "o.x = {atom}", "o.d[{key}] = {atom}", "o.d = d", "A.x = {atom}", "o.set({key}, {atom})", "f(d)", "f(e, {atom})", "a = g({atom})", "b = h(d, {key})",
    "a = shared({atom})", "p = o", "p.x = {atom}", "o = p if flag() else o", "d = e if flag() else d", "flag() and l.append({atom})", "d[key()] = {atom}",
    "a = (b := {atom})", "e = {{k: {atom} for k in ['k', 'j']}}", "m = [{atom} for y in l]", "a = h(e, 'j') or {atom}", "fail()",
)  # fmt: skip
BLOCKS = (
    "if flag():", "if flag():", "if {atom} == {atom}:", "for i in ['p', 'q']:", "for i in l:", "for i in list(d):", "for i in rows():", "while flag():",
    "while len(l) < 2:", "try:", "try_finally:", "with S():", "def:", "match {atom}:",
)  # fmt: skip
BEFORE = """a = b = None
d, e, l, m = {'k': 1}, {}, ['x'], []
class A:
  x, d = 'c', {}
  def __init__(self, v):
    if flag():
      self.x = v
  def set(self, k, v):
    o = self.d
    o[k] = v
    return self
class S:
  def __enter__(self):
    d['s'] = 1
  def __exit__(self, *_):
    d['s'] = 2
    return False
def f(p, v='w', q=d):
  if flag():
    p['f'] = v
    return
  q['g'] = v
def g(v):
  global b
  try:
    fail()
    b = v
    return 'r'
  except RuntimeError:
    return v
  finally:
    e['fin'] = v
def h(p, k):
  for each in p:
    if each == k:
      return p[k]
def shared(v, s=[]):
  s.append(v)
  return len(s)
o = p = A('i')
"""


@some.composite
def statements(draw: some.DrawFn, depth: int = 0) -> list[str]:
    """Lines of a block in which objects are named, changed and shared."""
    lines: list[str] = []
    for _ in range(draw(some.integers(1, 5 if depth == 0 else 3))):
        words = {
            "atom": draw(ATOMS),
            "holder": draw(HOLDERS),
            "key": draw(some.sampled_from(["'k'", "'j'"])),
            "name": draw(some.sampled_from(NAMES)),
        }
        if depth > 2 or draw(some.integers(0, 2)):
            lines.append(draw(some.sampled_from(CHANGES)).format(**words))
            continue
        head = draw(some.sampled_from(BLOCKS)).format(**words)
        inner = [f"  {each}" for each in draw(statements(depth + 1))]
        leave = draw(some.sampled_from(["", "", "if flag(): break", "if flag(): continue", "break"]))
        if head in ("try:", "try_finally:"):
            after = ["except Exception:", f"  a = {words['atom']}"]
            lines += ["try:", *inner, *after, *(["finally:", "  b = a"] if head != "try:" else [])]
        elif head == "def:":
            lines += [
                "def inner():",
                *inner,
                "  if flag(): return d",
                *inner,
                "try:",
                "  e = inner() or e",
                "except NameError:",
                "  pass",
            ]
        elif head.startswith("match"):
            lines += [
                head,
                "  case 'x' | 1:",
                *(f"  {each}" for each in inner),
                "  case 'y':",
                "    l = [1]",
                "  case b:",
                "    d = {}",
            ]
        elif head.startswith(("for", "while")):
            lines += [head, "  count()", *inner, *([f"  {leave}"] if leave else [])]
        else:
            lines += [head, *inner]
    return lines


@settings(max_examples=examples(100), deadline=None)
@given(body=statements(), seed=some.integers(0, 30))
def test_whatever_a_program_does_what_is_known_is_right(body: list[str], seed: int) -> None:
    rounds = "def count(n=[]):\n  n.append(1)\n  if len(n) > 10: raise KeyError\n"
    text = (
        BEFORE + rounds + "try:\n" + "\n".join(f"  {each}" for each in body) + "\nexcept Exception:\n  pass\n"
    )
    with contextlib.suppress(StepLimitError):  # nothing is told of what is not evaluated
        check_against_python(text, seed)
