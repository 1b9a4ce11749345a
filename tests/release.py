"""A release in ``dist/``: the wheel, its bill of materials, and the digests of what travels to the engines. ``make release``.

The version is that of ``pyproject.toml``. Nothing is written unless the tree is clean, the changelog has a section for the
version, and ``tests/golden`` keeps the version's checkpoints, tables and project. The bill of materials is CycloneDX 1.4 JSON:
every Python package of ``requirements.txt`` and every jar of ``toolchain/jars.lock.json``, each with its digests.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot4
from packageurl import PackageURL

from millrace.infra.launch.job_assets import write_archive
from millrace.sandbox.programs import jars
from tests.golden import release, saved_project

ROOT = Path(__file__).parents[1]
REQUIREMENT = re.compile(r"^([\w.-]+)(?:\[[\w,-]+\])?==([^\s\\;]+)(.*(?:\n    --hash=.*)*)", re.M)


def version() -> str:
    """The version that this tree would release."""
    result: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    return result


def problems(number: str, root: Path = ROOT) -> Iterator[str]:
    """What is still to do before a release, one line each."""
    changed = _git(root, "status", "--porcelain")
    if changed:
        yield f"commit or remove what git does not have: {', '.join(line[3:] for line in changed.splitlines()[:5])}"
    if _git(root, "tag", "--list", f"v{number}"):
        yield f"raise the version in pyproject.toml: the tag v{number} is there"
    if not re.search(
        rf"^## {re.escape(number)} \(\d{{4}}-\d{{2}}-\d{{2}}\)$", (root / "CHANGELOG.md").read_text(), re.M
    ):
        yield f"write the changelog's section: ## {number} (YYYY-MM-DD)"
    kept = [*(release.archive(kind, number) for kind in release.KINDS), saved_project.kept(number)]
    if absent := [file.name for file in kept if not file.exists()]:
        yield f"run make golden, which keeps {', '.join(absent)} in tests/golden"


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True).stdout


def bill_of_materials(number: str) -> Bom:
    """What the wheel installs and what the engines are sent, with digests."""
    bom = Bom()
    bom.metadata.component = Component(
        name="millrace",
        version=number,
        type=ComponentType.APPLICATION,
        purl=PackageURL("pypi", name="millrace", version=number),
    )
    for name, pinned, hashes in REQUIREMENT.findall((ROOT / "requirements.txt").read_text()):
        bom.components.add(
            _component(PackageURL("pypi", name=name, version=pinned), re.findall(r"sha256:(\w+)", hashes))
        )
    for jar in {jar for each in jars.read_jar_lock_file().values() for jar in each}:
        qualifiers = {"classifier": jar.classifier} if jar.classifier else {}
        purl = PackageURL("maven", jar.group, jar.name, jar.version, qualifiers)
        bom.components.add(_component(purl, [jar.sha256]))
    bom.register_dependency(bom.metadata.component, bom.components)
    return bom


def _component(purl: PackageURL, digests: list[str]) -> Component:
    hashes = [HashType(alg=HashAlgorithm.SHA_256, content=digest) for digest in digests]
    return Component(
        name=purl.name,
        group=purl.namespace,
        version=purl.version,
        purl=purl,
        bom_ref=str(purl),
        hashes=hashes,
    )


def write(number: str, folder: Path) -> list[Path]:
    """Write the wheel, ``sbom.json`` and ``SHA256SUMS`` into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    wheel = folder / f"millrace_streams-{number}-py3-none-any.whl"
    bill = folder / f"millrace-{number}.sbom.json"
    bill.write_text(
        json.dumps(json.loads(JsonV1Dot4(bill_of_materials(number)).output_as_string()), indent=1) + "\n"
    )
    with tempfile.TemporaryDirectory() as empty:
        # A project's own pipelines/ travel in the same archive; this is the core alone.
        core = write_archive(Path(empty), Path(empty), {})
        sums = {
            wheel.name: _digest(wheel),
            bill.name: _digest(bill),
            "job.zip, without pipelines/": _digest(core),
        }
    listed = folder / "SHA256SUMS"
    listed.write_text("".join(f"{digest}  {name}\n" for name, digest in sums.items()))
    return [wheel, bill, listed]


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def main(arguments: list[str] | None = None) -> int:
    """Check, then write; status 2 where something is still to do."""
    reading = argparse.ArgumentParser(prog="tests.release", description=(__doc__ or "").splitlines()[0])
    reading.add_argument("--out", type=Path, default=ROOT / "dist")
    options = reading.parse_args(arguments)
    number = version()
    if result := list(problems(number)):
        sys.stderr.write("".join(f"not released: {line}\n" for line in result))
        return 2
    for file in write(number, options.out):
        sys.stdout.write(f"{file}: {file.stat().st_size:,} bytes\n")
    sys.stdout.write(
        f"next: git tag v{number}, then publish the wheel with its bill of materials and SHA256SUMS\n"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
