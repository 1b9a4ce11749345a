"""A wrong user file is reported in one message, without a traceback."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.unit.cli.test_command_output import millrace
from tests.unit.config.conftest import project

__all__ = ["project"]


def told(status: int, *arguments: str, cwd: Path) -> str:
    done = millrace(*arguments, cwd=cwd)
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    return re.sub(r"[\s│]+", " ", done.stderr)


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    (tmp_path / "orders.csv").write_text("id;city\n1;Oslo\n2;Rome\n")
    (tmp_path / "tabs.csv").write_text("id\tcity\n1\tOslo\n")
    (tmp_path / "latin.csv").write_bytes("id;stäte\n1;Köln\n".encode("latin-1"))
    return tmp_path


@pytest.mark.parametrize("delimiter", [";;", '"', "\n", ""])
def test_columns_are_divided_by_one_character(orders: Path, delimiter: str) -> None:
    arguments = ("schema", "infer", "--file", "orders.csv", "--delimiter", delimiter)
    assert "such as ';'" in told(2, *arguments, cwd=orders)


@pytest.mark.parametrize(
    ("file", "delimiter"), [("orders.csv", ";"), ("tabs.csv", "\t"), ("tabs.csv", "\\t")]
)
def test_a_tab_may_be_written_as_a_backslash_and_a_t(orders: Path, file: str, delimiter: str) -> None:
    out = orders / "order.ddl"
    arguments = ("schema", "infer", "--file", file, "--delimiter", delimiter, "--out", str(out))
    assert told(0, *arguments, cwd=orders) is not None
    assert re.findall(r"\w+", out.read_text())[:4] == ["id", "BIGINT", "city", "STRING"]


def test_a_csv_file_that_is_no_text_in_utf_8(orders: Path) -> None:
    message = told(1, "schema", "infer", "--file", "latin.csv", cwd=orders)
    assert "millrace schema infer: latin.csv is not UTF-8 text (byte 5)" in message


def test_traffic_from_a_file_that_is_no_text_in_utf_8(project: Path) -> None:
    (project / "latin.csv").write_bytes("page\nK\xf6ln\n".encode("latin-1"))
    arguments = ("traffic", "clicks", "--env", "shop", "--from", "latin.csv", "--dry-run")
    message = told(2, *arguments, cwd=project)
    assert "millrace traffic: latin.csv is not UTF-8 text (byte 6)" in message


def test_traffic_from_a_file_with_a_wide_column(project: Path) -> None:
    (project / "wide.csv").write_text("page\n" + "x" * 200_000 + "\n")
    arguments = ("traffic", "clicks", "--env", "shop", "--from", "wide.csv", "--dry-run")
    told(0, *arguments, cwd=project)


def test_a_schema_that_cannot_be_written_is_told_before_records_are_read(orders: Path) -> None:
    arguments = ("schema", "infer", "--file", "latin.csv", "--out", "orders.csv/x.ddl")
    message = told(2, *arguments, cwd=orders)
    assert (
        "--out is orders.csv/x.ddl; allowed: a file that you have permission to write (Not a directory"
        in message
    )


def test_a_notebook_goes_into_a_folder_that_exists(project: Path) -> None:
    arguments = ("notebook", "--env", "shop", "clicks", "-o", "nowhere/n.ipynb")
    message = told(2, *arguments, cwd=project)
    assert (
        "--output is nowhere/n.ipynb; allowed: a file that you have permission to write (No such file"
        in message
    )


def test_the_schema_of_environments_goes_into_a_project(
    project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    message = told(2, "schema", "--write", cwd=elsewhere)
    assert "no folder environments/ here or in a folder above" in message
    assert not list(elsewhere.iterdir())
    told(0, "schema", "--write", cwd=project / "pipelines" / "shop")
    assert (project / "environments" / "schema.json").read_text().startswith("{")
