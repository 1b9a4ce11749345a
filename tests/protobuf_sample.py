"""A Protobuf message with a field of every type."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

from tests import protobuf_without_protoc as pb
from tests.protobuf_without_protoc import Declared

NAME = "shop.Order"

_TIMESTAMP = pb.file(
    "google/protobuf/timestamp.proto",
    "google.protobuf",
    [pb.message("Timestamp", [Declared("seconds", 1, pb.INT64), Declared("nanos", 2, pb.INT32)])],
)
_CUSTOMER = pb.message("Customer", [Declared("name", 1, pb.STRING), Declared("age", 2, pb.INT32)])
_ENTRY = pb.message("StockEntry", [Declared("key", 1, pb.STRING), Declared("value", 2, pb.INT32)], entry=True)
_ORDER = pb.message(
    "Order",
    [
        Declared("id", 1, pb.INT64),
        Declared("title", 2, pb.STRING),
        Declared("price", 3, pb.DOUBLE),
        Declared("weight", 4, pb.FLOAT),
        Declared("paid", 5, pb.BOOL),
        Declared("scan", 6, pb.BYTES),
        Declared("state", 7, pb.ENUM, of="shop.State"),
        Declared("customer", 8, pb.MESSAGE, of="shop.Customer"),
        Declared("sizes", 9, pb.SINT32, pb.REPEATED),
        Declared("tags", 10, pb.STRING, pb.REPEATED),
        Declared("stock", 11, pb.MESSAGE, pb.REPEATED, of="shop.Order.StockEntry"),
        Declared("at", 12, pb.MESSAGE, of="google.protobuf.Timestamp"),
        Declared("huge", 13, pb.UINT64),
        Declared("note", 14, pb.STRING, oneof=0),
        Declared("signed", 15, pb.SINT64),
        Declared("fixed", 16, pb.SFIXED32),
        Declared("unsigned", 17, pb.FIXED64),
    ],
    nested=[_ENTRY],
    oneofs=["_note"],
)
_OLD = pb.message("Old", [Declared("n", 1, pb.INT32, pb.REQUIRED), Declared("text", 2, pb.STRING)])
_BINS_ENTRY = pb.message(
    "BinsEntry", [Declared("key", 1, pb.INT32), Declared("value", 2, pb.MESSAGE, of="old.Bin")], entry=True
)
_SHELF = pb.message(
    "Shelf", [Declared("bins", 1, pb.MESSAGE, pb.REPEATED, of="old.Shelf.BinsEntry")], nested=[_BINS_ENTRY]
)
_BIN = pb.message("Bin", [Declared("label", 1, pb.STRING)])
_CYCLE = pb.message("Node", [Declared("next", 1, pb.MESSAGE, of="shop.Node")])

FILES = (
    _TIMESTAMP,
    pb.file(
        "order.proto",
        "shop",
        [_ORDER, _CUSTOMER, _CYCLE],
        enums=[pb.enum("State", {"NEW": 0, "SENT": 1, "LOST": -1})],
        imports=["google/protobuf/timestamp.proto"],
    ),
    pb.file("old.proto", "old", [_OLD, _SHELF, _BIN], syntax="proto2"),
)
DESCRIPTOR = pb.descriptor_set(*FILES)

DDL = (
    "id bigint, title string, price double, weight float, paid boolean, scan binary, state string, "
    "customer struct<name:string,age:int>, sizes array<int>, tags array<string>, stock map<string,int>, "
    "at timestamp, huge decimal(20,0), note string, signed bigint, fixed int, unsigned decimal(20,0)"
)

FULL = b"".join(
    (
        pb.number(1, -5),
        pb.block(2, "ä chair"),
        pb.fixed(3, "<d", 9.75),
        pb.fixed(4, "<f", 0.5),
        pb.number(5, 1),
        pb.block(6, b"\xff\x00"),
        pb.number(7, 1),
        pb.block(8, pb.block(1, "Kim") + pb.number(2, 30)),
        pb.block(9, pb.varint(3) + pb.varint(4)),
        pb.block(10, "a"),
        pb.block(10, ""),
        pb.block(11, pb.block(1, "oak") + pb.number(2, 7)),
        pb.block(12, pb.number(1, 1_700_000_000) + pb.number(2, 250_000_000)),
        pb.number(13, (1 << 64) - 1),
        pb.block(14, ""),
        pb.number(15, 3),
        pb.fixed(16, "<i", -2),
        pb.fixed(17, "<Q", 1 << 63),
    )
)

VALUES = {
    "id": -5,
    "title": "ä chair",
    "price": 9.75,
    "weight": 0.5,
    "paid": True,
    "scan": b"\xff\x00",
    "state": "SENT",
    "customer": {"name": "Kim", "age": 30},
    "sizes": [-2, 2],
    "tags": ["a", ""],
    "stock": {"oak": 7},
    "at": datetime(2023, 11, 14, 22, 13, 20, 250_000, UTC),
    "huge": Decimal((1 << 64) - 1),
    "note": "",
    "signed": -2,
    "fixed": -2,
    "unsigned": Decimal(1 << 63),
}

NOTHING = {
    "id": 0, "title": "", "price": 0.0, "weight": 0.0, "paid": False, "scan": b"", "state": "NEW", "customer": None,
    "sizes": [], "tags": [], "stock": {}, "at": None, "huge": Decimal(0), "note": None, "signed": 0, "fixed": 0,
    "unsigned": Decimal(0),
}  # fmt: skip
"""What a message with nothing set holds."""
