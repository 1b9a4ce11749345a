"""How the command line signs in to clusters that somebody else runs."""

from __future__ import annotations

from typing import Any

import pytest

from millrace.config import Names
from millrace.config.model import ExternalCluster
from millrace.lifecycle import kafka_client
from millrace.lifecycle.kafka_client import settings
from tests.unit.verify.conftest import ACCOUNT, environment


def of(authentication: Any) -> dict[str, Any]:
    cluster = ExternalCluster(
        kind="external", bootstrap_servers="b-1.theirs:9098", authentication=authentication
    )
    model = environment("minimal").model_copy(update={"kafka": {"theirs": cluster}})
    return dict(settings(Names(model, ACCOUNT), "theirs", lambda service: pytest.fail(service)))


def test_iam_signs_in_with_a_token_of_the_environment_s_region(monkeypatch: pytest.MonkeyPatch) -> None:
    def token(region: str) -> tuple[str, int]:
        return f"signed for {region}", 1_800_000_000_000

    monkeypatch.setattr(kafka_client.MSKAuthTokenProvider, "generate_auth_token", token)
    found = of("iam")
    assert found.pop("oauth_cb")("") == ("signed for us-east-1", 1_800_000_000.0)
    assert found == {
        "bootstrap.servers": "b-1.theirs:9098",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
    }


@pytest.mark.parametrize(("authentication", "protocol"), [("tls", "SSL"), ("none", "PLAINTEXT")])
def test_others_need_no_token(authentication: str, protocol: str) -> None:
    assert of(authentication) == {"bootstrap.servers": "b-1.theirs:9098", "security.protocol": protocol}
