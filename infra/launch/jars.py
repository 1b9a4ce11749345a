"""JVM jars that are deployed with a job: those of the lock, each compared with its digest."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import millrace

from ..errors import InfrastructureError

_LOCK = Path(millrace.__file__).parent / "toolchain" / "jars.lock.json"
_FOLDER = Path(".millrace/jars")


def locked_jars(root: Path, jar_set: str, why: str) -> tuple[Path, ...]:
    """Return the jars of a set as the lock names them; other files in the folder are ignored.

    Set-up compared them with their digests when it fetched them, maybe long ago. They run with a job's role in an account,
    so they are checked again when they become assets.

    Parameters
    ----------
    root
        The project, below which set-up puts them.
    jar_set
        Name of the set, such as ``kafka-client``.
    why
        Who needs them, for the message.

    Raises
    ------
    InfrastructureError
        A jar is missing, or is not the file of the lock.
    """
    folder = root / _FOLDER / jar_set
    paths = []
    for jar in json.loads(_LOCK.read_text(encoding="utf-8"))[jar_set]:
        path = folder / ("-".join(filter(None, (jar["name"], jar["version"], jar["classifier"]))) + ".jar")
        if not path.is_file():
            raise InfrastructureError(
                f"the jar {_FOLDER / jar_set / path.name}, which {why}, is missing: run `make jars` in a clone of "
                "Millrace, or `millrace setup` in a project"
            )
        with path.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        if digest != jar["sha256"]:
            raise InfrastructureError(
                f"{_FOLDER / jar_set / path.name} is not the file that {_LOCK.name} pins (SHA-256 {digest}): delete it, "
                "find out who changed it, and run `make jars` in a clone of Millrace, elsewhere `millrace setup`"
            )
        paths.append(path)
    return tuple(paths)
