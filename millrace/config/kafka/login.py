"""Authentication of jobs at a Kafka cluster: ``authentication: iam``, or a mapping if it needs a secret."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from millrace.config.base import KeyArn, Model, SecretArn, kind_as_mapping

_KEY = Field(
    default=None,
    description="Customer managed key of the secret, which jobs are allowed to use; left out, the AWS managed key.",
)


class IamLogin(Model):
    """The job's own role, on MSK."""

    kind: Literal["iam"] = "iam"


class NoLogin(Model):
    """Neither authentication nor TLS."""

    kind: Literal["none"]


class TlsLogin(Model):
    """TLS that authenticates the brokers only; jobs are not authenticated."""

    kind: Literal["tls"] = "tls"
    secret: SecretArn | None = Field(
        default=None,
        description="Secret with certificateAuthority (PEM), as JSON; left out, jobs trust the authorities that "
        "Java trusts.",
    )
    secret_key: KeyArn | None = _KEY


class PasswordLogin(Model):
    """User and password over TLS: SASL/SCRAM, as on MSK, or SASL/PLAIN, as on Confluent Cloud."""

    kind: Literal["scram-sha-512", "plain"] = Field(description="The SASL mechanism: SCRAM-SHA-512 or PLAIN.")
    secret: SecretArn = Field(
        description="Secret with username and password, as JSON, and certificateAuthority (PEM) if Java does not "
        "trust the brokers' authority. The job's role may read it. MSK requires a name that begins "
        "with AmazonMSK_.",
    )
    secret_key: KeyArn | None = _KEY


class CertificateLogin(Model):
    """A client certificate of the job, over TLS."""

    kind: Literal["mutual-tls"]
    secret: SecretArn = Field(
        description="Secret with certificate and privateKey (PKCS #8), PEM, as JSON, and certificateAuthority if "
        "Java does not trust the brokers' authority. The job's role may read it.",
    )
    secret_key: KeyArn | None = _KEY


_Kinds = Annotated[
    IamLogin | NoLogin | TlsLogin | PasswordLogin | CertificateLogin, Field(discriminator="kind")
]


Login = Annotated[
    IamLogin | NoLogin | TlsLogin | PasswordLogin | CertificateLogin,
    Field(discriminator="kind"),
    BeforeValidator(kind_as_mapping, json_schema_input_type=Literal["iam", "tls", "none"] | _Kinds),
]
"""Authentication; a name alone is read as a mapping with that kind."""


def secret_and_key_arns_of_login(login: Login) -> tuple[str, str | None] | None:
    """Return the ARNs of a login's secret and of the secret's customer key, if it has one."""
    if isinstance(login, IamLogin | NoLogin) or login.secret is None:
        return None
    return login.secret, login.secret_key
