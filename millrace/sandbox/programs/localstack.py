"""LocalStack without Docker, or the one at ``LOCALSTACK_ENDPOINT``."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import boto3

from millrace.sandbox.programs import jars, toolchain
from millrace.sandbox.programs.child_processes import (
    RUN,
    ChildProcess,
    SandboxError,
    free_port,
    stopping_at_end,
)
from millrace.sandbox.programs.toolchain import (
    java_home,
    node_package_folder,
    program_variables,
    setup_command,
    state_folder,
)

ACCOUNT = "000000000000"
"""LocalStack's account, unless the access key has twelve digits."""

_JSONATA_JAVA = "21"
"""Folder in which LocalStack looks for the Java of its JSONata; a Java 17 is put there, which runs it too."""

_LOOPBACK = Path(__file__).with_name("start_on_loopback.py")
"""Wrapper, as LocalStack and its Kinesis, which is Node, listen on all interfaces whatever ``GATEWAY_LISTEN`` is."""

_LIBRARY = "var/lib/localstack/lib"
"""LocalStack's folder of installed programs, below its root."""

_CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}


@dataclass(frozen=True)
class LocalStack:
    """A running LocalStack.

    Attributes
    ----------
    endpoint
        Such as ``http://localhost:4566``.
    process
        ``None`` for somebody else's LocalStack, which is never stopped.
    """

    endpoint: str
    region: str
    process: ChildProcess | None

    def client(self, service: str) -> Any:
        """Return a boto3 client for one of its services."""
        make: Any = boto3.client  # the type checker does not know the service
        return make(
            service,
            endpoint_url=self.endpoint,
            region_name=self.region,
            aws_access_key_id=_CREDENTIALS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=_CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        )

    def environment_variables(self) -> dict[str, str]:
        """Return environment variables that point ``cdklocal``, boto3 and Spark at it, and at nothing real."""
        address = urlparse(self.endpoint)
        inherited = {k: v for k, v in program_variables().items() if not k.startswith("AWS_")}
        return {
            **inherited,
            **_CREDENTIALS,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_REGION": self.region,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ENDPOINT_URL_S3": self.endpoint,
            "LOCALSTACK_HOSTNAME": address.hostname or "localhost",
            "EDGE_PORT": str(address.port or 4566),
        }


def localstack_answers(endpoint: str) -> bool:
    """Return whether a LocalStack answers at an address."""
    return toolchain.local_server_answers(f"{endpoint}/_localstack/health")


@contextmanager
def running_localstack(
    region: str = "us-east-1",
    *,
    keep: bool = False,
    settings: dict[str, str] | None = None,
    script: Path | None = None,
    name: str = "localstack",
) -> Iterator[LocalStack]:
    """Start an empty LocalStack, or use the existing one, and stop it at the end if it was started here.

    Parameters
    ----------
    keep
        Leave it running, except after a failure.
    settings
        LocalStack's own settings, such as ``KINESIS_ERROR_PROBABILITY``.
    script
        Python that LocalStack runs in its own process when it is ready (its init hooks).
    name
        Its folder and log; a second LocalStack needs another name.

    Raises
    ------
    SandboxError
        It did not start, or ``LOCALSTACK_ENDPOINT`` does not answer.
    """
    if endpoint := os.environ.get("LOCALSTACK_ENDPOINT"):
        if not localstack_answers(endpoint):
            raise SandboxError(
                f"the address LOCALSTACK_ENDPOINT={endpoint} does not answer: start LocalStack there, or "
                "unset the variable"
            )
        yield LocalStack(endpoint=endpoint.rstrip("/"), region=region, process=None)
        return
    stack = _start_localstack(region, settings or {}, script, name)
    with stopping_at_end(stack.process, keep=keep):
        yield stack


def _start_localstack(region: str, settings: dict[str, str], script: Path | None, name: str) -> LocalStack:
    python = state_folder() / "localstack" / "bin" / "python"
    if not python.exists():
        raise SandboxError(f"LocalStack is not installed: run {setup_command()}, or set LOCALSTACK_ENDPOINT")
    root = RUN / name
    shutil.rmtree(root, ignore_errors=True)
    _install_kinesis_emulator(root)
    _install_jsonata_and_java(root)
    if script is not None:
        hooks = root / "etc" / "localstack" / "init" / "ready.d"
        hooks.mkdir(parents=True)
        shutil.copy(script, hooks / script.name)
    port = free_port()
    endpoint = f"http://localhost:{port}"
    environment = {
        **{k: v for k, v in program_variables().items() if not k.startswith("AWS_")},
        "GATEWAY_LISTEN": f"127.0.0.1:{port}",
        "LOCALSTACK_HOST": f"localhost:{port}",
        "FILESYSTEM_ROOT": str(root),
        "DNS_ADDRESS": "0",
        "DISABLE_EVENTS": "1",
        "SKIP_SSL_CERT_DOWNLOAD": "1",
        "OVERRIDE_IN_DOCKER": "0",  # inside a container it would write to /var/lib
        "NODE_OPTIONS": f'--require "{_LOOPBACK.with_suffix(".cjs")}"',
        # JPype evaluates JSONata: it makes the JVM collect when Python's memory grows, and Python collect after the JVM did,
        # again and again. Without the first, state machines take a quarter less of the processor.
        "JAVA_TOOL_OPTIONS": "-XX:+DisableExplicitGC",
        **settings,
    }
    process = ChildProcess.start(
        name,
        [python, _LOOPBACK, "localstack.runtime.main"],
        environment=environment,
        log=RUN / f"{name}.log",
        cwd=RUN,
    )
    process.wait_until(lambda: localstack_answers(endpoint), seconds=90, what="answering")
    return LocalStack(endpoint=endpoint, region=region, process=process)


def _install_kinesis_emulator(root: Path) -> None:
    """Put the pinned Kinesis emulator at the place where LocalStack would install one at its first call."""
    module = node_package_folder("kinesis-local")
    version = json.loads((module / "package.json").read_text())["version"]
    target = root / _LIBRARY / "kinesis-local" / version / "node_modules" / "kinesis-local"
    target.parent.mkdir(parents=True)
    target.symlink_to(module)


def _install_jsonata_and_java(root: Path) -> None:
    """Put the pinned JSONata and a Java at the places where LocalStack would install them for its first state machine."""
    library = root / _LIBRARY
    pinned = jars.jar_files("step-functions")
    version = next(
        jar.version for jar in jars.read_jar_lock_file()["step-functions"] if jar.name == "jsonata"
    )
    target = library / "jsonata" / version
    target.mkdir(parents=True)
    for jar in pinned:
        (target / jar.name).symlink_to(jar)
    java = library / "java" / _JSONATA_JAVA
    java.parent.mkdir(parents=True, exist_ok=True)
    java.symlink_to(java_home())
