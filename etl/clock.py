"""What Python 3.10, which Glue 4.0 has, lacks of ``datetime``."""

from __future__ import annotations

from datetime import timezone

UTC = timezone.utc
"""``datetime.UTC`` of Python 3.11."""
