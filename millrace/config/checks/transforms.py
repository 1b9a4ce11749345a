"""Checks of transforms: the module exists and can be imported, the function takes the right arguments.

All facts come from the syntax tree, with or without PySpark, so that every installation finds the same problems; no code of
the project runs.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path as FilePath

from millrace.config.document.explain_validation_errors import did_you_mean_text
from millrace.config.document.problems import Finding, Path
from millrace.config.document.yaml_tree import is_file

_CARRIED = frozenset({"boto3", "botocore", "numpy", "pandas", "pipelines", "py4j", "pyarrow", "pyspark"})
"""Packages that engines have in addition to the standard library, and packages that travel with a job."""

_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass(frozen=True)
class PipelineModule:
    """A module below ``pipelines/``.

    Attributes
    ----------
    name
        With its dots.
    file
        Path relative to the project.
    package
        Package at which its relative imports begin.
    """

    name: str
    file: str
    package: str
    tree: ast.Module

    @property
    def functions_and_values(self) -> dict[str, _Function | None]:
        """Functions at the top level of the module, by name; None for a name that gets a value about which nothing is known."""
        result: dict[str, _Function | None] = {}
        for node in _statements_sure_to_run_at_import(self.tree.body):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                result[node.name] = node
            elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for each in targets:
                    if isinstance(each, ast.Name):
                        known = result.get(each.id)
                        result[each.id] = node.value if isinstance(node.value, ast.Lambda) else known
        return result

    @property
    def imports(self) -> Iterator[tuple[int, str, dict[str, str]]]:
        """Line, module and names (local name to imported name) of each import at the top level."""
        for node in _statements_sure_to_run_at_import(self.tree.body):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield node.lineno, alias.name, {}
            elif isinstance(node, ast.ImportFrom):
                names = {alias.asname or alias.name: alias.name for alias in node.names}
                base = self.package.split(".")[: len(self.package.split(".")) + 1 - node.level]
                above = [] if not node.level else base
                yield node.lineno, ".".join([*above, *([node.module] if node.module else [])]), names


def _statements_sure_to_run_at_import(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield statements that run at import and cannot fail: without bodies of ``try`` and of ``TYPE_CHECKING``."""
    for node in body:
        if isinstance(node, ast.If):
            if "TYPE_CHECKING" not in ast.dump(node.test):
                yield from _statements_sure_to_run_at_import([*node.body, *node.orelse])
        elif isinstance(node, ast.With):
            yield from _statements_sure_to_run_at_import(node.body)
        else:
            yield node


@dataclass
class ProjectModules:
    """Modules of the project; each is read once."""

    root: FilePath
    _read: dict[str, PipelineModule | str | None] = field(default_factory=dict, init=False, repr=False)

    def module_or_parse_error(self, name: str) -> PipelineModule | str | None:
        """Read a module; return None if it does not exist, and a text with the reason if it cannot be parsed."""
        if name not in self._read:
            self._read[name] = self._read_and_parse_module(name)
        return self._read[name]

    def _read_and_parse_module(self, name: str) -> PipelineModule | str | None:
        parts = name.split(".")
        stem = self.root.joinpath(*parts)
        package = stem / "__init__.py"
        file = next((each for each in (package, stem.with_suffix(".py")) if is_file(each)), None)
        if file is None:
            return None
        shown = file.relative_to(self.root).as_posix()
        try:
            tree = ast.parse(file.read_text(encoding="utf-8-sig"), shown)
        except (SyntaxError, ValueError) as error:
            line = getattr(error, "lineno", None)
            return f"{shown}{f':{line}' if line else ''}: {getattr(error, 'msg', None) or error}"
        return PipelineModule(name, shown, name if file == package else name.rpartition(".")[0], tree)

    def module_names(self) -> list[str]:
        """Return the names of all modules."""
        return [
            ".".join(each.relative_to(self.root).with_suffix("").parts)
            for each in sorted((self.root / "pipelines").rglob("*.py"))
        ]

    def find_module_and_function(
        self, module: PipelineModule, name: str
    ) -> tuple[PipelineModule, _Function | None] | None:
        """Follow a name to the function that it stands for.

        Returns
        -------
        tuple or None
            The module that defines it and the function; None instead of the function if only the name is known; None alone if
            there is no such name.
        """
        seen = set()
        while (module.name, name) not in seen:
            seen.add((module.name, name))
            own = module.functions_and_values
            if own.get(name) is not None:
                return module, own[name]
            source = next(((of, names[name]) for _, of, names in module.imports if name in names), None)
            if source is None:
                return (module, None) if name in own or _may_bind_by_star_or_try(module, name) else None
            target = self.module_or_parse_error(source[0])
            if not isinstance(target, PipelineModule):
                return module, None
            module, name = target, source[1]
        return None

    def module_and_its_imports(self, module: PipelineModule) -> list[PipelineModule]:
        """Return the module, and all modules of the project that it imports, also indirectly."""
        result, waiting = {module.name: module}, [module]
        while waiting:
            for _, name, names in waiting.pop().imports:
                for each in (name, *(f"{name}.{inner}" for inner in names.values())):
                    more = self.module_or_parse_error(each) if each.split(".")[0] == "pipelines" else None
                    if isinstance(more, PipelineModule) and each not in result:
                        result[each] = more
                        waiting.append(more)
        return list(result.values())


def _may_bind_by_star_or_try(module: PipelineModule, name: str) -> bool:
    """Return whether a module may get a name from ``import *`` or inside ``try``, not from a plain statement."""
    return any(
        (isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names))
        or (isinstance(node, ast.Try) and name in ast.dump(node))
        for node in ast.walk(module.tree)
    )


def check_transform(path: Path, transform: str, takes: int, modules: ProjectModules) -> Iterator[Finding]:
    """Check that a transform can be imported and called.

    Parameters
    ----------
    path
        Place of its name in the environment file.
    transform
        ``package.module:function``.
    takes
        Number of DataFrames that it gets: two if the query joins.
    """
    name, function = transform.split(":")
    if name.split(".")[0] != "pipelines":
        yield Finding(
            path, transform, "a function below pipelines, such as pipelines.flights.transforms:with_delay"
        )
        return
    if (module := modules.module_or_parse_error(name)) is None:
        file = f"{name.replace('.', '/')}.py"
        yield Finding(
            path,
            transform,
            f"a module that exists; there is no {file}",
            did_you_mean_text(name, modules.module_names()),
        )
        return
    wrong = [module] if isinstance(module, str) else list(_import_problems(module, modules))
    if wrong or isinstance(module, str):
        yield Finding(path, transform, f"a module that can be imported; {'; '.join(wrong)}")
        return
    if (result := modules.find_module_and_function(module, function)) is None:
        functions = [each for each, node in module.functions_and_values.items() if node is not None]
        public = [each for each in functions if not each.startswith("_")]
        yield Finding(
            path,
            transform,
            f"a function of {name}: {', '.join(public) or 'it has none'}",
            did_you_mean_text(function, public),
        )
        return
    home, node = result
    if node is not None and (misfit := _reason_not_callable(node, takes)):
        example = "def joined(records, others)" if takes == 2 else "def with_delay(records)"
        yield Finding(
            path,
            transform,
            f"a function from {'two DataFrames' if takes == 2 else 'one DataFrame'} to a DataFrame, such as {example}; "
            f"{home.file}:{node.lineno} {misfit}",
        )


def _import_problems(module: PipelineModule, modules: ProjectModules) -> Iterator[str]:
    for each in modules.module_and_its_imports(module):
        for line, name, names in each.imports:
            top = name.split(".")[0]
            here = f"{each.file}:{line}"
            if top == "pipelines":
                yield from _project_import_problems(here, name, names, modules)
            elif not _is_core_import(name, names) and top not in _CARRIED | sys.stdlib_module_names:
                yield (
                    f"{here} imports {top}, which no engine has for sure: they have the standard library, PySpark, "
                    "millrace.etl, pandas, pyarrow, numpy and boto3 (import it inside the function where yours has more)"
                )


def _is_core_import(name: str, names: dict[str, str]) -> bool:
    """Return whether an import is of the core, which travels with a job."""
    return f"{name}.".startswith("millrace.etl.") or (name == "millrace" and set(names.values()) == {"etl"})


def _project_import_problems(
    here: str, name: str, names: dict[str, str], modules: ProjectModules
) -> Iterator[str]:
    module = modules.module_or_parse_error(name)
    if isinstance(module, str):
        yield module
        return
    if module is None and not modules.root.joinpath(*name.split(".")).is_dir():
        hint = did_you_mean_text(name, modules.module_names())
        yield f"{here} imports {name}, which does not exist" + (f" ({hint})" if hint else "")
        return
    for inner in names.values():
        if inner == "*" or modules.module_or_parse_error(f"{name}.{inner}") is not None:
            continue
        if module is None or (
            modules.find_module_and_function(module, inner) is None and not _binds_name(module, inner)
        ):
            yield f"{here} imports {inner} from {name}, which has no such name"


def _binds_name(module: PipelineModule, name: str) -> bool:
    """Return whether any statement of a module binds a name, at the top level or below."""
    return any(
        (isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name)
        or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id == name)
        or (isinstance(node, ast.alias) and (node.asname or node.name.split(".")[0]) == name)
        for node in ast.walk(module.tree)
    )


def _reason_not_callable(node: _Function, takes: int) -> str | None:
    """Say why a function that returns a DataFrame cannot be called with this number of DataFrames."""
    if isinstance(node, ast.AsyncFunctionDef):
        return "is async, but is called without await"
    if isinstance(node, ast.FunctionDef):
        if node.decorator_list:
            return None  # the decorator decides its arguments
        own = nodes_of_function(node)
        if any(isinstance(each, ast.Yield | ast.YieldFrom) for each in own):
            return "is a generator"
        if not any(isinstance(each, ast.Return) and each.value is not None for each in own):
            return "returns nothing"
    arguments = node.args
    parameters = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
    required = len(parameters) - len(arguments.defaults)
    if required > takes or (len(parameters) < takes and arguments.vararg is None):
        return f"takes {', '.join(parameters) or 'nothing'}"
    named = [
        each.arg
        for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        if default is None
    ]
    return f"needs {', '.join(named)} besides" if named else None


def nodes_of_function(node: ast.AST) -> list[ast.AST]:
    """Return the nodes inside a function, without those of nested functions."""
    nodes = list(ast.iter_child_nodes(node))
    for each in nodes:
        if not isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            nodes += ast.iter_child_nodes(each)
    return nodes


def is_function_used_by_transform(transform: str, name: str, modules: ProjectModules) -> bool:
    """Return whether a transform, or a function of the project that it uses, names a function such as ``session_window``.

    Parameters
    ----------
    transform
        Must have passed :func:`check_transform`.
    name
        Name of a PySpark function.
    """
    of, function = transform.split(":")
    module = modules.module_or_parse_error(of)
    if not isinstance(module, PipelineModule):
        return False
    waiting = [modules.find_module_and_function(module, function)]
    seen: set[tuple[str, int]] = set()
    while waiting:
        if (current := waiting.pop()) is None:
            continue
        home, node = current
        if node is None or (home.name, node.lineno) in seen:
            continue
        seen.add((home.name, node.lineno))
        called = {alias: there for _, _, names in home.imports for alias, there in names.items()}
        for each in ast.walk(node):
            if isinstance(each, ast.Attribute) and each.attr == name:
                return True
            if isinstance(each, ast.Name):
                if called.get(each.id, each.id) == name:
                    return True
                waiting.append(modules.find_module_and_function(home, each.id))
    return False


def may_make_column(transform: str, word: str, modules: ProjectModules) -> bool:
    """Return whether a transform can make a column of this name, judged by the words in its modules.

    Parameters
    ----------
    transform
        Must have passed :func:`check_transform`.
    word
        A column that is not in its input.

    Returns
    -------
    bool
        True also if the modules build names at run time.
    """
    module = modules.module_or_parse_error(transform.split(":")[0])
    if not isinstance(module, PipelineModule):
        return True
    return any(
        _mentions_word(node, word)
        for each in modules.module_and_its_imports(module)
        for node in ast.walk(each.tree)
    )


def _mentions_word(node: ast.AST, word: str) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and (word in node.value or ".*" in node.value)
    if isinstance(node, ast.Attribute):
        of_text = isinstance(node.value, ast.Constant)  # "".join, "{}".format
        return of_text or node.attr in (word, "pivot")
    if isinstance(node, ast.BinOp):
        return any(
            isinstance(each, ast.Constant) and isinstance(each.value, str) for each in (node.left, node.right)
        )
    if isinstance(node, ast.Name):
        return node.id == word
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.keyword) and node.arg == word)
