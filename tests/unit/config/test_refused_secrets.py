"""Secrets of every service's form are refused at any place; names and references are accepted."""

from __future__ import annotations

from pathlib import Path

import pytest
from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
from hypothesis import given
from hypothesis import strategies as some

from millrace.config import ConfigurationError, load
from millrace.config.document.plain_text_secrets import has_secret_form
from tests.unit.config.conftest import GOOD

SPARK = "    spark:\n"
A = "Zx9" * 40  # letters and digits that no scanner knows


def of(kind: str, rest: str) -> str:
    """Put together here, so that no scanner of repositories stops at this file."""
    return kind + rest


SECRETS = {
    "option of a JVM": "-Xmx1g -Djavax.net.ssl.keyStorePassword=hunter2",
    "option of a JVM, first of several": "-Djavax.net.ssl.trustStorePassword=hunter2 -Dfile.encoding=UTF-8",
    "login module": 'org.apache.kafka.common.security.plain.PlainLoginModule required username="me" password="x";',
    "login module, escaped": 'ScramLoginModule required username=\\"me\\" password=\\"hunter2\\";',
    "option of Elasticsearch": "es.net.http.auth.user=me,es.net.http.auth.pass=hunter2",
    "short name in a connection string": "host=h user=me pass=hunter2",
    "parameter of a URL": "jdbc:mysql://db/shop?user=me&password=hunter2",
    "parameter of a URL, encoded": "https://x/?next=%3Fpassword%3Dhunter2",
    "user of a URL": "jdbc:postgresql://me:hunter2@db/shop",
    "password alone of a URL": "redis://:hunter2@cache:6379",
    "argument": "--db-password hunter2",
    "argument with a sign": "--api-key=hunter2",
    "connection string": "AccountName=shop;AccountKey=" + A[:86] + "==;EndpointSuffix=core.windows.net",
    "shared access signature": "https://shop.blob.core.windows.net/x?sv=2024&sig=" + A[:43] + "%3D",
    "event hub": "Endpoint=sb://x/;SharedAccessKeyName=root;SharedAccessKey=" + A[:20],
    "header": "Authorization: Bearer abc.def-123",
    "basic header": "authorization=Basic bWU6aHVudGVyMg==",
    "AWS access key": of("AK", "IAIOSFODNN7EXAMPLE"),
    "AWS temporary key": of("AS", "IAIOSFODNN7EXAMPLE"),
    "AWS secret key": of("wJalrXUtnFEMI/K7MDENG/", "bPxRfiCYEXAMPLEKEY"),
    "AWS settings": "spark.hadoop.fs.s3a.secret.key=x1",
    "GitHub": of("gh", "p_" + A[:36]),
    "GitHub, fine-grained": of("github", "_pat_" + A[:22] + "_" + A[:59]),
    "GitLab": of("gl", "pat-" + A[:20]),
    "Slack": of("xo", "xb-123456789012-" + A[:24]),
    "Slack hook": of("https://hooks.slack", ".com/services/T00000000/B00000000/" + A[:24]),
    "Stripe": of("sk", "_live_" + A[:24]),
    "Google": of("AI", "za" + A[:35]),
    "npm": of("np", "m_" + A[:36]),
    "PyPI": of("pypi-", "AgEIcHlwaS5vcmc" + A[:40]),
    "JSON web token": of("ey", "JhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0." + A[:43]),
    "private key": "-----BEGIN OPENSSH " + "PRIVATE KEY-----",
    "PGP key": "-----BEGIN PGP " + "PRIVATE KEY BLOCK-----",
    "Databricks": of("da", "pi" + "0123456789abcdef" * 2),
    "SendGrid": of("SG", "." + A[:22] + "." + A[:43]),
    "Vault": of("hv", "s." + A[:24]),
    "Docker": of("dckr", "_pat_" + A[:27]),
}

NONE = [
    "arn:aws:secretsmanager:us-east-1:111122223333:secret:db-AbCdEf",
    "-Djavax.net.ssl.keyStore=/etc/keys -Dfile.encoding=UTF-8 -XX:+UseG1GC",
    "--conf spark.x=1 --no-token-needed",
    "com.amazonaws.auth.DefaultAWSCredentialsProviderChain",
    "password=${DB_PASSWORD}",
    "--password $DB_PASSWORD",
    "password = <from the secret>",
    "https://login.example.com/oauth2/token",
    "pipelines/flights/schemas/password_resets.ddl",
    "jdbc:postgresql://db.shop:5432/shop?currentSchema=tokens",
    "no token is needed here: records carry none",
    "2026-11-23T00:00:00Z",
    "b-1.main.abc123.c2.kafka.us-east-1.amazonaws.com:9098,b-2.main.abc123.c2.kafka.us-east-1.amazonaws.com:9098",
    "sha256:" + "0123456789abcdef" * 4,
    "SELECT sum(token_count) AS tokens FROM clicks",
    "first pass: read; bypass=7, compass: north, passengers: 4",
]


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
def test_every_form_is_refused_and_never_shown(secret: str, project: Path) -> None:
    quoted = secret.replace("'", "''")
    text = GOOD.replace(SPARK, f"{SPARK}      spark.driver.extraJavaOptionsOfOurs: '{quoted}'\n")
    assert text != GOOD
    (project / "environments" / "shop.yaml").write_text(text)
    with pytest.raises(ConfigurationError, match="a secret in plain text") as told:
        load("shop", root=project)
    assert secret[2:] not in str(told.value)


@pytest.mark.parametrize("text", NONE)
def test_what_only_speaks_of_secrets_passes(text: str) -> None:
    assert not has_secret_form(text)


def test_a_secret_as_a_key_is_refused_and_not_shown(project: Path) -> None:
    token = SECRETS["GitHub"]
    (project / "environments" / "shop.yaml").write_text(GOOD.replace("  team: web\n", f"  {token}: web\n"))
    with pytest.raises(ConfigurationError, match="a secret in plain text") as told:
        load("shop", root=project)
    assert token not in str(told.value)


@pytest.mark.parametrize(
    "key", ["spark.es.net.http.auth.pass", "spark.db_pass", "spark.dbPass", "spark.sink.pw"]
)
def test_a_key_that_is_named_like_a_secret_holds_one(key: str, project: Path) -> None:
    (project / "environments" / "shop.yaml").write_text(GOOD.replace(SPARK, f"{SPARK}      {key}: horse\n"))
    with pytest.raises(ConfigurationError, match="a secret in plain text"):
        load("shop", root=project)


def test_a_password_of_digits_is_one(project: Path) -> None:
    text = GOOD.replace(SPARK, f"{SPARK}      spark.ssl.keyPassword: 123456\n")
    (project / "environments" / "shop.yaml").write_text(text)
    with pytest.raises(ConfigurationError, match="a secret in plain text") as told:
        load("shop", root=project)
    assert "123456" not in str(told.value)


def test_no_form_that_detect_secrets_knows_is_missed() -> None:
    """The forms of a well-kept scanner, held against ours: those of its plugins that need no context."""
    known = {
        "AWS Access Key": SECRETS["AWS access key"],
        "GitHub Token": SECRETS["GitHub"],
        "JSON Web Token": SECRETS["JSON web token"],
        "Slack Token": SECRETS["Slack"],
        "Stripe Access Key": SECRETS["Stripe"],
        "SendGrid API Key": SECRETS["SendGrid"],
        "Basic Auth Credentials": SECRETS["user of a URL"],
        "NPM tokens": "//registry.npmjs.org/:_authToken=" + SECRETS["npm"],
        "Azure Storage Account access key": SECRETS["connection string"],
        "Artifactory Credentials": of("AK", "C" + A[:60]),
        "Mailchimp Access Key": "0123456789abcdef" * 2 + "-us12",
        "Twilio API Key": of("S", "K" + "0123456789abcdef" * 2),
        "Square OAuth Secret": of("sq0", "csp-" + A[:43]),
    }
    scanners = get_mapping_from_secret_type_to_class()
    unseen = {
        "Secret Keyword",
        "Base64 High Entropy String",
        "Hex High Entropy String",
    }  # by entropy, or by a key
    by_name = {
        "Cloudant Credentials",
        "IBM Cloud IAM Key",
        "IBM COS HMAC Credentials",
        "SoftLayer Credentials",
    }
    unseen |= by_name | {"Discord Bot Token", "Private Key"}  # the last wants a whole key
    assert set(scanners) - unseen - set(known) == set()
    result = [kind for kind, text in known.items() if list(scanners[kind]().analyze_string(text))]
    assert len(result) >= len(known) - 2  # theirs wants a line's end behind one of these
    assert all(has_secret_form(text) for text in known.values())


@given(some.text(alphabet="ab-.=:/@+ \n\"'%?&" + A[:3], max_size=300), some.integers(1, 300))
def test_long_texts_are_looked_through_in_time_of_their_length(piece: str, times: int) -> None:
    has_secret_form((piece * times)[:50_000])
