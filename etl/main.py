"""Entry script of every job, on Glue, EMR Serverless and the sandbox: ``docs/launch-document.md``."""

import sys

from millrace.etl.job.command import main

if __name__ == "__main__":
    status = main(sys.argv[1:])
    # Glue treats any SystemExit as a failure.
    if status:
        sys.exit(status)
