"""A real MySQL 8.0 server on 127.0.0.1, started from a jar and queried through JDBC."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from millrace.sandbox.programs import jars
from millrace.sandbox.programs.child_processes import ChildProcess, free_port
from millrace.sandbox.programs.toolchain import program_variables

USER, PASSWORD, DATABASE = "millrace", "not a secret", "shop"
_NO_AIO = """
long io_setup(int count, void *context) { return -38; }
long io_submit(void *context, long count, void *blocks) { return -38; }
long io_getevents(void *context, long least, long most, void *events, void *until) { return -38; }
"""
"""The server is linked against libaio, which few machines have, and does without it: no such call is in the kernel."""

_VERSIONS = "LIBAIO_0.1 { global: io_submit; }; LIBAIO_0.4 { global: io_setup; io_getevents; } LIBAIO_0.1;"


@dataclass
class MySql:
    """A server with its binary log, and a connection to it for each thread."""

    home: Path
    spark: SparkSession
    port: int = field(default_factory=free_port)

    @property
    def _options(self) -> list[str | Path]:
        program, data = self.home / "server" / "bin" / "mysqld", self.home / "data"
        plain = ["--no-defaults", "--user=root", "--innodb-use-native-aio=0", "--innodb-flush-method=nosync"]
        return [program, *plain, f"--basedir={self.home}/server", f"--datadir={data}"]

    def install(self) -> None:
        """Unpack the server, and make an empty database with one user."""
        [jar] = jars.jar_files("mysql-server")
        with (
            zipfile.ZipFile(jar) as whole,
            tarfile.open(fileobj=BytesIO(whole.read("mysql-Linux-amd64.tar.gz"))) as tar,
        ):
            tar.extractall(self.home / "server", filter="data")
        source, versions = self.home / "aio.c", self.home / "aio.map"
        source.write_text(_NO_AIO)
        versions.write_text(_VERSIONS)
        library = self.home / "server" / "bin" / "libaio.so.1"  # where the server looks for its own libraries
        options = [f"-Wl,--version-script={versions}", "-Wl,-soname,libaio.so.1"]
        subprocess.run(["cc", "-shared", "-fPIC", *options, "-o", library, source], check=True)
        done = subprocess.run(
            [*self._options, "--initialize-insecure"], check=False, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr

    def start(self) -> ChildProcess:
        """Start it, and wait until it answers."""
        settings = [
            "--bind-address=127.0.0.1",
            "--mysqlx=OFF",
            f"--socket={self.home}/socket",
            "--default-time-zone=+00:00",
        ]
        settings += ["--server-id=7", "--log-bin=binlog", "--gtid-mode=ON", "--enforce-gtid-consistency=ON"]
        settings += ["--default-authentication-plugin=mysql_native_password", "--sync-binlog=0"]
        command = [*self._options, f"--port={self.port}", *settings]
        process = ChildProcess.start("mysql", command, environment=program_variables(), log=self.home / "log")
        process.wait_until(self._answers, seconds=60, what="answering")
        return process

    def _answers(self) -> bool:
        try:
            root = self.connect(user="root", password="", database="")
        except Exception:  # of the driver, which says the same of each reason
            time.sleep(0.2)
            return False
        for sql in (
            f"create database {DATABASE}",
            f"create user {USER}@'%' identified by '{PASSWORD}'",
            f"grant all on *.* to {USER}@'%'",
        ):
            root.createStatement().execute(sql)
        root.close()
        return True

    def connect(self, *, user: str = USER, password: str = PASSWORD, database: str = DATABASE) -> Any:
        """Return a connection of JDBC, by the driver that the connector brings."""
        jvm: Any = self.spark._jvm
        given = jvm.java.util.Properties()
        for name, value in {"user": user, "password": password, "sslMode": "DISABLED"}.items():
            given.setProperty(name, value)
        return _driver(self.spark).connect(f"jdbc:mysql://127.0.0.1:{self.port}/{database}", given)

    def run(self, sql: str) -> list[list[str]]:
        """Run a statement; rows as text, null as nothing."""
        connection = self.connect()
        try:
            statement, rows = connection.createStatement(), []
            if statement.execute(sql):
                found = statement.getResultSet()
                width = found.getMetaData().getColumnCount()
                while found.next():
                    rows.append([found.getString(place + 1) or "" for place in range(width)])
            return rows
        finally:
            connection.close()


@cache
def _driver(spark: SparkSession) -> Any:
    # Once: Py4J remembers methods by the name of their class, and another loader would make another class of that name.
    jvm: Any = spark._jvm
    gateway: Any = spark.sparkContext._gateway
    [jar] = [each for each in jars.jar_files("debezium") if each.name.startswith("mysql-connector-j-")]
    places = gateway.new_array(jvm.java.net.URL, 1)
    places[0] = jvm.java.io.File(str(jar)).toURI().toURL()
    loader = jvm.java.net.URLClassLoader(places)
    made = loader.loadClass("com.mysql.cj.jdbc.Driver").getDeclaredConstructor(
        gateway.new_array(jvm.java.lang.Class, 0)
    )
    return made.newInstance(gateway.new_array(jvm.java.lang.Object, 0))


@contextmanager
def running(spark: SparkSession) -> Iterator[MySql]:
    """Give a fresh server, and end it."""
    jars.fetch_missing_jars_and_count(["debezium", "mysql-server"])
    home = Path(tempfile.mkdtemp(prefix="mysql-"))
    process = None
    try:
        server = MySql(home, spark)
        server.install()
        process = server.start()
        yield server
    finally:
        if process is not None:
            process.kill()
        shutil.rmtree(home)
