"""``python -m millrace``, and the program ``millrace``: a shell's question is answered without the commands."""

import os
from importlib import import_module


def main() -> None:
    """Run the command line, or complete one."""
    if "_MILLRACE_COMPLETE" in os.environ:
        from millrace.completion import complete

        complete(lambda: import_module("millrace.cli.app").app)
    else:
        import_module("millrace.cli").main()


if __name__ == "__main__":
    main()
