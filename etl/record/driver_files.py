"""Files that the driver makes for the JVMs of a job, under one name that all of them find."""

from __future__ import annotations

import atexit
import hmac
import secrets
import tempfile
from pathlib import Path

from pyspark import SparkContext, SparkFiles

_KEY = secrets.token_bytes(32)
"""Of this process: a name that tells one content from another tells nobody what it is."""


def ship(context: SparkContext, name: str, content: bytes) -> str:
    """Bring a file to the driver and to each executor, those of later too.

    Spark brings a file that it is told of into each executor's working directory, so on a cluster it has the same
    relative path everywhere. Where the driver does the executors' work, it lies in a folder that Spark removes.

    Parameters
    ----------
    name
        What its own begins with; the end is of the content.
    content
        Read by the user of the job alone.

    Returns
    -------
    str
        Its path, relative on a cluster.
    """
    local = bool(context._jsc.sc().isLocal())
    folder = Path(SparkFiles.getRootDirectory()) if local else Path.cwd()
    file = folder / f"{name}-{hmac.digest(_KEY, content, 'sha256').hex()[:16]}"
    if not file.exists():
        # In one step: a second query of the job may be reading it.
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as made:
            made.write(content)
        Path(made.name).replace(file)
    if not local:
        context.addFile(str(file))
        atexit.register(file.unlink, missing_ok=True)
    return str(file) if local else file.name
