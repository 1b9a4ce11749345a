"""A moto server shared by all tests of the lifecycle, because starting one is slow."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from millrace.config import Names, load
from millrace.lifecycle.account.deployed_environment import DeployedEnvironment
from tests.unit.lifecycle.shop_checkpoints import Shop

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def moto_server() -> Iterator[str]:
    """Address of the server; what it was told stays from test to test."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    yield "http://{}:{}".format(*server.get_host_and_port())
    server.stop()


@pytest.fixture
def moto(moto_server: str) -> str:
    """Address of a server that has been told nothing yet."""
    reset = urllib.request.Request(f"{moto_server}/moto-api/reset", method="POST")
    urllib.request.urlopen(reset).close()
    return moto_server


@pytest.fixture
def aws(moto: str) -> DeployedEnvironment:
    """Environment ``minimal`` on a server that has been told nothing yet."""

    def client(service: str) -> Any:
        make: Any = boto3.client
        return make(
            service,
            endpoint_url=moto,
            region_name="us-east-1",
            aws_access_key_id="test",
            aws_secret_access_key="test",
        )

    return DeployedEnvironment(Names(load("minimal", root=ROOT), "123456789012"), client)


@pytest.fixture
def shop(tmp_path: Path, moto: str, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """A deployed environment's bucket of checkpoints, where the command line finds it."""
    for key, value in {
        "AWS_ENDPOINT_URL": moto,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(key, value)
    client: Any = boto3.client("s3", region_name="us-east-1")
    return Shop(tmp_path, client)
