"""PostgreSQL, over JDBC: a table of an existing database."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path as FilePath
from typing import ClassVar, Literal
from urllib.parse import SplitResult, parse_qsl, urlsplit

from pydantic import Field

from millrace.config.aws.iam_statements import Grant, allow
from millrace.config.base import KeyArn, SecretArn
from millrace.config.document.problems import MISSING, Finding, Path
from millrace.config.document.yaml_tree import is_file
from millrace.config.formats.base import file_in_project, is_below_pipelines
from millrace.config.sinks.base import SinkConfig, SinkContext, SinkUse
from millrace.etl.launch import sinks as launch

_LOGIN = re.compile(r"[?&](user|password|sslpassword|username)=", re.IGNORECASE)

_URL_OPTIONS = frozenset(
    [
        "adaptiveFetch",
        "allowEncodingChanges",
        "assumeMinServerVersion",
        "autosave",
        "binaryTransfer",
        "currentSchema",
        "defaultRowFetchSize",
        "hostRecheckSeconds",
        "loadBalanceHosts",
        "options",
        "prepareThreshold",
        "preparedStatementCacheQueries",
        "preparedStatementCacheSizeMiB",
        "receiveBufferSize",
        "sendBufferSize",
        "stringtype",
        "targetServerType",
    ]
)
"""Parameters of pgjdbc that change neither the server nor the loaded classes (its documentation, "Connection Parameters").
The URL overrides all other settings, so the other parameters have keys of the sink.
"""

_HERE = ("localhost", "127.0.0.1")
_RDS = re.compile(r"(?!.*\.proxy-).*\.rds\.amazonaws\.com(\.cn)?")
"""Servers of RDS and Aurora have certificates of RDS' own authority; RDS proxies, of one that Java trusts (RDS user guide,
"Using SSL/TLS to encrypt a connection").
"""


class JdbcSink(SinkConfig):
    """A table of PostgreSQL."""

    services = ("secretsmanager",)
    jars: ClassVar[Mapping[str, str]] = {"postgresql": "EMR Serverless lacks and a job with a database needs"}

    kind: Literal["jdbc"]
    url: str = Field(
        pattern=r"^jdbc:postgresql://[A-Za-z0-9.-]+(:[0-9]{1,5})?/[A-Za-z0-9_-]+(\?[A-Za-z0-9=&._-]*)?$",
        description="jdbc:postgresql://host:port/database, without user and password.",
        examples=["jdbc:postgresql://db.shop:5432/shop"],
    )
    table: str = Field(
        pattern=r"^[a-z_][a-z0-9_]{0,49}(\.[a-z_][a-z0-9_]{0,49})?$",
        description="schema.table; created if it is missing. Without a schema, public.",
        examples=["shop.clicks"],
    )
    secret: SecretArn = Field(
        description="Secret with username and password, as JSON; the job reads it with its role at the start.",
        examples=["arn:aws:secretsmanager:us-east-1:111122223333:secret:shop-AbCdEf"],
    )
    secret_key: KeyArn | None = Field(
        default=None,
        description="Customer managed key of the secret; left out, the AWS managed key.",
        examples=["arn:aws:kms:us-east-1:111122223333:key/1234abcd"],
    )
    connections: int = Field(
        default=8,
        ge=1,
        le=200,
        description="Number of connections that write at the same time.",
        examples=[8],
    )
    tls: Literal["verify-full", "off"] = Field(
        default="verify-full",
        description="verify-full: the server must have a certificate for its name; off: no TLS, only for a server "
        "on this machine.",
        examples=["verify-full"],
    )
    authorities: str | None = Field(
        default=None,
        max_length=200,
        description="A .pem file below pipelines/ with the authorities for the server's certificate, such as "
        "RDS's bundle of the region; left out, those that Java trusts.",
        examples=["pipelines/shop/certificates/rds-us-east-1.pem"],
    )

    @property
    def target_key_and_name(self) -> tuple[str, str]:
        """Key ``table``, and the server's URL with schema and table."""
        return "table", f"jdbc:postgresql://{launch.canonical_server(self.url, 5432)} {self._table_in_schema}"

    @property
    def _table_in_schema(self) -> str:
        return self.table if "." in self.table else f"public.{self.table}"

    @property
    def _url_parts(self) -> SplitResult:
        return urlsplit(self.url.removeprefix("jdbc:"))

    def manual_erasure_steps(self, where: str, context: SinkContext) -> str:
        """Return SQL."""
        return f"DELETE FROM {self._table_in_schema} WHERE {where}; then VACUUM {self._table_in_schema};"  # noqa: S608 - for a person to read

    def check(self, use: SinkUse) -> Iterator[Finding]:
        """Check the URL, and that the server has a certificate or is on this machine."""
        url, host = (*use.path, "url"), self._url_parts.hostname or ""
        if _LOGIN.search(self.url):
            yield Finding(url, self.url, "a URL without user and password: sink.secret names both")
        parameters = parse_qsl(self._url_parts.query, keep_blank_values=True)
        refused = [name for name, _ in parameters if name not in _URL_OPTIONS]
        if refused and not _LOGIN.search(self.url):
            yield Finding(
                url,
                self.url,
                f"a URL without {', '.join(refused)}: TLS is set by the sink's keys tls and authorities",
            )
        if self.tls == "off":
            if host not in _HERE:
                yield Finding(
                    (*use.path, "tls"), "off", f"verify-full: only {' and '.join(_HERE)} go without"
                )
            if self.authorities is not None:
                yield Finding((*use.path, "authorities"), self.authorities, "nothing with tls: off")
        elif self.authorities is not None:
            yield from _check_certificate_authorities_file(
                (*use.path, "authorities"), self.authorities, use.root
            )
        elif _RDS.fullmatch(host):
            yield Finding(
                (*use.path, "authorities"),
                MISSING,
                "a .pem file below pipelines/: Java does not know RDS' own authority, which signs this server's certificate",
                "https://truststore.pki.rds.amazonaws.com/REGION/REGION-bundle.pem",
            )

    def launch_settings(self, context: SinkContext) -> launch.JdbcSinkSettings:
        """Return all keys except the secret's key, which only the grant needs."""
        return launch.JdbcSinkSettings(
            url=self.url,
            table=self._table_in_schema,
            secret=self.secret,
            region=context.names.environment.region,
            connections=self.connections,
            tls=self.tls,
            authorities=self.authorities,
        )

    def grants(self, context: SinkContext) -> Iterator[Grant]:
        """Allow reading the secret."""
        yield allow("ReadSecrets", ["secretsmanager:GetSecretValue"], [self.secret])
        if self.secret_key is not None:
            yield allow("DecryptSecrets", ["kms:Decrypt"], [self.secret_key])


def _check_certificate_authorities_file(path: Path, name: str, root: FilePath) -> Iterator[Finding]:
    from cryptography import x509

    file = file_in_project(root, name)
    if file.suffix != ".pem" or not is_below_pipelines(root, name) or not is_file(file):
        yield Finding(path, name, "a .pem file below pipelines/ that exists: it travels with the job")
        return
    content = file.read_bytes()
    if b"PRIVATE KEY" in content:
        yield Finding(path, name, "certificates alone: this file holds a private key")
        return
    try:
        certificates = x509.load_pem_x509_certificates(content)
    except ValueError as error:
        yield Finding(path, name, f"certificates in PEM: {error}")
        return
    now = datetime.now(UTC)
    if all(each.not_valid_after_utc < now for each in certificates):
        yield Finding(path, name, "a certificate that is still valid")
