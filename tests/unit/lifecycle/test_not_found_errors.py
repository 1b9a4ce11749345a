"""AWS errors that mean "not found" are recognised."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError

from millrace.lifecycle.account.deployed_environment import MISSING_OBJECT, ignoring_not_found_errors


def error(code: str, message: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": message}}, "HeadObject")


@pytest.mark.parametrize(
    ("code", "message"), [("404", "Not Found"), ("ValidationError", "Stack with id a-b does not exist")]
)
def test_a_code_or_a_part_of_the_message_says_so(code: str, message: str) -> None:
    with ignoring_not_found_errors(*MISSING_OBJECT, "does not exist"):
        raise error(code, message)


def test_a_code_within_the_message_of_another_error_does_not() -> None:
    account = "User: arn:aws:iam::140412345678:user/ops is not authorized to perform: s3:GetObject"
    with pytest.raises(ClientError, match="not authorized"), ignoring_not_found_errors(*MISSING_OBJECT):
        raise error("AccessDenied", account)
