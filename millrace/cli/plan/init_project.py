"""``millrace init`` and ``millrace vendor``: a project with Millrace as a dependency, and the wheel and locks in it.

Nothing that a project installs is asked of a package index by the name of Millrace: the wheel lies in ``vendor/``, and
everything beside it is a line of its own lock.
"""

from __future__ import annotations

import base64
import hashlib
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from importlib import resources
from importlib.metadata import distribution
from importlib.resources.abc import Traversable
from pathlib import Path
from string import Template
from typing import Annotated

import typer

from millrace.cli.shared.console import REFUSED, reporting_write_errors_as_wrong_option
from millrace.config import environment_names, find_root, load
from millrace.config.base import SLUG, SLUG_SAID
from millrace.config.document.problems import ConfigurationError, wrong_option_error
from millrace.config.environment_json_schema import SCHEMA_FILE, schema_text
from millrace.sandbox.programs.toolchain import ROOT

DISTRIBUTION = "millrace-streams"
FOLDER = "vendor"

LOCKS: Mapping[str, str] = {
    "base": "requirements.txt",
    "deploy": "requirements-deploy.txt",
    "sandbox": "requirements-sandbox.txt",
}
"""Files of requirements that a project has, by the lock in the wheel: that of the base or of an extra."""

_FIRST = (1980, 1, 1, 0, 0, 0)
_MADE_HERE = ("INSTALLER", "RECORD", "REQUESTED", "direct_url.json", "uv_cache.json")
"""Files that an installer puts beside a wheel's own."""


def vendor(
    wheel: Annotated[
        Path | None,
        typer.Argument(
            metavar="[WHEEL]", help="Wheel of Millrace. Default: the one that this command runs from."
        ),
    ] = None,
) -> None:
    """Put a wheel of Millrace into the project's vendor/, and write files of requirements that install it with hashes.

    Replaces the wheel that is there, and its requirements. Nothing of the given wheel is run.

    [bold]Examples[/bold]

      millrace vendor ../millrace_streams-0.1.0-py3-none-any.whl
    """
    root = find_root()
    with tempfile.TemporaryDirectory() as scratch:
        wheel_file = wheel or write_wheel_of_this_program(Path(scratch))
        for file in install_wheel_in_project(wheel_file, root):
            typer.echo(f"wrote {file}")
    typer.echo("next step: pip install --require-hashes -r requirements.txt")


def install_wheel_in_project(wheel: Path, root: Path) -> list[Path]:
    """Put a wheel into a project in place of the one that is there, and write the requirements.

    Returns
    -------
    list of Path
        The written files.

    Raises
    ------
    ConfigurationError
        The file is no wheel of Millrace.
    """
    try:
        with zipfile.ZipFile(wheel) as packed:
            content = wheel.read_bytes()
            locks = {name: packed.read(f"millrace/toolchain/locks/{name}.txt").decode() for name in LOCKS}
    except (OSError, zipfile.BadZipFile, KeyError) as error:
        allowed = (
            f"a wheel of Millrace with its locks: {DISTRIBUTION.replace('-', '_')}-VERSION-py3-none-any.whl"
        )
        raise wrong_option_error("WHEEL", str(wheel), f"{allowed} ({error})") from error
    target = root / FOLDER / wheel.name
    digest = hashlib.sha256(content).hexdigest()
    written = {target: content}
    for name, lock in locks.items():
        extras = "" if name == "base" else f"[{name}]"
        head = "# By `millrace vendor`, for Python 3.11: pip install --require-hashes -r " + LOCKS[name]
        line = f"./{FOLDER}/{wheel.name}{extras} \\\n    --hash=sha256:{digest}"
        written[root / LOCKS[name]] = f"{head}\n{line}\n{lock}".encode()
    with reporting_write_errors_as_wrong_option("WHEEL", root / FOLDER):
        target.parent.mkdir(parents=True, exist_ok=True)
        for left in target.parent.glob(f"{DISTRIBUTION.replace('-', '_')}-*.whl"):
            left.unlink()
        for file, text in written.items():
            file.write_bytes(text)
    return list(written)


def write_wheel_of_this_program(folder: Path) -> Path:
    """Write the wheel that this program runs from and return its path: built in a clone, else packed again from the installed files.

    Raises
    ------
    typer.Exit
        An installed file is not the wheel's.
    """
    if (ROOT / "pyproject.toml").is_file():
        build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
        done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            typer.echo(f"the wheel of this clone cannot be built:\n{done.stderr}", err=True)
            raise typer.Exit(REFUSED)
        (built,) = folder.glob("*.whl")
        return built
    installed = distribution(DISTRIBUTION)
    target = folder / f"{DISTRIBUTION.replace('-', '_')}-{installed.version}-py3-none-any.whl"
    record = []
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as packed:
        info = ""
        for file in sorted(installed.files or (), key=str):
            own = ".." not in file.parts and "__pycache__" not in file.parts
            if file.parts[0].endswith(".dist-info"):
                info, own = file.parts[0], own and file.name not in _MADE_HERE
            if not own:
                continue
            content = Path(str(file.locate())).read_bytes()
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            if file.hash is None or file.hash.value != digest:
                typer.echo(
                    f"{file.locate()} was changed since its installation from the wheel; install "
                    "Millrace again",
                    err=True,
                )
                raise typer.Exit(REFUSED)
            packed.writestr(zipfile.ZipInfo(file.as_posix(), _FIRST), content, zipfile.ZIP_DEFLATED)
            record.append(f"{file.as_posix()},sha256={digest},{len(content)}")
        record.append(f"{info}/RECORD,,")
        packed.writestr(zipfile.ZipInfo(f"{info}/RECORD", _FIRST), "\n".join(record) + "\n")
    return target


_SUFFIX = ".template"


def init(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of the project: new or empty.")],
    name: Annotated[
        str | None,
        typer.Option(
            help="Name of the project; every AWS name begins with it. Default: the folder's name.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Create a project: an environment file, a transform with its test, the CDK app, a pull-request workflow.

    The wheel of Millrace goes into vendor/, and requirements with hashes install it.

    [bold]Examples[/bold]

      millrace init my-streams
    """
    project = folder.resolve().name if name is None else name
    option = "FOLDER" if name is None else "--name"
    if not re.fullmatch(SLUG, project):
        raise wrong_option_error(option, project, f"{SLUG_SAID}; set another name with --name")
    made = new_project_texts_by_path(project)
    with tempfile.TemporaryDirectory() as scratch:
        _write_files(Path(scratch), made)
        try:
            for environment in environment_names(Path(scratch)):
                load(environment, root=Path(scratch))
        except ConfigurationError as error:
            allowed = f"{error.problems[0].allowed}; set another name with --name"
            raise wrong_option_error(option, project, allowed, error.problems[0].hint) from error
    with reporting_write_errors_as_wrong_option("FOLDER", folder):
        if folder.exists() and not folder.is_dir():
            raise wrong_option_error("FOLDER", str(folder), "the name of a new or empty folder")
        if folder.is_dir() and any(folder.iterdir()):
            raise wrong_option_error(
                "FOLDER", str(folder), "a new or empty folder, because no file is overwritten"
            )
        for target in _write_files(folder, made):
            typer.echo(f"wrote {target}")
        with tempfile.TemporaryDirectory() as scratch:
            for target in install_wheel_in_project(write_wheel_of_this_program(Path(scratch)), folder):
                typer.echo(f"wrote {target}")
    typer.echo(f"next step: cd {folder} && millrace plan --env dev")


def _write_files(folder: Path, texts: Mapping[str, str]) -> list[Path]:
    for file, text in texts.items():
        target = folder / file
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    return [folder / file for file in texts]


def new_project_texts_by_path(project: str) -> dict[str, str]:
    """Return the files of a new project.

    Returns
    -------
    dict
        Text by path below the project's folder.
    """
    values = {"project": project}
    texts = {SCHEMA_FILE: schema_text()}
    for path, template in _new_project_file_templates(
        resources.files("millrace.cli.plan") / "new_project", ""
    ):
        text = template.read_text(encoding="utf-8")
        # The file with CDK's feature flags has no placeholders.
        texts[path] = text if path == "cdk.json" else Template(text).substitute(values)
    return dict(sorted(texts.items()))


def _new_project_file_templates(folder: Traversable, path: str) -> Iterator[tuple[str, Traversable]]:
    """Yield the templates; a name with one leading underscore stands for a hidden file."""
    for each in folder.iterdir():
        name = re.sub(r"^_(?!_)", ".", each.name)
        if each.is_dir():
            yield from _new_project_file_templates(each, f"{path}{name}/")
        elif name.endswith(_SUFFIX):
            yield f"{path}{name.removesuffix(_SUFFIX)}", each
