"""A database without TLS or without a verifiable certificate is refused at load."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.config import ConfigurationError, load
from millrace.config.sinks.jdbc import JdbcSink
from tests.tls_proxy import Authority
from tests.unit.config.bad_queries import DERIVE, LETTERS, SINK
from tests.unit.config.conftest import GOOD

URL = "jdbc:postgresql://db.shop:5432/shop"
RDS = "jdbc:postgresql://shop.abc123.us-east-1.rds.amazonaws.com/shop"


def written(project: Path, url: str, more: str = "") -> str:
    text = f"""\
        sink:
          kind: jdbc
          url: {url}
          table: clicks
          secret: arn:aws:secretsmanager:us-east-1:111122223333:secret:db-AbCdEf
{more}{LETTERS}"""
    (project / "environments" / "shop.yaml").write_text(GOOD.replace(SINK, text))
    return text


@pytest.fixture
def certificates(project: Path) -> Path:
    folder = project / "pipelines" / "shop"
    ours = Authority("ours")
    (folder / "ours.pem").write_bytes(ours.pem + Authority("other").pem)
    (folder / "old.pem").write_bytes(ours.expired())
    (folder / "none.pem").write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    (folder / "key.pem").write_bytes(ours.pem + b"-----BEGIN " + b"PRIVATE KEY-----\n")
    (project / "elsewhere.pem").write_bytes(ours.pem)
    return folder


@pytest.mark.parametrize(
    ("url", "more", "key", "said"),
    [
        (f"{URL}?sslmode=disable", "", "url", "a URL without sslmode"),
        (f"{URL}?sslmode=require", "", "url", "a URL without sslmode"),
        (
            f"{URL}?ssl=false&sslfactory=org.postgresql.ssl.NonValidatingFactory",
            "",
            "url",
            "a URL without ssl, sslfactory",
        ),
        (f"{URL}?socketFactory=evil.Factory", "", "url", "a URL without socketFactory"),
        (URL, "          tls: off\n", "tls", "verify-full: only localhost and 127.0.0.1"),
        (URL, "          tls: prefer\n", "tls", "verify-full"),
        (RDS, "", "authorities", "Java does not know RDS' own authority"),
        (URL, "          authorities: pipelines/shop/missing.pem\n", "authorities", "that exists"),
        (URL, "          authorities: elsewhere.pem\n", "authorities", "below pipelines/"),
        (URL, "          authorities: pipelines/../elsewhere.pem\n", "authorities", "below pipelines/"),
        (URL, "          authorities: pipelines/shop/../shop/ours.pem\n", "authorities", "below pipelines/"),
        (URL, "          authorities: pipelines/shop/none.pem\n", "authorities", "certificates in PEM"),
        (URL, "          authorities: pipelines/shop/key.pem\n", "authorities", "holds a private key"),
        (URL, "          authorities: pipelines/shop/old.pem\n", "authorities", "still valid"),
        (
            "jdbc:postgresql://localhost/shop",
            "          tls: off\n          authorities: pipelines/shop/ours.pem\n",
            "authorities",
            "nothing with tls: off",
        ),
    ],
)
def test_what_would_not_be_known_is_refused(
    url: str, more: str, key: str, said: str, project: Path, certificates: Path
) -> None:
    written(project, url, more)
    with pytest.raises(ConfigurationError) as told:
        load("shop", root=project)
    [problem] = [each for each in told.value.problems if each.key == f"{DERIVE}.sink.{key}"]
    assert said in problem.allowed
    assert problem.line > 0


@pytest.mark.parametrize(
    ("url", "more"),
    [
        (URL, ""),
        (f"{URL}?currentSchema=shop&targetServerType=primary", ""),
        (URL, "          authorities: pipelines/shop/ours.pem\n"),
        (RDS, "          authorities: pipelines/shop/ours.pem\n"),
        ("jdbc:postgresql://shop.proxy-abc123.us-east-1.rds.amazonaws.com/shop", ""),
        ("jdbc:postgresql://127.0.0.1:5432/shop", "          tls: off\n"),
    ],
)
def test_what_is_known_passes(url: str, more: str, project: Path, certificates: Path) -> None:
    written(project, url, more)
    sink = load("shop", root=project).jobs["clicks"].queries["count-clicks"].sink  # type: ignore[union-attr]
    assert isinstance(sink, JdbcSink)
    assert sink.tls == ("off" if "off" in more else "verify-full")
