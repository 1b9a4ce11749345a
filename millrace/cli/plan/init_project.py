"""``millrace init``: creates a project with Millrace as a dependency."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from string import Template
from typing import Annotated

import typer

from millrace.cli.plan.vendor_millrace_wheel import install_wheel_in_project, write_wheel_of_this_program
from millrace.cli.shared.expected_failures import reporting_write_errors_as_wrong_option
from millrace.config import environment_names, load
from millrace.config.base import SLUG, SLUG_SAID
from millrace.config.document.problems import ConfigurationError, wrong_option_error
from millrace.config.environment_json_schema import SCHEMA_FILE, schema_text

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
