"""Packages and jars of the rivals, in pinned versions, in ``.millrace/rivals``: none is a requirement of the project."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from millrace.sandbox.programs import jars
from millrace.sandbox.programs.toolchain import spark_home, state_folder

HOME = state_folder() / "rivals"


class UnavailableError(RuntimeError):
    """A rival that cannot run here; the message has the reason."""


def python(name: str, packages: Sequence[str]) -> Path:
    """Return the interpreter of an environment that has the packages."""
    environment = HOME / name
    stamp, wanted = environment / "packages.txt", "\n".join(packages)
    if not stamp.exists() or stamp.read_text() != wanted:
        uv = state_folder() / "uv" / "bin" / "uv"
        interpreter = environment / "bin" / "python"
        _run([uv, "venv", "--allow-existing", "--python", "3.11", environment])
        _run([uv, "pip", "install", "--python", interpreter, *packages])
        stamp.write_text(wanted)
    return environment / "bin" / "python"


def jar_files(name: str, artifacts: Sequence[str], *, dependencies: bool) -> list[Path]:
    """Return jars of Maven Central.

    Parameters
    ----------
    artifacts
        As ``group:name:version``.
    dependencies
        Whether to resolve what they need, too.
    """
    folder = HOME / "jars" / name
    stamp, wanted = folder / "artifacts.txt", "\n".join(artifacts)
    if not stamp.exists() or stamp.read_text() != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        lines = "".join(
            '<dependency org="{}" name="{}" rev="{}" conf="default->master{}"/>'.format(
                *each.split(":"), ",runtime" if dependencies else ""
            )
            for each in artifacts
        )
        info = f'<info organisation="millrace" module="{name}"/>'
        with tempfile.TemporaryDirectory(dir=HOME) as scratch:
            try:
                jars._run_ivy_and_read_report(
                    f'<ivy-module version="2.0">{info}<dependencies>{lines}</dependencies></ivy-module>',
                    name,
                    Path(scratch),
                )
            except jars.JarError as error:
                raise UnavailableError(str(error)) from error
            for path in Path(scratch).glob("*.jar"):
                shutil.move(path, folder)
        stamp.write_text(wanted)
    return sorted(folder.glob("*.jar"))


def hadoop() -> list[Path]:
    """Return the jars of Hadoop's client, by which Iceberg writes files; PySpark has them."""
    home = spark_home() / "jars"
    return sorted([*home.glob("hadoop-client-*.jar"), *home.glob("commons-logging-*.jar")])


def sqlite() -> list[Path]:
    """Return the driver of the catalog's database."""
    return [path for path in jars.jar_files("sandbox") if path.name.startswith("sqlite-jdbc")]


def _run(command: Sequence[str | Path]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UnavailableError(done.stderr[-1500:])
