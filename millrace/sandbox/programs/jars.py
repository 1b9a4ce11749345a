"""JVM jars of each Spark line: resolved once by PySpark's Ivy, pinned by ``toolchain/jars.lock.json``.

``toolchain/jars/*.xml`` have the requests; the lock names every resolved jar, with its
digest. Set-up fetches exactly the lock and resolves nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from string import Template
from xml.etree import ElementTree

from cryptography.hazmat.primitives.serialization import BestAvailableEncryption
from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12Certificate, serialize_java_truststore
from cryptography.utils import CryptographyDeprecationWarning
from cryptography.x509 import load_pem_x509_certificates

from millrace.config.engines.versions import LINES, SparkLine, jar_set_name
from millrace.sandbox.programs.toolchain import (
    LOCKS,
    installed_spark_line,
    java_home,
    runs_in_millrace_clone,
    spark_home,
    state_folder,
)

LOCK = LOCKS / "jars.lock.json"
_FOR_TESTS = frozenset({"debezium", "mysql-server", "opensearch"})
ON_REQUEST = _FOR_TESTS | {
    jar_set_name("sandbox", line) for line in LINES.values() if not line.is_default_line
}
"""Sets that set-up does not fetch, as most people need none of them."""

_IGNORING = threading.Lock()
_STORE_PASSWORD = b"public-certificates-only"
_REQUESTS = LOCKS / "jars"
_NAMESPACE = 'xmlns:m="http://ant.apache.org/ivy/maven"'


class JarError(RuntimeError):
    """A jar that could not be fetched, or is not the one in the lock."""


@dataclass(frozen=True, order=True)
class Jar:
    """One jar by its Maven coordinates; ``classifier`` is empty for most."""

    group: str
    name: str
    version: str
    classifier: str = ""
    sha256: str = ""

    @property
    def file_name(self) -> str:
        """File name in the folder of its set."""
        return "-".join(filter(None, (self.name, self.version, self.classifier))) + ".jar"


def jar_files(name: str, line: SparkLine | None = None) -> list[Path]:
    """Return the jars of a set.

    Parameters
    ----------
    name
        Name of the set, such as ``kafka-client``.
    line
        Spark line; by default this interpreter's.

    Raises
    ------
    JarError
        One is missing, or the line has none; the message has the command that fetches it.
    """
    line = line or installed_spark_line()
    where = state_folder() / "jars" / jar_set_name(name, line)
    if (jars := read_jar_lock_file().get(where.name)) is None:
        raise JarError(f"the lock file of jars has no set {name} for Spark {line.name}")
    paths = [where / jar.file_name for jar in jars]
    if missing := [path.name for path in paths if not path.exists()]:
        if where.name in _FOR_TESTS:
            command = f"python -m millrace.sandbox.programs.jars --also {where.name}"
        elif runs_in_millrace_clone():
            command = f"make spark SPARK={line.name}" if where.name in ON_REQUEST else "make jars"
        else:
            command = "millrace setup"
        raise JarError(f"the jar {missing[0]} is missing in {where}: run `{command}`")
    return paths


def read_jar_lock_file() -> dict[str, list[Jar]]:
    """Return the jars of each set in the lock file."""
    return {name: [Jar(**jar) for jar in jars] for name, jars in json.loads(LOCK.read_text()).items()}


def fetch_missing_jars_and_count(also: Collection[str] = ()) -> int:
    """Fetch the missing jars of the lock; return their number.

    Parameters
    ----------
    also
        Sets of :data:`ON_REQUEST` to fetch, too.

    Raises
    ------
    JarError
        A jar could not be fetched, or its digest is not the lock's.
    """
    with ThreadPoolExecutor() as pool:  # a set is minutes of waiting for a registry, not of work
        wanted = {
            name: jars
            for name, jars in read_jar_lock_file().items()
            if name not in ON_REQUEST or name in also
        }
        return sum(pool.map(_fetch_missing_jars_of_set, *zip(*wanted.items(), strict=True)))


def _fetch_missing_jars_of_set(name: str, jars: list[Jar]) -> int:
    home = state_folder() / "jars" / name
    if not (missing := [jar for jar in jars if not (home / jar.file_name).exists()]):
        return 0
    home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=state_folder()) as given:
        scratch = Path(given)
        _run_ivy_and_read_report(_ivy_module_without_dependencies(name, missing), name, scratch)
        for jar in missing:
            path = scratch / jar.file_name
            if _sha256_of_file(path) != jar.sha256:
                raise JarError(
                    f"the downloaded file {jar.file_name} has another SHA-256 digest than {LOCK.name} pins, so it "
                    "was not installed; run the command again, and if it fails again, find out who changed "
                    "the file"
                )
            path.rename(home / jar.file_name)
    return len(missing)


def resolve_jars_and_write_lock() -> None:
    """Resolve ``toolchain/jars/*.xml`` with all dependencies and write the lock."""
    lock: dict[str, list[dict[str, str]]] = {}
    for locked_as, module in sorted(_ivy_request_by_set()):
        with tempfile.TemporaryDirectory(dir=state_folder()) as name:
            report = _run_ivy_and_read_report(module, locked_as, Path(name))
            jars = [
                Jar(
                    group=module.attrib["organisation"],
                    name=artifact.attrib["name"],
                    version=revision.attrib["name"],
                    classifier=_classifier_from_name(
                        artifact, f"{artifact.attrib['name']}-{revision.attrib['name']}"
                    ),
                )
                for module in report.iter("module")
                for revision in module.iter("revision")
                for artifact in revision.iter("artifact")
            ]
            lock[locked_as] = [
                {**asdict(jar), "sha256": _sha256_of_file(Path(name) / jar.file_name)}
                for jar in sorted(set(jars))
            ]
    LOCK.write_text(json.dumps(lock, indent=1) + "\n")


def _ivy_request_by_set() -> Iterator[tuple[str, str]]:
    """Yield the name of each set in the lock, and its request with the versions of its line.

    A request is for every line, unless there is one for the line's Scala: ``sandbox_2.13.xml``.
    """
    for request in _REQUESTS.glob("*.xml"):
        if request.stem == "ivysettings" or "_" in request.stem:
            continue
        for line in LINES.values():
            own = request.with_stem(f"{request.stem}_{line.scala}")
            text = (own if own.exists() else request).read_text()
            if line.is_default_line or "${" in text:
                given = {"line": line.name, "spark": line.spark, "scala": line.scala, **line.libraries}
                yield jar_set_name(request.stem, line), Template(text).substitute(given)


def _classifier_from_name(artifact: ElementTree.Element, plain: str) -> str:
    """Read a jar's classifier from its file name; Ivy's report has no field for it."""
    origin = artifact.find("origin-location")
    location = "" if origin is None else origin.attrib["location"]
    return location.rpartition("/")[2].removesuffix(".jar").removeprefix(plain).removeprefix("-")


def _ivy_module_without_dependencies(name: str, jars: list[Jar]) -> str:
    lines = [
        f'<dependency org="{jar.group}" name="{jar.name}" rev="{jar.version}" transitive="false">'
        f'<artifact name="{jar.name}" type="jar"{f" m:classifier={jar.classifier!r}" if jar.classifier else ""}/>'
        "</dependency>"
        for jar in jars
    ]
    body = "\n".join(lines)
    return (
        f'<ivy-module version="2.0" {_NAMESPACE}><info organisation="millrace" module="{name}"/>'
        f"<dependencies>{body}</dependencies></ivy-module>"
    )


def _run_ivy_and_read_report(module: str, name: str, target: Path) -> ElementTree.Element:
    """Run Ivy on a module description, put its jars into ``target`` and return Ivy's report."""
    description = target / "ivy.xml"
    description.write_text(module)
    ivy = next((spark_home() / "jars").glob("ivy-*.jar"))
    command: list[str | Path] = [
        java_home() / "bin" / "java", *_java_options_to_trust_ssl_cert_file(target), "-jar", ivy,
        "-settings", _REQUESTS / "ivysettings.xml", "-ivy", description,
        "-cache", target / "cache", "-confs", "default", "-types", "jar", "bundle", "test-jar",
        "-retrieve", f"{target}/[artifact]-[revision](-[classifier]).[ext]",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = [line for line in done.stdout.splitlines() if "WARN" in line or "not found" in line]
        raise JarError("Ivy could not download the jars of the set " + name + ":\n" + "\n".join(reason[-12:]))
    [report] = (target / "cache").glob("millrace-*-default.xml")
    return ElementTree.parse(report).getroot()  # noqa: S314 - written by Ivy a moment ago


def _java_options_to_trust_ssl_cert_file(folder: Path) -> list[str]:
    """Return Java options that trust the certificates of ``SSL_CERT_FILE``, as Python and curl do.

    Java does not read this variable: behind a company's own certificate authority every
    download of a Java from a package would fail.
    """
    if not (bundle := os.environ.get("SSL_CERT_FILE")):
        return []
    # Every bundle has old authorities with odd serial numbers. Ignored warnings are the process's, not the
    # thread's: another set's thread would switch them on again too early.
    with _IGNORING, warnings.catch_warnings():
        warnings.simplefilter("ignore", CryptographyDeprecationWarning)
        certificates = load_pem_x509_certificates(Path(bundle).read_bytes())
    entries = [PKCS12Certificate(one, str(number).encode()) for number, one in enumerate(certificates)]
    store = folder / "trust.p12"
    store.write_bytes(serialize_java_truststore(entries, BestAvailableEncryption(_STORE_PASSWORD)))
    options = {
        "trustStore": str(store),
        "trustStoreType": "PKCS12",
        "trustStorePassword": _STORE_PASSWORD.decode(),
    }
    return [f"-Djavax.net.ssl.{name}={value}" for name, value in options.items()]


def _sha256_of_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def parser() -> argparse.ArgumentParser:
    """Return the parser of this program's arguments."""
    reading = argparse.ArgumentParser(description=main.__doc__)
    reading.add_argument("--lock", action="store_true", help="resolve toolchain/jars/*.xml again")
    reading.add_argument(
        "--also", nargs="+", choices=sorted(ON_REQUEST), default=[], help="fetch these sets, too"
    )
    return reading


def main() -> int:
    """Fetch the jars of the lock; with ``--lock`` resolve them again and write the lock."""
    given = parser().parse_args()
    try:
        if given.lock:
            resolve_jars_and_write_lock()
        fetched = fetch_missing_jars_and_count(given.also)
        home = state_folder() / "jars"
        in_place = sum(
            (home / name / jar.file_name).exists()
            for name, jars in read_jar_lock_file().items()
            for jar in jars
        )
        sys.stdout.write(f"{fetched} jars fetched, {in_place} in place\n")
    except JarError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
