r"""Escapes for characters that a terminal interprets or a reader does not see: ``\x1b``, ``\u202e``.

Names, logs and records come from others. In a terminal an escape sequence moves the cursor, renames the window or hides
a line; a direction mark reverses a line; a line separator ends one.
"""

from __future__ import annotations

import json

_RANGES = (
    (0x00, 0x08), (0x0B, 0x1F), (0x7F, 0x9F),  # C0 without tab and line feed, delete, C1
    (0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F),
    (0x200B, 0x200F), (0x2028, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0),
    (0xFFF9, 0xFFFB), (0x1D173, 0x1D17A), (0xE0000, 0xE007F),  # no width, marks of direction, separators, tags
    (0xD800, 0xDFFF),  # halves of characters, which no encoding writes
)  # fmt: skip


TABLE = {
    code: f"\\x{code:02x}" if code < 0x20 else json.dumps(chr(code)).strip('"')
    for first, last in _RANGES
    for code in range(first, last + 1)
}
"""Table for ``str.translate``. For characters that JSON leaves raw, the escapes are those of JSON, so that JSON text keeps
its meaning.
"""


def escape_invisible(text: str) -> str:
    r"""Escape such characters; tabs and line feeds stay.

    Examples
    --------
    >>> escape_invisible("a\x1b[2Jb\u202ec\n")
    'a\\x1b[2Jb\\u202ec\n'
    """
    return text if text.isascii() and text.isprintable() else text.translate(TABLE)
