"""The saved project of a release, which later versions must load and plan."""

from __future__ import annotations

import json
from pathlib import Path

from millrace.cli.plan.init_project import new_project_texts_by_path

FOLDER = Path(__file__).parent
NAME = "my-streams"


def kept(version: str) -> Path:
    """The file that keeps the project of a release: its files by their paths."""
    return FOLDER / f"{version}-project.json"


def keep(version: str) -> Path:
    """Write this version's project."""
    file = kept(version)
    # The JSON Schema is for editors; no command reads it.
    made = {
        name: text
        for name, text in new_project_texts_by_path(NAME).items()
        if not name.endswith("schema.json")
    }
    file.write_text(json.dumps(made, indent=1, sort_keys=True) + "\n")
    return file


def unpack(file: Path, folder: Path) -> Path:
    """Write a kept project into a folder."""
    for name, text in json.loads(file.read_text()).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder
