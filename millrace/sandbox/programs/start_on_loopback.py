"""Starter of a Python module whose servers all listen on 127.0.0.1: ``python start_on_loopback.py MODULE``.

It is for programs that listen on every interface and have no setting for it. It runs in such a program's
own Python, which has none of Millrace's packages.
"""

from __future__ import annotations

import runpy
import socket
import sys
from typing import Any

_EVERYWHERE = ("", "0.0.0.0", "::")  # noqa: S104 - what is not listened on

_bind = socket.socket.bind


def _bind_on_loopback(self: socket.socket, address: Any) -> None:
    if isinstance(address, tuple) and address[0] in _EVERYWHERE:
        host = "::1" if self.family == socket.AF_INET6 else "127.0.0.1"
        address = (host, *address[1:])
    _bind(self, address)


if __name__ == "__main__":
    socket.socket.bind = _bind_on_loopback  # type: ignore[assignment,method-assign]
    # The folder of this file: its modules have names of other packages.
    del sys.path[0]
    _, module, *arguments = sys.argv
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
