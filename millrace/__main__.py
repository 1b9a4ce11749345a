"""``python -m millrace``, and the program ``millrace``: a shell's question is answered without the commands."""

import os


def main() -> None:
    """Run the command line, or complete one."""
    if "_MILLRACE_COMPLETE" in os.environ:
        from millrace.completion import complete

        complete()
    else:
        from millrace.cli import main as run

        run()


if __name__ == "__main__":
    main()
