"""A deployed environment: its names, and clients for its account."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from millrace.config.aws.resource_names import Names
from millrace.lifecycle.aws_error_messages import CredentialsError, translating_aws_errors


@dataclass(frozen=True)
class DeployedEnvironment:
    """A deployment of an environment on AWS.

    Attributes
    ----------
    client
        Makes a boto3 client of a service for the environment's region.
    """

    names: Names
    client: Callable[[str], Any]


def connect_to_account(names: Names) -> DeployedEnvironment:
    """Return clients for an environment, after a check of the credentials' account.

    Raises
    ------
    CredentialsError
        There are none, they have expired, or they belong to another account.
    """
    environment = names.environment

    @cache  # a client takes longer to make than most requests
    def make_client(service: str) -> Any:
        import boto3

        make: Any = boto3.client  # the type checker does not know the service
        return make(service, region_name=environment.region)

    with translating_aws_errors("cannot tell to whom these AWS credentials belong"):
        account = make_client("sts").get_caller_identity()["Account"]
    if environment.account is not None and account != environment.account:
        raise CredentialsError(
            f"environment {environment.name} belongs to account {environment.account}, but these credentials belong "
            f"to account {account}; sign in to the first one (AWS_PROFILE)"
        )
    return DeployedEnvironment(Names(environment, account), make_client)
