"""Authentication of Kafka clusters in the file: what is accepted, and all mistakes at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from millrace.config import ConfigurationError, load
from millrace.config.kafka.login import CertificateLogin, IamLogin, NoLogin, PasswordLogin, TlsLogin
from tests.unit.config.conftest import GOOD

ACCOUNT = "111122223333"
MSK = f"arn:aws:kafka:us-east-1:{ACCOUNT}:cluster/theirs/abcd1234-ab12-1"
SECRET = f"arn:aws:secretsmanager:us-east-1:{ACCOUNT}:secret:AmazonMSK_shop-AbCdEf"
OTHER = f"arn:aws:secretsmanager:us-east-1:{ACCOUNT}:secret:shop-AbCdEf"
KEY = f"arn:aws:kms:us-east-1:{ACCOUNT}:key/1234abcd-12ab-34cd-56ef-1234567890ab"
CLUSTER = "    kind: msk\n    version: 3.9.x\n"
OWN = {"kind": "msk", "version": "3.9.x"}
EXISTING = {"kind": "msk", "existing": MSK}
EXTERNAL = {"kind": "external", "bootstrap_servers": "b-1.theirs:9093,b-2.theirs:9093"}


def written(project: Path, cluster: dict[str, Any], authentication: Any) -> None:
    given = {**cluster, **({} if authentication is None else {"authentication": authentication})}
    text = GOOD.replace("  main:\n" + CLUSTER, f"  main: {json.dumps(given)}\n")
    assert text != GOOD
    if cluster is not OWN:
        text = text.replace(
            "    topic: orders\n", "    topic: orders\n    existing: true\n    partitions: 4\n"
        )
    (project / "environments" / "shop.yaml").write_text(text)


@pytest.mark.parametrize(
    ("cluster", "authentication", "read"),
    [
        (OWN, None, IamLogin()),
        (EXTERNAL, None, TlsLogin()),
        (EXTERNAL, "none", NoLogin(kind="none")),
        (EXTERNAL, {"kind": "tls", "secret": OTHER}, TlsLogin(secret=OTHER)),
        (EXTERNAL, {"kind": "plain", "secret": OTHER}, PasswordLogin(kind="plain", secret=OTHER)),
        (
            EXTERNAL,
            {"kind": "mutual-tls", "secret": OTHER, "secret_key": KEY},
            CertificateLogin(kind="mutual-tls", secret=OTHER, secret_key=KEY),
        ),
        (
            EXISTING,
            {"kind": "scram-sha-512", "secret": SECRET, "secret_key": KEY},
            PasswordLogin(kind="scram-sha-512", secret=SECRET, secret_key=KEY),
        ),
        (EXISTING, "tls", TlsLogin()),
    ],
)
def test_a_name_or_a_mapping_is_read(
    cluster: dict[str, Any], authentication: Any, read: Any, project: Path
) -> None:
    written(project, cluster, authentication)
    assert load("shop", root=project).kafka["main"].authentication == read


ELSEWHERE = SECRET.replace("us-east-1", "eu-west-1")


@pytest.mark.parametrize(
    ("cluster", "authentication", "key", "value", "allowed"),
    [
        (OWN, {"kind": "scram-sha-512", "secret": SECRET, "secret_key": KEY}, "", "scram-sha-512", "iam: a cluster that this environment creates"),
        (OWN, "none", "", "none", "iam: a cluster that this environment creates"),
        ({**EXISTING, "tier": "serverless"}, "tls", "", "tls", "iam: a serverless cluster"),
        (EXISTING, {"kind": "plain", "secret": OTHER}, "", "plain", "MSK has no SASL/PLAIN"),
        (EXISTING, {"kind": "scram-sha-512", "secret": OTHER, "secret_key": KEY}, ".secret", OTHER, "begins with AmazonMSK_"),
        (EXISTING, {"kind": "scram-sha-512", "secret": SECRET}, ".secret_key", "(missing)", "customer key"),
        (EXTERNAL, {"kind": "plain", "secret": ELSEWHERE}, ".secret", ELSEWHERE, "a secret in us-east-1"),
        (EXTERNAL, {"kind": "tls", "secret_key": KEY}, ".secret_key", KEY, "nothing without secret"),
        (EXTERNAL, "scram-sha-512", ".secret", "(missing)", "required"),
        (EXTERNAL, {"kind": "mutual-tls"}, ".secret", "(missing)", "required"),
        (EXTERNAL, {"kind": "plain", "secret": "shop"}, ".secret", "sh… (4 characters)", "secretsmanager"),
        (EXTERNAL, {"kind": "none", "secret": OTHER}, ".secret", "un…", "one of kind"),
        (EXTERNAL, "scram", "", "scram", "scram-sha-512"),
        (EXTERNAL, {"secret": OTHER}, ".kind", "(missing)", "mutual-tls"),
        (EXTERNAL, {"kind": "plain", "secret": OTHER, "password": "hunter2"}, ".password", "hu… (7 characters)", "reference"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_what_is_allowed(
    cluster: dict[str, Any], authentication: Any, key: str, value: str, allowed: str, project: Path
) -> None:
    written(project, cluster, authentication)
    with pytest.raises(ConfigurationError) as told:
        load("shop", root=project)
    (result,) = told.value.problems
    assert result.key in (f"kafka.main.authentication{key}", f"kafka.main.authentication{key or '.kind'}")
    assert value in result.value
    assert allowed in f"{result.allowed} {result.hint}"
    assert "hunter2" not in str(told.value)


def test_all_mistakes_are_told_at_once(project: Path) -> None:
    text = GOOD.replace(
        "  main:\n" + CLUSTER,
        f"  main: {{kind: msk, existing: '{MSK}', authentication: {{kind: scram-sha-512, secret: '{ELSEWHERE}'}}}}\n"
        "  theirs: {kind: external, bootstrap_servers: 'b:x', authentication: {kind: plain}}\n"
        "  third: {kind: msk, authentication: none}\n",
    )
    (project / "environments" / "shop.yaml").write_text(text)
    with pytest.raises(ConfigurationError) as told:
        load("shop", root=project)
    keys = {each.key for each in told.value.problems}
    assert {
        "kafka.main.authentication.secret",
        "kafka.main.authentication.secret_key",
        "kafka.theirs.authentication.secret",
        "kafka.third.authentication",
    } <= keys
