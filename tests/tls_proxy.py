"""TLS in front of a server without it: an authority, certificates, and a proxy that ends TLS as PostgreSQL does."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_SSL_REQUEST = struct.pack(">II", 8, 80877103)
"""What a client sends that wants TLS (PostgreSQL manual, "Message Formats")."""


class Authority:
    """A certificate authority."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.certificate = self._signed(self._name, self._key, ca=True, names=())

    def _signed(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        *,
        ca: bool,
        names: tuple[str, ...],
        days: int = 1,
    ) -> x509.Certificate:
        made = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(datetime.now(UTC) - timedelta(days=30))
            .not_valid_after(datetime.now(UTC) + timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca, None), critical=True)
        )
        if names:
            made = made.add_extension(
                x509.SubjectAlternativeName([x509.DNSName(n) for n in names]), critical=False
            )
        return made.sign(self._key, hashes.SHA256())

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def expired(self) -> bytes:
        """A certificate that was valid once."""
        return self._signed(self._name, self._key, ca=True, names=(), days=-1).public_bytes(
            serialization.Encoding.PEM
        )

    def signed(
        self, name: str, *, days: int = 1, names: tuple[str, ...] = (), password: str | None = None
    ) -> tuple[str, str]:
        """A certificate and its key, PEM, the key as PKCS #8."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        made = self._signed(subject, key, ca=False, names=names, days=days)
        kept = (
            serialization.NoEncryption()
            if password is None
            else serialization.BestAvailableEncryption(password.encode())
        )
        written = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, kept)
        return made.public_bytes(serialization.Encoding.PEM).decode(), written.decode()

    def server(self, folder: Path, name: str) -> ssl.SSLContext:
        """TLS of a server of this name."""
        file = folder / f"{name}.pem"
        file.write_text("".join(self.signed(name, names=(name,))))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context


class Front:
    """A port at which PostgreSQL speaks TLS.

    Attributes
    ----------
    port
        It.
    encrypted, clear
        Connections that began with TLS, and those that said anything else.
    """

    def __init__(self, behind: int, context: ssl.SSLContext) -> None:
        self._behind, self._context = behind, context
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.encrypted = self.clear = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError):
            if client.recv(8, socket.MSG_WAITALL) != _SSL_REQUEST:
                self.clear += 1
                client.close()
                return
            client.sendall(b"S")
            secured = self._context.wrap_socket(client, server_side=True)
            self.encrypted += 1
            server = socket.create_connection(("127.0.0.1", self._behind))
            threading.Thread(target=self._pump, args=(server, secured), daemon=True).start()
            self._pump(secured, server)

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(65536):
                target.sendall(piece)
        for each in (source, target):
            with suppress(OSError):
                each.close()

    def close(self) -> None:
        self._listening.close()


@contextmanager
def front(behind: int, context: ssl.SSLContext) -> Iterator[Front]:
    made = Front(behind, context)
    try:
        yield made
    finally:
        made.close()
