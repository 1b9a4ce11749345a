"""A moto server shared by all tests of the advisor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    started = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    started.start()
    yield "http://{}:{}".format(*started.get_host_and_port())
    started.stop()


@pytest.fixture
def client(server: str) -> Callable[[str], Any]:
    make: Any = boto3.client

    def made(service: str) -> Any:
        return make(
            service,
            endpoint_url=server,
            region_name="us-east-1",
            aws_access_key_id="test",
            aws_secret_access_key="test",
        )

    return made
