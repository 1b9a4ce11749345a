"""boto3 from the job's archive, if the engine's Python has none.

Glue ships boto3 with its Python ("Python modules already provided in AWS Glue" of its developer guide). For EMR Serverless'
Python 3.11 this is not documented; its archive carries boto3 with its dependencies, below ``carried/``. botocore reads
its descriptions of services as files, which cannot be inside an archive: they are unpacked once on each machine.
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
import zipfile
import zlib
from pathlib import Path
from typing import Any

from ..record.errors import StartError

FOLDER = "carried"
"""Folder of the archive with the packages to unpack."""


def import_boto3(what: str) -> Any:
    """Return the module boto3: the engine's own, or the one in the archive.

    Parameters
    ----------
    what
        Purpose, for the message.

    Raises
    ------
    StartError
        There is neither.
    """
    try:
        return importlib.import_module("boto3")
    except ImportError as error:
        archive = next((place for place in Path(__file__).parents if zipfile.is_zipfile(place)), None)
        if archive is None:
            raise StartError(
                f"boto3 is needed {what}, but the Python at {sys.executable} does not have it"
            ) from error
    sys.path.append(str(_unpack_archive(archive)))
    importlib.invalidate_caches()
    return importlib.import_module("boto3")


def _unpack_archive(archive: Path) -> Path:
    with zipfile.ZipFile(archive) as source:
        members = [each for each in source.infolist() if each.filename.startswith(f"{FOLDER}/")]
        digest = zlib.crc32(repr([(each.filename, each.CRC) for each in members]).encode())
        # By user: the folder of another user is not trusted.
        home = Path(tempfile.gettempdir()) / f"millrace-{os.getuid()}"
        home.mkdir(mode=0o700, exist_ok=True)
        if home.stat().st_uid != os.getuid():
            raise StartError(
                f"the folder {home}, into which the job's boto3 is unpacked, belongs to another user; have "
                "it removed"
            )
        whole = home / f"{digest:08x}"
        if not whole.exists():
            part = Path(tempfile.mkdtemp(dir=home))
            source.extractall(part, members)
            try:
                part.rename(whole)
            except OSError:
                # Another process was faster.
                if not whole.exists():
                    raise
    return whole / FOLDER
