"""Messages for secrets that cannot be read, and retries of a busy service."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from millrace.etl.record.errors import SinkError
from millrace.etl.services import aws_clients, secret

ARN = "arn:aws:secretsmanager:eu-west-1:111122223333:secret:shop-AbCdEf"


class Service:
    """Answers in turn; an exception is raised."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    def get_secret_value(self, **_: str) -> Any:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def refused(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "no"}}, "GetSecretValue")


def read(monkeypatch: pytest.MonkeyPatch, *answers: Any) -> Any:
    asked: list[Any] = []

    def client(*place: Any) -> Service:
        asked.append(place)
        return Service(*answers)

    monkeypatch.setattr(aws_clients, "make_client", client)
    try:
        return secret.read_secret(ARN, None, ("username", "password"))
    finally:
        assert asked == [("secretsmanager", "eu-west-1", None)]


HELD = {"SecretString": '{"username": "u", "password": "p", "port": 9096, "certificateAuthority": ""}'}


def test_texts_alone_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(monkeypatch, HELD) == {"username": "u", "password": "p"}


@pytest.mark.faults
def test_a_service_that_is_busy_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    away = EndpointConnectionError(endpoint_url="https://x")
    assert read(monkeypatch, refused("ThrottlingException"), away, HELD)["username"] == "u"


@pytest.mark.faults
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (refused("AccessDeniedException"), "it needs secretsmanager:GetSecretValue, and for a secret with a customer key"),
        (refused("DecryptionFailure"), "kms:Decrypt, which `secret_key` beside it in the environment file grants"),
        (refused("ResourceNotFoundException"), "there is none in eu-west-1"),
        (refused("InvalidRequestException"), "InvalidRequestException"),
        ({"SecretBinary": b"hunter2"}, "its value must be a JSON object with username and password"),
        ({"SecretString": "hunter2"}, "its value must be a JSON object with username and password"),
        ({"SecretString": '{"username": "hunter2", "password": 7}'}, "lacks password"),
    ],
)  # fmt: skip
def test_one_that_cannot_be_read_says_what_to_do(
    answer: Any, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SinkError) as told:
        read(monkeypatch, answer)
    assert str(told.value).startswith(f"secret {ARN}: ")
    assert said in str(told.value)
    assert "hunter2" not in str(told.value)
