"""Event logs in Spark's codecs are unpacked; damaged and unsupported ones are named."""

from __future__ import annotations

import bz2
import lzma
import re
from collections.abc import Callable
from pathlib import Path

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from millrace.advisor.logs import codecs
from millrace.advisor.logs.event_logs import LogLines, find_event_logs
from millrace.config import ConfigurationError
from tests.run import examples
from tests.unit.advisor.packed_logs import (
    DATA,
    PACKED,
    REAL,
    TEXT,
    _stream,
    history_of,
)


@pytest.mark.parametrize("codec", PACKED)
def test_every_codec_gives_the_same_history(codec, tmp_path):
    file = tmp_path / f"local-1.{codec}"
    file.write_bytes(PACKED[codec](TEXT))
    assert b"\n".join(LogLines(find_event_logs(str(file))[0])) + b"\n" == TEXT


@pytest.mark.parametrize("codec", PACKED)
@pytest.mark.parametrize("share", [0.1, 0.5, 0.999])
def test_a_log_that_is_cut_off_anywhere_tells_what_came_before(codec, share, tmp_path):
    packed = PACKED[codec](TEXT)
    file = tmp_path / "local-1.inprogress"
    file.write_bytes(packed[: int(len(packed) * share)])
    found = history_of(file)
    assert found.cut_off
    assert not found.complete
    assert found.unread == 0
    whole = history_of(REAL)
    batches = {(q.run_id, b.id): b.rows for q in whole.queries for b in q.batches}
    assert all(batches[q.run_id, b.id] == b.rows for q in found.queries for b in q.batches)


@pytest.mark.parametrize("codec", ["lz4", "snappy"])
def test_what_sparks_own_codecs_packed(codec):
    """The begin of the same log, through ``CompressionCodec`` of Spark 3.5."""
    begin = TEXT[: TEXT.rfind(b"\n", 0, 100_000)]
    assert b"\n".join(LogLines(find_event_logs(str(DATA / f"begin.{codec}"))[0])) == begin


def test_a_flipped_bit_of_lz4_changes_no_line(tmp_path):
    whole = (DATA / "begin.lz4").read_bytes()
    good, file = list(LogLines(find_event_logs(str(DATA / "begin.lz4"))[0])), tmp_path / "local-1"
    for place in range(21, len(whole), 211):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        log = LogLines(find_event_logs(str(tmp_path))[0])
        lines = list(log)
        assert log.ended_at or log.cut_off, place
        assert lines == good[: len(lines)], place


@settings(max_examples=examples(150))
@given(
    head=some.sampled_from(
        [
            b"",
            b"LZ4Block",
            b"\x82SNAPPY\x00",
            b"\x1f\x8b",
            b"\x28\xb5\x2f\xfd",
        ]
    ),
    body=some.binary(max_size=200),
)
def test_no_bytes_crash_a_codec(head, body):
    try:
        for piece in codecs.decompress_log(_stream(head + body)):
            assert isinstance(piece, bytes)
    except (codecs.TruncatedDataError, codecs.DamagedDataError):
        pass


@pytest.mark.parametrize(
    ("packed", "said"),
    [
        (
            lambda: bytes(cramjam.snappy.compress_raw(TEXT)),
            "raw snappy, which has no blocks: decompress it first",
        ),
        (
            lambda: bytes(cramjam.lz4.compress(TEXT)),
            "the format of the lz4 command: decompress it first",
        ),
        (lambda: bytes(cramjam.snappy.compress(TEXT)), "snappy's framing format: decompress it first"),
        (lambda: (DATA / "begin.lzf").read_bytes(), "lzf: decompress it first"),
        (lambda: bz2.compress(TEXT), "bzip2: decompress it first"),
        (lambda: lzma.compress(TEXT), "xz: decompress it first"),
    ],
)
def test_what_cannot_be_unpacked_is_named(packed: Callable[[], bytes], said: str, tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(packed())
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        find_event_logs(str(tmp_path / "other"))
