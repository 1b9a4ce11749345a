"""Secrets of AWS Secrets Manager, read where they are used: no argument, document or template holds them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from ..record.errors import SinkError
from . import aws_clients
from .backoff import START_SECONDS, Backoff

_DENIED = ("AccessDeniedException", "AccessDenied", "DecryptionFailure")


def read_secret(arn: str, endpoint: str | None, needed: Sequence[str]) -> Mapping[str, str]:
    """Return the texts of a secret that is a JSON object.

    A busy or unreachable service is called again within limits.

    Parameters
    ----------
    arn
        ARN of the secret, which includes its region.
    endpoint
        URL of a local server; None for the region's endpoint.
    needed
        Keys that must exist, with a text that is not empty.

    Raises
    ------
    SinkError
        The secret does not exist, cannot be read, or has other content; the message does not show the content.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    region = arn.split(":")[3]
    try:
        client = aws_clients.make_client("secretsmanager", region, endpoint)
        waits = Backoff("at the start", patience=START_SECONDS)
        answer = aws_clients.call_until_answered(lambda: client.get_secret_value(SecretId=arn), waits)
        secret = json.loads(answer["SecretString"])
        values = {str(key): value for key, value in secret.items() if isinstance(value, str) and value}
    except (BotoCoreError, ClientError) as error:
        raise SinkError(f"secret {arn}: {_describe_error(error, region)}") from error
    except (ValueError, KeyError, AttributeError):
        # Without its cause, whose text might contain the secret.
        raise SinkError(
            f"secret {arn}: its value must be a JSON object with {' and '.join(needed)}"
        ) from None
    missing = [key for key in needed if key not in values]
    if missing:
        raise SinkError(
            f"secret {arn}: its value lacks {' and '.join(missing)}; it must be a JSON object with {' and '.join(needed)}"
        )
    return values


def _describe_error(error: Exception, region: str) -> str:
    code = aws_clients.error_code(error) if hasattr(error, "response") else ""
    if code == "ResourceNotFoundException":
        return (
            f"there is none in {region}, or it has no value yet: `aws secretsmanager create-secret` makes it"
        )
    if code in _DENIED:
        return (
            f"the role may not read it ({error}): it needs secretsmanager:GetSecretValue, and for a secret with a "
            "customer key kms:Decrypt, which `secret_key` beside it in the environment file grants"
        )
    return str(error)
