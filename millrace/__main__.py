"""``python -m millrace``."""

from millrace.cli import main

main()
