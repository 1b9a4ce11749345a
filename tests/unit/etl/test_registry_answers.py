"""What a start asks a schema registry for, against servers that break off."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from millrace.etl.formats import avro_schemas
from millrace.etl.record.errors import StartError

WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n[1, 2]"
CUT = {
    "a body": b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n[1",
    "a chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\n[1",
    "a status line": b"HTTP/1.",
    "nothing": b"",
}


@contextmanager
def registry(*answers: bytes) -> Iterator[str]:
    """Give one answer to each connection, and none after the last."""
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        server.settimeout(5)

        def serve() -> None:
            for answer in answers:
                with server.accept()[0] as client:
                    client.recv(4096)
                    client.sendall(answer)

        served = pool.submit(serve)
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        served.result(10)


@pytest.mark.parametrize("answer", CUT.values(), ids=CUT)
def test_an_answer_that_breaks_off_is_asked_for_again(answer: bytes) -> None:
    with registry(answer, answer, WHOLE) as url:
        assert avro_schemas._get_from_registry(url) == [1, 2]


@pytest.mark.parametrize("answer", CUT.values(), ids=CUT)
def test_answers_that_always_break_off_end_the_start(monkeypatch: pytest.MonkeyPatch, answer: bytes) -> None:
    monkeypatch.setattr(avro_schemas, "START_SECONDS", 0.0)
    with registry(answer) as url, pytest.raises(StartError, match=f"registry {url}"):
        avro_schemas._get_from_registry(url)
