"""Filling the cache of the history server's image: the registry's HTTP API, and what goes to where a layer lies."""

from __future__ import annotations

import base64
import json
import urllib.request
from collections.abc import Iterator
from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler
from typing import Any, ClassVar

import pytest
from typer.testing import CliRunner

from millrace.cli import app
from millrace.cli.run import history_image as command
from millrace.lifecycle import history_image
from millrace.lifecycle.history_image import Registry, account_registry, open_url, pull_image
from millrace.lifecycle.problems import AwsError
from millrace.lifecycle.state_machine import Aws
from tests.serving import served

HOST, REPOSITORY, TAG = "123456789012.dkr.ecr.us-east-1.amazonaws.com", "p/spark", "latest"
INDEX = {
    "manifests": [
        {"digest": "sha256:arm", "platform": {"os": "linux", "architecture": "arm64"}},
        {"digest": "sha256:amd", "platform": {"os": "linux", "architecture": "amd64"}},
    ]
}
IMAGE = {
    "config": {"digest": "sha256:c"},
    "layers": [{"digest": "sha256:1"}, {"digest": "sha256:2"}, {"digest": "sha256:1"}],
}


class Gallery(BaseHTTPRequestHandler):
    """A registry whose layers lie elsewhere, as ECR's lie in S3: there a request with a signature of another is refused."""

    asked: ClassVar[list[str]] = []
    manifests: ClassVar[dict[str, Any]] = {}

    def do_GET(self) -> None:
        type(self).asked.append(self.path)
        if self.path.startswith("/layers/"):
            self._answer(400 if self.headers["Authorization"] else 200, b"x" * 1000)
        elif self.headers["Authorization"] != "Basic dDpw":
            self._answer(401, b"who are you?")
        elif "/blobs/" in self.path:
            self.send_response(307)
            self.send_header("Location", f"/layers/{self.path.rsplit('/', 1)[1]}")
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            found = self.manifests.get(self.path.rsplit("/", 1)[1])
            self._answer(404 if found is None else 200, json.dumps(found).encode())

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def gallery(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Give what opens addresses of the registry on a server of this machine."""
    monkeypatch.setattr(Gallery, "asked", [])
    monkeypatch.setattr(Gallery, "manifests", {TAG: INDEX, "sha256:amd": IMAGE})
    with served(Gallery) as address:

        def fetch(request: urllib.request.Request) -> AbstractContextManager[Any]:
            request.full_url = request.full_url.replace(f"https://{HOST}", address)
            return open_url(request)

        yield fetch


def test_the_image_is_asked_for_as_docker_does(gallery: Any) -> None:
    said: list[str] = []
    size = pull_image(Registry(HOST, "Basic dDpw", gallery), REPOSITORY, TAG, said.append)
    assert size == 3 * 1000
    assert [path for path in Gallery.asked if path.startswith("/v2/")] == [
        f"/v2/{REPOSITORY}/manifests/{TAG}",
        f"/v2/{REPOSITORY}/manifests/sha256:amd",
        *(f"/v2/{REPOSITORY}/blobs/sha256:{each}" for each in "c12"),
    ]
    assert said[-1] == "layer 3 of 3"


@pytest.mark.parametrize(
    ("manifests", "authorization", "message"),
    [
        ({}, "Basic dDpw", "answers 404"),
        ({TAG: INDEX}, "Basic wrong", "answers 401"),
        ({TAG: {"manifests": []}}, "Basic dDpw", "no manifest for linux/amd64"),
        ({TAG: {"layers": []}}, "Basic dDpw", "config"),
    ],
)
def test_a_refusal_is_one_message(
    gallery: Any, monkeypatch: pytest.MonkeyPatch, manifests: Any, authorization: str, message: str
) -> None:
    monkeypatch.setattr(Gallery, "manifests", manifests)
    with pytest.raises(AwsError, match=message):
        pull_image(Registry(HOST, authorization, gallery), REPOSITORY, TAG, lambda _: None)


def test_the_account_gives_the_token(aws: Aws) -> None:
    registry = account_registry(aws.client("ecr"), HOST)
    assert base64.b64decode(registry.authorization.removeprefix("Basic ")).startswith(b"AWS:")


def test_the_command_deploys_the_cache_and_fills_it(
    aws: Aws, moto: str, gallery: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    for key, value in {
        "AWS_ENDPOINT_URL": moto,
        "AWS_ACCESS_KEY_ID": "t",
        "AWS_SECRET_ACCESS_KEY": "t",
    }.items():
        monkeypatch.setenv(key, value)
    file = tmp_path / "dev.yaml"
    file.write_text(
        """\
project: tiny
account: "123456789012"
network: {egress: endpoints}
history: {clients: [10.0.0.0/24]}
streams:
  clicks: {kind: kinesis, traffic: {records_per_second: 100, record_size: 500B}}
jobs:
  clicks:
    engine: glue
    rate: {records_per_second_per_core: 5000}
    queries:
      land: {kind: land, source: clicks, table: landed, schema: pipelines/clicks/schemas/click.ddl}
"""
    )

    def deploy(_: object, stack: str) -> None:
        body = {
            "Resources": {"T": {"Type": "AWS::SNS::Topic"}},
            "Outputs": {"ImageUri": {"Value": f"{HOST}/{REPOSITORY}:{TAG}"}},
        }
        aws.client("cloudformation").create_stack(StackName=stack, TemplateBody=json.dumps(body))

    monkeypatch.setattr(command, "synthesise", lambda *_: None)
    monkeypatch.setattr(command, "cdk_deploy_stack", deploy)
    monkeypatch.setattr(
        history_image, "account_registry", lambda _, host: Registry(host, "Basic dDpw", gallery)
    )
    done = CliRunner().invoke(app, ["history-image", "--env", str(file)])
    assert done.exit_code == 0, done.output
    assert f"{HOST}/{REPOSITORY}:{TAG}: 0 MB pulled" in done.stdout
    monkeypatch.setattr(Gallery, "manifests", {})
    monkeypatch.setattr(command, "cdk_deploy_stack", lambda *_: None)
    done = CliRunner().invoke(app, ["history-image", "--env", str(file)])
    assert (done.exit_code, "answers 404" in done.stderr) == (1, True)


def test_an_environment_with_a_way_out_needs_none() -> None:
    done = CliRunner().invoke(app, ["history-image", "--env", "minimal"])
    assert done.exit_code == 2
    assert "needs no image" in done.stderr
