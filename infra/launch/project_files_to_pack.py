"""The project's own files that travel with a job, and what may not be among them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from millrace.config.document.plain_text_secrets import number_of_first_line_with_secret

from ..errors import InfrastructureError

MOST_BYTES = 32 * 1024**2
"""Size of ``pipelines/`` with all its files: each worker loads it at each start, and data belongs into a bucket."""

_KEY_FILES = (".jks", ".key", ".keystore", ".p12", ".pem", ".pfx", ".ppk")
_NAMES = ("credentials.json", "service-account.json", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519")


def files_of_package(package: Path) -> list[Path]:
    """Return the files of a package that travel: without compiled Python and hidden files."""
    return [file for file in _files_without_hidden(package) if file.is_file() and file.suffix != ".pyc"]


def pipeline_files(root: Path) -> list[Path]:
    """Return the files of a project's ``pipelines/`` that travel with a job.

    Raises
    ------
    InfrastructureError
        A file is a secret or holds one, leads out of the project, or the files are too large; a line each.
    """
    package = root / "pipelines"
    files = files_of_package(package)
    # Followed by nobody: what a job imports through it would be missing there.
    links = [each for each in _files_without_hidden(package) if each.is_symlink() and not each.is_file()]
    faults = [
        f"{each.relative_to(root)}: a link to a folder or to nothing; allowed: files, and links to files of the project"
        for each in links
    ]
    faults += [
        f"{file.relative_to(root)}: {fault}" for file in files for fault in _reasons_not_packable(file, root)
    ]
    if not faults and (size := sum(file.stat().st_size for file in files)) > MOST_BYTES:
        largest = sorted(files, key=lambda file: file.stat().st_size, reverse=True)[:3]
        faults.append(
            f"pipelines/: {size:,} bytes; allowed: {MOST_BYTES:,}, because each worker loads them; put data into a bucket. "
            "The largest: "
            + ", ".join(f"{file.relative_to(root)} ({file.stat().st_size:,})" for file in largest)
        )
    if faults:
        raise InfrastructureError("these files cannot be packed for the jobs:\n" + "\n".join(sorted(faults)))
    return files


def _files_without_hidden(package: Path) -> Iterator[Path]:
    for path in package.rglob("*"):
        if not any(part.startswith(".") or part == "__pycache__" for part in path.relative_to(package).parts):
            yield path


def _reasons_not_packable(file: Path, root: Path) -> Iterator[str]:
    if not file.resolve().is_relative_to(root.resolve()):
        yield "a link that leads out of the project; allowed: files of the project"
    elif file.suffix.lower() in _KEY_FILES or file.name.lower() in _NAMES:
        yield "a file with a key or credentials; allowed: a reference to Secrets Manager in the environment file"
    elif file.stat().st_size <= MOST_BYTES:
        # Without the zeros of UTF-16.
        text = file.read_bytes().decode("utf-8", errors="ignore").replace("\0", "")
        # In a program a name before a sign of equality is a variable; only what has a secret's own form is one.
        if line := number_of_first_line_with_secret(text, names=file.suffix != ".py"):
            yield f"line {line} holds a secret; allowed: a reference to Secrets Manager in the environment file"
