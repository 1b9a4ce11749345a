"""``python -m millrace``, and the program ``millrace``."""

import atexit
import gc
import signal
from importlib import import_module


def main() -> None:
    """Run the command line; Ctrl-C ends the imports, which take a second, without a traceback."""
    # A large plan is millions of small values that stay: looking for cycles among them takes a fifth of its time, at the end a tenth.
    gc.set_threshold(2_000_000)
    atexit.register(gc.freeze)
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    run = import_module("millrace.cli").main
    signal.signal(signal.SIGINT, handler)
    run()


if __name__ == "__main__":
    main()
