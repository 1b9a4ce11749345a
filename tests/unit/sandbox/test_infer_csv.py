"""Schemas of CSV samples, whose values Spark reads by its own rules."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from millrace.sandbox.schemas import ddl_and_pyspark_types, read_sample_records
from millrace.sandbox.schemas.infer import (
    infer_from_csv,
)
from tests.unit.sandbox.test_infer_command import run


def test_digits_of_other_scripts_are_texts_in_csv() -> None:
    payloads = ["１２,٣.٥".encode()]
    assert (
        infer_from_csv(payloads, None, delimiter=",").schema.simpleString() == "struct<c1:string,c2:string>"
    )


def test_columns_of_csv_go_by_their_places_so_a_name_that_none_can_have_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "orders.csv"
    file.write_bytes("id; total;ID;_x;\n1;2.50;3;4;5\n".encode("utf-8-sig"))
    names = read_sample_records.csv_header(file, ";")
    found = infer_from_csv(read_sample_records.read_nonempty_lines(file, 9)[1:], names, delimiter=";")
    assert found.schema.names == ["id", "total", "c3", "c4", "c5"]
    assert [bool(f.conflicts) for f in found.fields] == [False, True, True, True, True]
    assert read_sample_records.read_nonempty_lines(file, 1)[0].startswith(b"id;")


def test_csv() -> None:
    payloads = [b'1,007,2.5,"a,b",true,2026-01-01', b"2,008,NA,,FALSE,", b"3,x", b"\xff,,,,,", b'"1,2']
    result = infer_from_csv(payloads, None, delimiter=",", null="NA")
    assert [ddl_and_pyspark_types.type_as_ddl(f.dataType) for f in result.schema] == [
        "BIGINT",
        "STRING",
        "DOUBLE",
        "STRING",
        "BOOLEAN",
        "DATE",
    ]
    assert result.schema.fieldNames() == ["c1", "c2", "c3", "c4", "c5", "c6"]
    assert (result.records, result.unreadable) == (2, 3)
    assert (
        infer_from_csv([b"1;x"], ["n", "t"], delimiter=";").schema.simpleString()
        == "struct<n:bigint,t:string>"
    )
    assert infer_from_csv([b"1;x"], ["n", "t"], delimiter=";", narrow=True).schema.simpleString() == (
        "struct<n:int,t:string>"
    )


def test_csv_that_spark_refuses_is_unreadable() -> None:
    found = infer_from_csv([b"x\0y,1", b"z,2", b'"' + b"y" * 200_000 + b'",3'], ["a", "b"], delimiter=",")
    assert (found.records, found.unreadable, found.reason) == (2, 1, "a NUL or a byte order mark")
    assert infer_from_csv([b"1" * 5000], ["x"], delimiter=",").schema.simpleString() == "struct<x:string>"


def test_an_empty_text_in_quotes_is_null_only_without_another_null_text() -> None:
    payloads = [b'1,"","a,"",b"', b'2,"NA",x', b",3,"]
    for null, types, absent in (("", "bigint,b:string", [1, 1, 1]), ("NA", "bigint,b:string", [1, 1, 1])):
        found = infer_from_csv(payloads, ["a", "b", "c"], delimiter=",", null=null)
        assert found.schema.simpleString() == f"struct<a:{types},c:string>"
        assert [each.absent for each in found.fields] == absent
    numbers = [b'"",b', b"NA,c", b"1,d"]
    assert infer_from_csv(numbers, ["n", "s"], delimiter=",", null="NA").schema["n"].dataType.typeName() == (
        "string"
    )
    assert infer_from_csv(numbers[::2], ["n", "s"], delimiter=",").schema["n"].dataType.typeName() == "long"


def test_empty_columns_and_empty_lines_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("a\tb\n1\t2\n\t\n\n3\t4\n")
    status, shown = run("--file", str(tmp_path / "t.tsv"), "--required", "--json")
    found = json.loads(shown)
    assert (status, found["records"], found["unreadable"]) == (0, 3, 0)
    assert found["schema"] == "a BIGINT,\nb BIGINT\n"
    (tmp_path / "o.csv").write_text("\n\nid,name\n1,a\n")
    assert json.loads(run("--file", str(tmp_path / "o.csv"), "--json")[1])["schema"] == (
        "id BIGINT,\nname STRING\n"
    )


@pytest.mark.parametrize(
    ("lines", "delimiter"),
    [
        (["id;note", f"1;{'z' * 200_000}", "2;b"], ";"),
        (["id;price", "1;1,5", "2;2,5"], ";"),
        (["1;1,5", "2;2,5"], ";"),
        (["a\tb", "\t", "1\t2"], "\t"),
        (["one", "two"], ","),
        ([], ","),
    ],
)
def test_the_delimiter_makes_as_many_columns_as_the_first_record_has(
    lines: list[str], delimiter: str
) -> None:
    payloads = [each.encode() for each in lines]
    assert read_sample_records.guess_delimiter(payloads, None) == delimiter


def test_the_delimiter_makes_as_many_columns_as_there_are_names() -> None:
    payloads = [b"1;Oslo, N | E;2026-01-01", b"2;Rome, I | E;2026-01-02", b"broken"]
    assert read_sample_records.guess_delimiter(payloads, None) == ";"
    assert read_sample_records.guess_delimiter(payloads, ["id", "city", "at"]) == ";"
    assert read_sample_records.guess_delimiter([b"1;2"], ["one"]) == ";"
