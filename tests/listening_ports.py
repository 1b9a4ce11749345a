"""Network addresses on which programs of this machine listen, from the Linux kernel."""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

_LISTENS, _UNCONNECTED = "0A", "07"
"""States in ``/proc/net`` (``include/net/tcp_states.h``): of TCP, and of UDP without a peer."""


@dataclass(frozen=True)
class Listener:
    """A socket that takes what comes from elsewhere."""

    kind: str
    address: str
    port: int
    program: str

    @property
    def local(self) -> bool:
        """Whether nothing but this machine reaches it."""
        address = ipaddress.ip_address(self.address)
        mapped = getattr(address, "ipv4_mapped", None)
        return bool((mapped or address).is_loopback)


def listeners(pids: Iterable[int]) -> set[Listener]:
    """Sockets of some processes on which they listen, by the kernel's tables of this network namespace."""
    inodes = {inode: pid for pid in pids for inode in _sockets(pid)}
    result = set()
    for kind, state in (("tcp", _LISTENS), ("tcp6", _LISTENS), ("udp", _UNCONNECTED), ("udp6", _UNCONNECTED)):
        for line in Path(f"/proc/net/{kind}").read_text().splitlines()[1:]:
            _, local, _, at, *_, inode = line.split()[:10]
            if at == state and int(inode) in inodes:
                address, _, port = local.partition(":")
                result.add(Listener(kind, _address(address), int(port, 16), _name(inodes[int(inode)])))
    return result


def tree() -> set[int]:
    """This process, all that it started, and all in the sessions of these: also those whose parent has ended."""
    mine = {os.getpid(), *(p.pid for p in psutil.Process().children(recursive=True))}
    sessions = {os.getsid(pid) for pid in _alive(mine)} - {os.getsid(0)}
    return mine | {pid for pid in _alive(psutil.pids()) if os.getsid(pid) in sessions}


def _alive(pids: Iterable[int]) -> Iterator[int]:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.getsid(pid)
            yield pid


def _sockets(pid: int) -> Iterator[int]:
    with suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                target = str(entry.readlink())
                if target.startswith("socket:["):
                    yield int(target[8:-1])


def _address(text: str) -> str:
    """From words of 32 bits in the machine's order, as hexadecimal digits."""
    words = (int(text[i : i + 8], 16) for i in range(0, len(text), 8))
    packed = b"".join(struct.pack("=I", word) for word in words)
    return socket.inet_ntop(socket.AF_INET if len(packed) == 4 else socket.AF_INET6, packed)


def _name(pid: int) -> str:
    with suppress(OSError):
        return " ".join(Path(f"/proc/{pid}/cmdline").read_text().split("\0"))[-120:]
    return str(pid)
