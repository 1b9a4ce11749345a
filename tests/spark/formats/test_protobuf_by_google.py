"""The core's Protobuf reader agrees with Google's on any bytes."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import hypothesis
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from millrace.etl.formats import protobuf
from millrace.etl.formats.protobuf import DescriptorMismatchError
from millrace.etl.launch.protobuf.wire_format import WireError
from tests import payloads_with_expected_values, protobuf_sample
from tests import protobuf_without_protoc as pb
from tests.spark.formats.test_decode_csv_avro_protobuf import spoiled


def test_protobuf_is_read_as_googles_own_parser_does(spark: SparkSession) -> None:
    """Held against protobuf-java, which Spark ships inside ORC."""
    jvm: Any = spark._jvm
    google = jvm.org.apache.orc.protobuf
    files = google.DescriptorProtos.FileDescriptorSet.parseFrom(protobuf_sample.DESCRIPTOR)
    of = google.Descriptors.FileDescriptor
    gateway = spark.sparkContext._gateway
    none, one = gateway.new_array(of, 0), gateway.new_array(of, 1)
    one[0] = of.buildFrom(files.getFile(0), none)
    descriptor = of.buildFrom(files.getFile(1), one).findMessageTypeByName("Order")
    fields = {
        name: descriptor.findFieldByName(name) for name in ("id", "title", "price", "paid", "signed", "fixed")
    }
    read = pb.reader(
        protobuf.make_protobuf_decoder(protobuf_sample.DESCRIPTOR, protobuf_sample.NAME, "order.desc").message
    )
    agreed = {"read": 0, "refused": 0, "stricter": 0}

    @hypothesis.settings(
        max_examples=150, suppress_health_check=list(hypothesis.HealthCheck), database=None
    )  # fmt: skip
    @hypothesis.given(spoiled((protobuf_sample.FULL, b"")))
    def payloads(payload: bytes) -> None:
        theirs = answer_of(lambda: google.DynamicMessage.parseFrom(descriptor, payload))
        ours = answer_of(lambda: read(payload))
        if isinstance(theirs, Py4JJavaError):
            assert "InvalidProtocolBufferException" in theirs.java_exception.getClass().getName()
            assert isinstance(ours, WireError | DescriptorMismatchError)
            agreed["refused"] += 1
        elif isinstance(ours, WireError | DescriptorMismatchError):
            # A field of another type, which theirs puts aside as unknown; a text or a time that no column holds.
            assert re.search("wrong (wire )?type|outside the (years|allowed)|not UTF-8|inside", str(ours))
            agreed["stricter"] += 1
        else:
            assert {name: theirs.getField(field) for name, field in fields.items()} == {
                n: ours[n] for n in fields
            }
            agreed["read"] += 1

    payloads()
    assert min(agreed["read"], agreed["refused"]) > 5, agreed


def test_the_last_member_of_a_oneof_counts(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    google = jvm.org.apache.orc.protobuf
    of = google.Descriptors.FileDescriptor
    none = spark.sparkContext._gateway.new_array(of, 0)
    files = google.DescriptorProtos.FileDescriptorSet.parseFrom(payloads_with_expected_values.ONEOF)
    descriptor = of.buildFrom(files.getFile(0), none).findMessageTypeByName("Either")
    read = pb.reader(
        protobuf.make_protobuf_decoder(
            payloads_with_expected_values.ONEOF, "values.Either", "oneof.desc"
        ).message
    )

    def plain(value: Any, ours: Any) -> Any:
        if not isinstance(ours, dict):
            return value
        kind = value.getDescriptorForType()
        return {name: value.getField(kind.findFieldByName(name)) for name in ours}

    for payload, wanted in payloads_with_expected_values.PROTOBUF.values():
        ours, theirs = (
            answer_of(partial(each, payload))
            for each in (read, partial(google.DynamicMessage.parseFrom, descriptor))
        )
        if wanted == payloads_with_expected_values.DEAD:
            assert isinstance(ours, WireError)
            assert isinstance(theirs, Py4JJavaError)
            continue
        for name, value in ours.items():
            field = descriptor.findFieldByName(name)
            assert theirs.hasField(field) == (value is not None) == (name in wanted)
            if value is not None:
                assert plain(theirs.getField(field), value) == value == wanted[name]


def test_of_several_names_of_a_number_the_first_counts(spark: SparkSession) -> None:
    state = pb.enum("State", {"NONE": 0, "NOTHING": 0, "STARTED": 1, "RUNNING": 1}) + pb.block(
        3, pb.number(2, 1)
    )
    message = pb.message("Aliased", [pb.Declared("state", 1, pb.ENUM, of="values.State")])
    data = pb.descriptor_set(pb.file("aliased.proto", "values", [message], enums=[state]))
    jvm: Any = spark._jvm
    google = jvm.org.apache.orc.protobuf
    of = google.Descriptors.FileDescriptor
    file = google.DescriptorProtos.FileDescriptorSet.parseFrom(data).getFile(0)
    names = of.buildFrom(file, spark.sparkContext._gateway.new_array(of, 0)).findEnumTypeByName("State")
    read = pb.reader(protobuf.make_protobuf_decoder(data, "values.Aliased", "aliased.desc").message)
    for number in (0, 1):
        theirs = names.findValueByNumber(number).getName()
        assert read(pb.number(1, number))["state"] == theirs
    assert read(b"")["state"] == "NONE"


def answer_of(reading: Callable[[], Any]) -> Any:
    """What a reader gives, or the error with which it refuses."""
    try:
        return reading()
    except (Py4JJavaError, WireError, DescriptorMismatchError) as error:
        return error
