"""Entry script of every job, on Glue, EMR Serverless and the sandbox: ``docs/launch-document.md``."""

import hashlib
import re
import sys
from pathlib import Path

DIGEST = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?=\.[a-z]+$)")


def matches_digest_in_name(name: str, content: bytes) -> bool:
    """Check a deployed file against the digest in its name; true for a name without a digest.

    The digest is the SHA-256 of the content's own SHA-256 in hexadecimal digits (``AssetHashType.CUSTOM`` of the CDK).
    """
    digest = DIGEST.search(name)
    content_digest = hashlib.sha256(content).hexdigest()
    return digest is None or digest[0] == hashlib.sha256(content_digest.encode()).hexdigest()


def archives_not_of_deployment() -> list[str]:
    """Return the archives on Python's path that are not those of the deployment."""
    archives = [Path(entry) for entry in sys.path if entry.endswith(".zip")]
    return [
        str(file)
        for file in archives
        if file.is_file() and not matches_digest_in_name(file.name, file.read_bytes())
    ]


if __name__ == "__main__":
    # Before anything of an archive is imported.
    if exchanged := archives_not_of_deployment():
        sys.stderr.write(f"error: {', '.join(exchanged)}: not what was deployed, by the digest in its name\n")
        sys.exit(2)
    from millrace.etl.job.entry_point import main

    status = main(sys.argv[1:])
    # Glue treats any SystemExit as a failure.
    if status:
        sys.exit(status)
