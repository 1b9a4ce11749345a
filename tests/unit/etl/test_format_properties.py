"""What the core asks a format before it reads a payload."""

from __future__ import annotations

import inspect

from millrace.etl.launch.formats import (
    AvroFormat,
    CsvFormat,
    DebeziumFormat,
    DmsFormat,
    Format,
    JsonFormat,
    ProtobufFormat,
    TextFormat,
)

EXAMPLES: tuple[tuple[Format, bool, bool], ...] = (
    (JsonFormat(), True, True),
    (TextFormat(), False, True),
    (CsvFormat(",", '"', ""), False, True),
    (AvroFormat("none", None, None, None), False, False),
    (ProtobufFormat("m"), False, False),
    (DebeziumFormat(None, "precise", False), True, True),
    (DebeziumFormat(AvroFormat("none", None, None, None), "precise", False), False, False),
    (DmsFormat("json"), True, True),
)


def test_bytes_name_their_fields_in_json_and_avro_and_protobuf_are_no_lines() -> None:
    assert {each.kind for each, *_ in EXAMPLES} == set(Format.KINDS)
    assert [(each.has_field_names, each.is_payload_one_text_line) for each, *_ in EXAMPLES] == [
        tuple(expected) for _, *expected in EXAMPLES
    ]


def test_a_format_declares_only_what_all_formats_have() -> None:
    """An attribute under another name would answer nothing, and the default would hold."""
    for kind in Format.KINDS.values():
        fields = inspect.get_annotations(kind)
        own = {name for name in vars(kind) if not name.startswith("_") and name not in fields}
        assert own <= set(vars(Format)), kind
