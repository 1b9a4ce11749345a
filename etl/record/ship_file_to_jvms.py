"""Files that the driver writes for the JVMs of a job, under one name that is valid in all of them."""

from __future__ import annotations

import atexit
import hmac
import secrets
import tempfile
from pathlib import Path

from pyspark import SparkContext, SparkFiles

_KEY = secrets.token_bytes(32)
"""Random key of this process: a file's name shows whether contents differ, but not the content."""


def ship_file_to_jvms(context: SparkContext, name: str, content: bytes) -> str:
    """Copy a file to the driver and to each executor, including later ones.

    Spark copies an added file into each executor's working directory, so on a cluster it has the same
    relative path everywhere. In local mode it is in a folder that Spark removes.

    Parameters
    ----------
    name
        Start of the file's name; the end is derived from the content.
    content
        Content, readable only by the user of the job.

    Returns
    -------
    str
        Its path, relative on a cluster.
    """
    local = bool(context._jsc.sc().isLocal())
    folder = Path(SparkFiles.getRootDirectory()) if local else Path.cwd()
    file = folder / f"{name}-{hmac.digest(_KEY, content, 'sha256').hex()[:16]}"
    if not file.exists():
        # Atomic, because a second query of the job may be reading it.
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as made:
            made.write(content)
        Path(made.name).replace(file)
    if not local:
        context.addFile(str(file))
        atexit.register(file.unlink, missing_ok=True)
    return str(file) if local else file.name
