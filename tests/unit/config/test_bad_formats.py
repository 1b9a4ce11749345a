"""Each mistake in a payload format gives one problem; `#!` marks the line that it must name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from millrace.config import ConfigurationError, load
from millrace.config.engines.versions import VERSIONS
from tests import protobuf_without_protoc
from tests.unit.config.conftest import GOOD

LAND = "jobs.clicks.queries.land-clicks"
SCHEMA = "        table: clicks_landed\n        schema: pipelines/shop/schemas/click.ddl\n"
TABLE = "        table: clicks_landed\n"
FOLDER = "pipelines/shop/schemas"
AVRO = "{kind: avro, framing: confluent, writers: pipelines/shop/schemas/%s}"

DESCRIPTOR = protobuf_without_protoc.descriptor_set(
    protobuf_without_protoc.file(
        "order.proto",
        "shop",
        [
            protobuf_without_protoc.message(
                "Order",
                [
                    protobuf_without_protoc.Declared("n", 1, protobuf_without_protoc.INT64),
                    protobuf_without_protoc.Declared("page", 2, protobuf_without_protoc.STRING),
                ],
            )
        ],
    )
)


def _with(schema: str, form: str) -> str:
    return f"{TABLE}        schema: {FOLDER}/{schema}\n        format: {form}\n"


def files(root: Path) -> None:
    """Add the schema files that the rows name."""
    folder = root / FOLDER
    (folder / "nested.ddl").write_text("page STRING, tags ARRAY<STRING>\n")
    (folder / "bytes.ddl").write_text("page STRING, body BINARY\n")
    (folder / "page.ddl").write_text("page STRING\n")
    (folder / "two.ddl").write_text("page STRING, time TIMESTAMP\n")
    (folder / "unit.ddl").write_text(
        "page STRING, at TIMESTAMP COMMENT 'epoch millis', "
        "a STRUCT<at: ARRAY<TIMESTAMP> COMMENT 'epoch days', b: TIMESTAMP COMMENT 'epoch Seconds', c: INT COMMENT 'epoch'>\n"
    )
    decimal = '{"name":"f%d","type":{"type":"bytes","logicalType":"decimal","precision":%d,"scale":%d}}'
    page = '{"name":"page","type":"string"}'
    fields = ",".join(decimal % each for each in ((1, 40, 2), (2, 2, 3), (3, 38, 38)))
    (folder / "decimals.avsc").write_text(f'{{"type":"record","name":"R","fields":[{page},{fields}]}}')
    (folder / "click.avsc").write_text(
        '{"type":"record","name":"Click","fields":[{"name":"page","type":"string"}]}'
    )
    (folder / "broken.avsc").write_text('{"type":"record"')
    (folder / "enum.avsc").write_text('{"type":"enum","name":"E","symbols":["A"]}')
    for name, field, kind in (
        ("player", "at", ["null", "shop.Position"]),
        ("reserved", "_id", "string"),
        ("node", "next", ["null", "R"]),
    ):
        fields = [{"name": "page", "type": "string"}, {"name": field, "type": kind}]
        record = {"type": "record", "name": "R", "fields": fields}
        (folder / f"{name}.avsc").write_text(json.dumps(record))
    for number, name in ((1, "player"), (2, "node")):
        (folder / "written").mkdir(exist_ok=True)
        (folder / "written" / f"{number}.avsc").write_text((folder / f"{name}.avsc").read_text())
    (folder / "order.desc").write_bytes(DESCRIPTOR)
    for name, inner in (("node", "Node"), ("lacking", "Item"), ("reserved", "")):
        part = protobuf_without_protoc.Declared(
            "_n" if name == "reserved" else "n", 1, protobuf_without_protoc.INT64
        )
        if inner:
            part = protobuf_without_protoc.Declared("n", 1, 11, of=f"shop.{inner}")
        page = protobuf_without_protoc.Declared("page", 2, protobuf_without_protoc.STRING)
        made = protobuf_without_protoc.message("Node", [part, page])
        (folder / f"{name}.desc").write_bytes(
            protobuf_without_protoc.descriptor_set(protobuf_without_protoc.file("n.proto", "shop", [made]))
        )
    (folder / "broken.desc").write_bytes(b"\x0a\xff")
    damaged = protobuf_without_protoc.block(1, "Order") + protobuf_without_protoc.block(2, b"\x80")
    editions = protobuf_without_protoc.file("order.proto", "shop", [], syntax="editions")
    for name, file in (
        ("damaged", protobuf_without_protoc.file("order.proto", "shop", [damaged])),
        ("editions", editions),
    ):
        (folder / f"{name}.desc").write_bytes(protobuf_without_protoc.descriptor_set(file))
    (folder / "empty").mkdir()
    (folder / "named").mkdir()
    (folder / "named" / "click.avsc").write_text((folder / "click.avsc").read_text())


_UNITS = "COMMENT 'epoch' is followed by one of: seconds, milliseconds, microseconds, nanoseconds"
ROWS = {
    "units of epoch numbers": (
        SCHEMA, _with("unit.ddl #!", "json"), f"{LAND}.schema", f"{FOLDER}/unit.ddl", f"at: {_UNITS}; a.at: {_UNITS}", None,
    ),
    "decimals that no column holds": (
        SCHEMA, _with("decimals.avsc #!", "avro"), f"{LAND}.schema", f"{FOLDER}/decimals.avsc",
        "an Avro schema: a decimal has at most 38 digits, and a scale no larger than the precision: decimal(40,2), decimal(2,3)", None,
    ),
    "an unknown format": (
        SCHEMA, _with("click.ddl", "xml #!"), f"{LAND}.format.kind", "xml", "json or text or csv or avro or protobuf",
        None,
    ),
    "an option that a format has not": (
        SCHEMA, _with("click.ddl", "{kind: csv, separator: x} #!"), f"{LAND}.format.separator", "unknown, x",
        "delimiter", None,
    ),
    "a delimiter of two characters": (
        SCHEMA, _with("click.ddl", '{kind: csv, delimiter: "||"} #!'), f"{LAND}.format.delimiter", "||",
        "one character", None,
    ),
    **{
        f"{said} as the {key}": (
            SCHEMA, _with("click.ddl", f"{{kind: csv, {key}: '{given}'}} #!"), f"{LAND}.format.{key}", given,
            "one character of ASCII that is no letter, digit or backslash", None,
        )
        for key, given, said in (
            ("delimiter", "\\", "a backslash"), ("delimiter", "1", "a digit"), ("delimiter", "x", "a letter"), ("quote", " ", "a blank"),
            ("quote", "f", "a letter"),
        )
    },
    "a delimiter that is the quote": (
        SCHEMA, _with("click.ddl", "{kind: csv, delimiter: \"'\", quote: \"'\"} #!"), f"{LAND}.format.quote", "'",
        "another character than the delimiter", None,
    ),
    "a schema of another format": (
        SCHEMA, _with("click.ddl #!", "avro"), f"{LAND}.schema", f"{FOLDER}/click.ddl",
        "an .avsc file below pipelines/, named from there on without .., which travels with the job for format avro", None,
    ),
    "nested columns in CSV": (
        SCHEMA, _with("nested.ddl #!", "csv"), f"{LAND}.schema", f"{FOLDER}/nested.ddl", "CSV has no ARRAY", None,
    ),
    "bytes in CSV": (
        SCHEMA, _with("bytes.ddl #!", "csv"), f"{LAND}.schema", f"{FOLDER}/bytes.ddl", "CSV has no BINARY", None,
    ),
    "two fields of text": (
        SCHEMA, _with("two.ddl #!", "text"), f"{LAND}.schema", f"{FOLDER}/two.ddl", "one STRING field", None,
    ),
    "an Avro schema that is no JSON": (
        SCHEMA, _with("broken.avsc #!", "avro"), f"{LAND}.schema", f"{FOLDER}/broken.avsc", "not JSON", None,
    ),
    "an Avro schema that is no record": (
        SCHEMA, _with("enum.avsc #!", "avro"), f"{LAND}.schema", f"{FOLDER}/enum.avsc", "not a record", None,
    ),
    "an Avro schema with a type of another file": (
        SCHEMA, _with("player.avsc #!", "avro"), f"{LAND}.schema", f"{FOLDER}/player.avsc",
        "an Avro schema: type shop.Position is not defined in the file", None,
    ),
    "a recursive Avro schema": (
        SCHEMA, _with("node.avsc #!", "avro"), f"{LAND}.schema", f"{FOLDER}/node.avsc",
        "an Avro schema: no column can hold a recursive type", None,
    ),
    "a reserved name in an Avro schema": (
        SCHEMA, _with("reserved.avsc #!", "avro"), f"{LAND}.schema", f"{FOLDER}/reserved.avsc",
        "names that begin with _ are reserved: _id", None,
    ),
    # The recursive one beside it is accepted: its reader does not have that field.
    "a writer's schema with a type of another file": (
        SCHEMA, _with("click.avsc", AVRO % "written" + " #!"), f"{LAND}.format.writers", f"{FOLDER}/written/1.avsc",
        "an Avro schema: type shop.Position is not defined in the file", None,
    ),
    "a recursive message": (
        SCHEMA, _with("node.desc #!", "{kind: protobuf, message: shop.Node}"), f"{LAND}.schema", f"{FOLDER}/node.desc",
        "message shop.Node is recursive", None,
    ),
    "a descriptor without its imports": (
        SCHEMA, _with("lacking.desc #!", "{kind: protobuf, message: shop.Node}"), f"{LAND}.schema", f"{FOLDER}/lacking.desc",
        "the file lacks the type shop.Item; write the file again with protoc --include_imports", None,
    ),
    "a reserved name in a message": (
        SCHEMA, _with("reserved.desc #!", "{kind: protobuf, message: shop.Node}"), f"{LAND}.schema", f"{FOLDER}/reserved.desc",
        "names that begin with _ are reserved: _n", None,
    ),
    "framing without schemas": (
        SCHEMA, _with("click.avsc", "{kind: avro, framing: confluent} #!"), f"{LAND}.format.writers", "(missing)",
        "either writers or registry", None,
    ),
    "writers without framing": (
        SCHEMA, _with("click.avsc", "{kind: avro, writers: pipelines/shop/schemas/named} #!"),
        f"{LAND}.format.writers", "pipelines/shop/schemas/named", "only with framing", None,
    ),
    "schemas of Avro for events in JSON": (
        SCHEMA, _with("click.ddl", "{kind: debezium, framing: glue} #!"), f"{LAND}.format.framing", "glue",
        "only with payload: avro", None,
    ),
    "events in Avro without schemas": (
        SCHEMA, _with("click.ddl", "{kind: debezium, payload: avro} #!"), f"{LAND}.format.writers", "(missing)",
        "either writers or registry", None,
    ),
    "a registry without a subject": (
        SCHEMA, _with("click.avsc", "{kind: avro, framing: confluent, registry: 'https://registry.example'} #!"),
        f"{LAND}.format.subject", "(missing)", "go together", None,
    ),
    "a registry without an address": (
        SCHEMA, _with("click.avsc", "{kind: avro, registry: c.example} #!"),
        f"{LAND}.format.registry", "c.example", "begins with https://", None,
    ),
    "no folder of writers": (
        SCHEMA, _with("click.avsc", AVRO % "none" + " #!"), f"{LAND}.format.writers", f"{FOLDER}/none",
        "a folder below pipelines/ that exists", None,
    ),
    "a folder of writers whose name is too long": (
        SCHEMA, _with("click.avsc", AVRO % ("a" * 300) + " #!"), f"{LAND}.format.writers", f"{FOLDER}/{'a' * 300}",
        "a folder below pipelines/ that exists", None,
    ),
    "a folder of writers by a path that the archive has not": (
        SCHEMA, _with("click.avsc", AVRO % "../schemas/empty" + " #!"), f"{LAND}.format.writers", f"{FOLDER}/../schemas/empty",
        "a folder below pipelines/ that exists", None,
    ),
    "no writers in the folder": (
        SCHEMA, _with("click.avsc", AVRO % "empty" + " #!"), f"{LAND}.format.writers", f"{FOLDER}/empty",
        "schemas by their ids", None,
    ),
    "a writer whose name is no id": (
        SCHEMA, _with("click.avsc", AVRO % "named" + " #!"), f"{LAND}.format.writers", f"{FOLDER}/named/click.avsc",
        "a number, such as 17.avsc", None,
    ),
    "a registry of Glue by URL": (
        SCHEMA, _with("click.avsc", "{kind: avro, framing: glue, subject: s, registry: 'https://c.example'} #!"),
        f"{LAND}.format.registry", "https://c.example", "give its schemas as writers", None,
    ),
    "a registry that always wants a login": (
        SCHEMA,
        _with(
            "click.avsc",
            "{kind: avro, framing: confluent, subject: s, registry: 'https://a.eu.confluent.cloud'} #!",
        ),
        f"{LAND}.format.registry", "https://a.eu.confluent.cloud", "give its schemas as writers", None,
    ),
    "a descriptor that is none": (
        SCHEMA, _with("broken.desc #!", "{kind: protobuf, message: shop.Order}"), f"{LAND}.schema",
        f"{FOLDER}/broken.desc", "a file that protoc wrote with --descriptor_set_out: truncated inside a varint", None,
    ),
    "a descriptor that is damaged inside its message": (
        SCHEMA, _with("damaged.desc #!", "{kind: protobuf, message: shop.Order}"), f"{LAND}.schema",
        f"{FOLDER}/damaged.desc", "a file that protoc wrote with --descriptor_set_out: truncated inside a varint", None,
    ),
    "a descriptor of a language that is not read": (
        SCHEMA, _with("editions.desc #!", "{kind: protobuf, message: shop.Order}"), f"{LAND}.schema",
        f"{FOLDER}/editions.desc", "syntax editions is not supported; use proto2 or proto3", None,
    ),
    "a message that is not there": (
        SCHEMA, _with("order.desc", "{kind: protobuf, message: shop.Ordre} #!"), f"{LAND}.format.message",
        "shop.Ordre", "a message of pipelines/shop/schemas/order.desc: shop.Order", "did you mean shop.Order?",
    ),
    "no message": (
        SCHEMA, _with("order.desc", "protobuf"), f"{LAND}.format.message", "(missing)", "Full name", None,
    ),
}  # fmt: skip


def write(project: Path, text: str) -> None:
    files(project)
    (project / "environments" / "shop.yaml").write_text(text)


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_one_message_names_file_line_key_value_and_what_is_allowed(row: tuple, project: Path) -> None:
    old, new, key, value, allowed, hint = row
    text = GOOD.replace(old, new)
    write(project, text)
    with pytest.raises(ConfigurationError) as caught:
        load("shop", root=project)
    problem, *others = sorted(caught.value.problems, key=lambda each: each.key != key)
    # What could not be read counts as left out, and the schema is then another format's.
    assert [each.key for each in others] == [f"{LAND}.schema"] * (row is ROWS["no message"])
    assert (problem.key, problem.value) == (key, value)
    assert allowed in problem.allowed
    assert hint is None or hint in (problem.hint or "")
    if "#!" in new:
        assert problem.line == next(n for n, line in enumerate(text.splitlines(), 1) if "#!" in line)


@pytest.mark.parametrize("version", [each.name for each in VERSIONS if each.engine == "glue"])
def test_avro_is_for_every_version(project: Path, version: str) -> None:
    text = GOOD.replace('version: "5.1"', f'version: "{version}"').replace(
        SCHEMA, _with("click.avsc", "avro")
    )
    write(project, text)
    assert load("shop", root=project).jobs["clicks"].version == version


GOOD_FORMATS = {
    "json": ("click.ddl", "json"),
    "text": ("page.ddl", "text"),
    "csv": ("two.ddl", "csv"),
    "csv with options": ("two.ddl", '{kind: csv, delimiter: ";", quote: "\'", null: NA}'),
    "avro": ("click.avsc", "avro"),
    "avro with schemas by id": (
        "click.avsc",
        "{kind: avro, framing: confluent, writers: pipelines/shop/ids}",
    ),
    "avro with a registry": (
        "click.avsc",
        "{kind: avro, framing: confluent, registry: 'https://registry.example:8081', subject: clicks-value}",
    ),
    "avro in Glue's framing": ("click.avsc", "{kind: avro, framing: glue, writers: pipelines/shop/uuids}"),
    "protobuf": ("order.desc", "{kind: protobuf, message: shop.Order}"),
    "debezium in avro": ("click.ddl", "{kind: debezium, payload: avro, writers: pipelines/shop/ids}"),
}


@pytest.mark.parametrize("name", GOOD_FORMATS)
def test_every_format_is_taken(name: str, project: Path) -> None:
    schema, form = GOOD_FORMATS[name]
    write(project, GOOD.replace(SCHEMA, _with(schema, form)))
    avsc = (project / FOLDER / "click.avsc").read_text()
    for folder, file in (("ids", "17"), ("uuids", "0b5c6d2e-9c1a-4b6e-8d53-0a4a3c2b1d00")):
        (project / "pipelines" / "shop" / folder).mkdir()
        (project / "pipelines" / "shop" / folder / f"{file}.avsc").write_text(avsc)
    query = load("shop", root=project).jobs["clicks"].queries["land-clicks"]
    assert query.format.kind == name.split()[0]


@pytest.mark.parametrize("place", ["outside", "link", "large"])
def test_a_schema_is_read_only_where_it_has_an_end(
    place: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of ``/dev/zero``, all memory was filled before the path was refused."""
    schema = project / "pipelines" / "shop" / "schemas" / "click.ddl"
    file = project / "endless.ddl" if place == "outside" else schema
    if place == "link":
        schema.unlink()
        schema.symlink_to("/dev/null")
    else:
        with file.open("wb") as opened:
            opened.truncate(4 * 1024 * 1024 + 1)
    environment = project / "environments" / "shop.yaml"
    if place == "outside":
        text = environment.read_text()
        environment.write_text(text.replace("schema: pipelines/shop/schemas/click.ddl", f"schema: {file}"))
    read, read_text = [], Path.read_text

    def spy(path: Path, *args: Any, **options: Any) -> str:
        read.append(path.resolve())
        return read_text(path, *args, **options)

    monkeypatch.setattr(Path, "read_text", spy)
    with pytest.raises(ConfigurationError) as caught:
        load("shop", root=project)
    assert file.resolve() not in read
    allowed = {each.allowed for each in caught.value.problems if each.key.endswith(".schema")}
    assert any(
        ("at most 4,194,304 bytes" if place == "large" else "below pipelines/") in each for each in allowed
    )
