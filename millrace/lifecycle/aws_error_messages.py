"""Errors of AWS as one message each, with what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,  # noqa: A004 - botocore's, which is none of Python's
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
    ProfileNotFound,
    ReadTimeoutError,
    SSLError,
    SSOError,
    TokenRetrievalError,
)

CDK_QUALIFIER = "hnb659fds"
"""Qualifier of every account that was bootstrapped without another."""

_SIGN_IN = "sign in again (`aws sso login`, or set AWS_PROFILE or AWS_ACCESS_KEY_ID) and repeat the command"

_EXPIRED = ("ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired")
_UNKNOWN = (
    "InvalidClientTokenId",
    "InvalidAccessKeyId",
    "UnrecognizedClientException",
    "SignatureDoesNotMatch",
    "InvalidSignatureException",
    "AuthFailure",
    "MissingAuthenticationToken",
)
_DENIED = ("AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "UnauthorizedException")
_QUOTA = (
    "LimitExceededException",
    "ResourceNumberLimitExceededException",
    "ServiceQuotaExceededException",
    "ExecutionLimitExceeded",
    "TooManyRequestsQuota",
)
_THROTTLED = (
    "Throttling",
    "ThrottlingException",
    "ThrottledException",
    "TooManyRequestsException",
    "RequestLimitExceeded",
    "ProvisionedThroughputExceededException",
    "SlowDown",
)
_QUESTIONS = ("Describe", "List")
"""Prefixes of operations that create nothing and use up no quota: Kinesis answers too frequent requests with
``LimitExceededException`` (its API reference, "ListShards").
"""

_FAILED_INSIDE = 500
"""Lowest HTTP status of the service's own failures."""

_MISSING_MACHINE = ("StateMachineDoesNotExist", "ExecutionDoesNotExist")


_CDK_LINES = 12

_CDK_ADVICE = (
    (
        r"Has the environment been bootstrapped|[Pp]lease run 'cdk bootstrap",
        "run `cdk bootstrap` for this account once",
    ),
    (r"security token .* is expired|ExpiredToken|token has expired", _SIGN_IN),
    (r"no credentials have been configured|InvalidClientTokenId|UnrecognizedClient", _SIGN_IN),
    (
        r"(?i)throttling|rate exceeded|TooManyRequests",
        "AWS is throttling: wait a minute and repeat the command",
    ),
    (
        r"LimitExceeded|QuotaExceeded|(?i:quota)|maximum number of",
        "a quota is used up: raise it in the Service Quotas console, or ask for less",
    ),
    (
        r"AccessDenied|not authorized to perform|UnauthorizedOperation",
        "ask for that permission, or sign in with another role",
    ),
    (
        r"UPDATE_ROLLBACK_FAILED|ROLLBACK_FAILED",
        "CloudFormation could not roll back: run `cdk rollback` on that stack, then repeat the command",
    ),
    (
        r"ROLLBACK_COMPLETE",
        "CloudFormation rolled back: fix the cause and repeat the command",
    ),
)
"""Advice for messages of CDK, the more special first; CDK has no error codes."""


class AwsError(RuntimeError):
    """A request that AWS refused, or a service that could not be reached; the message says what to do."""


class CredentialsError(AwsError):
    """Credentials that are missing, incomplete, expired or of another account: the caller signs in again."""


class TransientError(AwsError):
    """An error that may not occur again: AWS is busy, fails internally, or could not be reached."""


class ThrottledError(TransientError):
    """A throttled request, which AWS will answer later."""


def to_aws_error(error: BotoCoreError | ClientError, failure: str) -> AwsError:
    """Turn an error of boto3 into one message.

    Parameters
    ----------
    error
        The error of boto3.
    failure
        What failed, such as ``cannot read stack flights-dev-storage``.

    Returns
    -------
    AwsError
        To be raised instead.
    """
    if isinstance(error, ClientError):
        kind, text = _error_class_and_message(error)
    else:
        kind, form = next((kind, form) for errors, kind, form in _OF_CALLER if isinstance(error, errors))
        text = form.format(error=error)
    return kind(f"{failure}: {text}")


_OF_CALLER: tuple[tuple[tuple[type[BotoCoreError], ...], type[AwsError], str], ...] = (
    (
        (NoCredentialsError, PartialCredentialsError),
        CredentialsError,
        f"there are no complete AWS credentials; {_SIGN_IN}",
    ),
    ((SSOError, TokenRetrievalError), CredentialsError, f"the sign-in has expired; {_SIGN_IN}"),
    (
        (ProfileNotFound,),
        CredentialsError,
        "{error}; set AWS_PROFILE to one of `aws configure list-profiles`",
    ),
    ((NoRegionError,), AwsError, "no region is set; write `region:` into the environment file"),
    (
        (EndpointConnectionError, ConnectTimeoutError, ReadTimeoutError),
        TransientError,
        "{error}; check the network, proxies and AWS_ENDPOINT_URL",
    ),
    ((SSLError,), AwsError, "{error}"),
    ((ConnectionError, HTTPClientError), TransientError, "{error}"),
    ((BotoCoreError,), AwsError, "{error}"),
)
"""Errors of boto3 without an answer of a service, the more special first: their kind and their message."""


def _error_class_and_message(error: ClientError) -> tuple[type[AwsError], str]:
    """Return kind and message of a service's refusal."""
    code = error.response["Error"].get("Code", "")
    message = error.response["Error"].get("Message", "")
    action = error.operation_name
    busy = error.operation_name.startswith(_QUESTIONS) or "rate exceeded" in message.lower()
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    kind = TransientError if status >= _FAILED_INSIDE else AwsError
    if code in _EXPIRED or re.search("token.* expired", message, re.IGNORECASE):
        return CredentialsError, f"the credentials have expired; {_SIGN_IN}"
    if code in _UNKNOWN:
        return CredentialsError, f"AWS does not know these credentials ({code}); {_SIGN_IN}"
    if code in _DENIED:
        return (
            kind,
            f"access denied to {action}: {message}; ask for that permission, or sign in with another role",
        )
    if code in _THROTTLED or (code in _QUOTA and busy):
        return ThrottledError, f"AWS is throttling {action}; wait a minute and repeat the command"
    if code in _QUOTA:
        return (
            kind,
            f"a quota is used up ({message}); raise it in the Service Quotas console, or ask for less",
        )
    if code in _MISSING_MACHINE:
        return kind, f"{message}; deploy the environment first: `millrace deploy --env ENV`"
    return kind, f"{action} was refused: {code}: {message}"


def cdk_failure_message(verb: str, status: int, printed: str) -> str:
    """Return one message from the output of a failed CDK command.

    Parameters
    ----------
    verb
        The command, such as ``deploy``.
    status
        Its exit status.
    printed
        Its standard error.

    Returns
    -------
    str
        The lines with the error, without CDK's stack trace, and what to do.
    """
    lines = [line.rstrip() for line in printed.splitlines() if line.strip()]
    # CDK prints the same error where it happens and again at the end.
    telling = list(dict.fromkeys(line for line in lines if not re.match(r"\s+at |\s*\.\.\. \d+ more", line)))
    advice = next((then for pattern, then in _CDK_ADVICE if re.search(pattern, printed)), None)
    head = f"cdk {verb} ended with status {status}"
    return "\n".join([head, *telling[-_CDK_LINES:], *([] if advice is None else [f"what to do: {advice}"])])


@contextmanager
def translating_aws_errors(failure: str) -> Iterator[None]:
    """Raise boto3's errors as an :class:`AwsError`; a NotDeployedError passes."""
    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise to_aws_error(error, failure) from error
