"""boto3 with its dependencies, carried to engines that may lack it, and held against the digests of the lock.

``toolchain/carried.lock.json`` has the version and a digest of each package: of the installed files that travel, which the lock's
wheels put there. ``python -m millrace.infra.launch.carried_boto3`` writes it, as a part of ``make lock``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import millrace

from ..errors import InfrastructureError

LOCK = Path(millrace.__file__).parent / "toolchain" / "carried.lock.json"

_CARRIED = ("boto3", "botocore", "jmespath", "python-dateutil", "s3transfer", "six", "urllib3")

SERVICES = ("cloudwatch", "dynamodb", "kafka", "kinesis", "s3", "secretsmanager", "sts")
"""AWS services that the core calls; botocore's descriptions of all others, 25 MB, are left out."""


def boto3_files_by_archive_path() -> Mapping[str, Path]:
    """Return boto3's files by their path in the archive, for an engine without it (:mod:`etl.services.bundled_boto3_if_missing`).

    Raises
    ------
    InfrastructureError
        A package is not the lock's: the same commit would give another archive, or somebody has changed it.
    """
    paths: dict[str, Path] = {}
    lock = json.loads(LOCK.read_text(encoding="utf-8"))
    for name in _CARRIED:
        files = _package_files(name)
        here = _version_and_digest(name, files)
        if here != lock[name]:
            raise InfrastructureError(
                f"the files of the installed {name} {here['version']} are not those of {lock[name]['version']} "
                "in the lock file, which this version of Millrace packs for the engines: install your "
                "project's requirements-deploy.txt or requirements-sandbox.txt with pip install "
                "--require-hashes"
            )
        paths |= files
    return paths


def _package_files(name: str) -> dict[str, Path]:
    try:
        listed = distribution(name).files or ()
    except PackageNotFoundError:
        return {}
    files = {}
    for file in listed:
        package, *rest = file.parts
        described = package == "botocore" and rest[0] == "data" and len(rest) > 2
        unused = package.endswith(".dist-info") or ".." in file.parts or "__pycache__" in file.parts
        if unused or (described and rest[1] not in SERVICES):
            continue
        files[f"carried/{file.as_posix()}"] = Path(str(file.locate()))
    return files


def _version_and_digest(name: str, files: Mapping[str, Path]) -> dict[str, str]:
    """Return the version of a package, and the digest of its files with their names."""
    digest = hashlib.sha256()
    for path, file in sorted(files.items()):
        digest.update(f"{path} {hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return {"version": distribution(name).version if files else "(none)", "sha256": digest.hexdigest()}


def write_boto3_lock() -> None:
    """Write the lock of the packages that are installed here, from the wheels of ``requirements.txt``."""
    described = {name: _version_and_digest(name, _package_files(name)) for name in _CARRIED}
    LOCK.write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_boto3_lock()
