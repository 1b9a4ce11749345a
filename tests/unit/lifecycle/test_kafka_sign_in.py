"""The command line signs in to existing Kafka clusters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from millrace.config import Names
from millrace.config.model import ExternalCluster
from millrace.lifecycle.account import kafka_access
from millrace.lifecycle.account.kafka_access import cluster_connection_settings
from millrace.lifecycle.aws_error_messages import AwsError
from tests.unit.verify.conftest import ACCOUNT, environment


def of(authentication: Any, clients: Mapping[str, Any] | None = None) -> dict[str, Any]:
    cluster = ExternalCluster(
        kind="external", bootstrap_servers="b-1.theirs:9098", authentication=authentication
    )
    model = environment("minimal").model_copy(update={"kafka": {"theirs": cluster}})
    return dict(
        cluster_connection_settings(
            Names(model, ACCOUNT),
            "theirs",
            lambda service: (clients or {}).get(service) or pytest.fail(service),
        )
    )


def test_iam_signs_in_with_a_token_of_the_environment_s_region(monkeypatch: pytest.MonkeyPatch) -> None:
    def token(region: str) -> tuple[str, int]:
        return f"signed for {region}", 1_800_000_000_000

    monkeypatch.setattr(kafka_access.MSKAuthTokenProvider, "generate_auth_token", token)
    result = of("iam")
    assert result.pop("oauth_cb")("") == ("signed for us-east-1", 1_800_000_000.0)
    assert result == {
        "bootstrap.servers": "b-1.theirs:9098",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
    }


@pytest.mark.parametrize(("authentication", "protocol"), [("tls", "SSL"), ("none", "PLAINTEXT")])
def test_others_need_no_token(authentication: str, protocol: str) -> None:
    assert of(authentication) == {"bootstrap.servers": "b-1.theirs:9098", "security.protocol": protocol}


class Held:
    """A Secrets Manager with one text."""

    def __init__(self, text: str) -> None:
        self.text, self.asked = text, list[str]()

    def get_secret_value(self, *, SecretId: str) -> dict[str, str]:
        self.asked.append(SecretId)
        return {"SecretString": self.text}


SECRET = "arn:aws:secretsmanager:us-east-1:111122223333:secret:shop-AbCdEf"


@pytest.mark.parametrize(
    ("kind", "held", "found"),
    [
        (
            "plain",
            {"username": "u", "password": "p", "other": "x"},
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "p"},
        ),
        (
            "scram-sha-512",
            {"username": "u", "password": "p", "certificateAuthority": "ca"},
            {
                "security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "u",
                "sasl.password": "p", "ssl.ca.pem": "ca",
            },
        ),
        (
            "mutual-tls",
            {"certificate": "c", "privateKey": "k"},
            {"security.protocol": "SSL", "ssl.certificate.pem": "c", "ssl.key.pem": "k"},
        ),
    ],
)  # fmt: skip
def test_a_secret_is_read_where_it_is_used(kind: str, held: dict[str, str], found: dict[str, str]) -> None:
    secrets = Held(json.dumps(held))
    got = of({"kind": kind, "secret": SECRET}, {"secretsmanager": secrets})
    assert got == {"bootstrap.servers": "b-1.theirs:9098", **found}
    assert secrets.asked == [SECRET]


def test_a_secret_that_is_no_object_is_not_shown() -> None:
    with pytest.raises(AwsError, match="must be a JSON object") as told:
        of({"kind": "plain", "secret": SECRET}, {"secretsmanager": Held("hunter2")})
    assert "hunter2" not in str(told.value)
