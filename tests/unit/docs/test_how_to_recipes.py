"""Each recipe is a file beside those of a new project: it loads, and it plans."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest
from policy_sentry.querying.actions import get_action_data

from millrace.cli.plan.init_project import new_project_texts_by_path
from millrace.config import Names, load
from millrace.infra.launch.job_spark_settings import database_location
from millrace.sizing import plan
from tests.tls_proxy import Authority

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "docs" / "how-to"
RECIPES = sorted(each for each in FOLDER.glob("*.md") if each.name != "index.md")
FILE = re.compile(r"^```\w+\n(?:#|--|//) (\S+)\n(.*?)^```", re.M | re.S)


def recipe(page: Path) -> dict[str, str]:
    """Files of a recipe by their paths, which the first line of each block names."""
    return dict(FILE.findall(page.read_text()))


WITH_FILES = [page for page in RECIPES if recipe(page)]


def project(folder: Path, page: Path) -> Path:
    """Write a new project, and the recipe's files in it."""
    for name, text in {**new_project_texts_by_path("my-streams"), **recipe(page)}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    for name in re.findall(r"authorities: (\S+)", page.read_text()):
        (folder / name).write_bytes(Authority("a region").pem)
    return folder


@pytest.mark.parametrize("page", WITH_FILES, ids=lambda page: page.stem)
def test_a_recipe_plans(page: Path, tmp_path: Path) -> None:
    root = project(tmp_path, page)
    for path in recipe(page):
        if path.endswith(".py"):
            ast.parse((root / path).read_text())
    for name in [Path(path).stem for path in recipe(page) if path.startswith("environments/")] or ["dev"]:
        assert plan(load(name, root=root)).jobs


def test_there_are_twenty() -> None:
    assert len(RECIPES) >= 20
    assert len(WITH_FILES) > len(RECIPES) / 2


def test_the_list_has_each_once() -> None:
    listed = re.findall(r"\]\(([\w-]+\.md)\)", (FOLDER / "index.md").read_text())
    assert sorted(listed) == [page.name for page in RECIPES]


def test_the_policy_of_analysts_names_what_a_new_project_deploys(tmp_path: Path) -> None:
    """The names of its environment `dev`, and actions that IAM knows."""
    page = FOLDER / "analysts.md"
    names = Names(load("dev", root=project(tmp_path, page)), "111122223333")
    (text,) = re.findall(r"^```json\n(.*?)^```", page.read_text(), re.M | re.S)
    statements = json.loads(text)["Statement"]
    for action in (action for each in statements for action in each["Action"]):
        service, name = action.split(":")
        assert get_action_data(service, name), action
    place = database_location(names).removeprefix("s3://")
    table = f"{names.database}/orders_priced"
    assert f"arn:aws:s3:::{place}/orders_priced/*" in text
    assert f'arn:aws:s3:::{names.bucket("lake")}"' in text
    assert names.arn("glue", f"table/{table}") in text
    assert names.arn("glue", f"database/{names.database}") in text
