"""Login of Kafka's clients to a cluster, as options of Spark's Kafka source and sink.

The content of a secret is never an option: Spark writes the options of its Kafka sink unredacted into plans, event logs and
web pages. The options name a file on the driver and each executor (``docs/design/logins.md#secrets-of-kafka``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pyspark import SparkContext

from ...launch.kafka_connections import Connection, SecretLogin
from ...record import ship_file_to_jvms
from ...record.errors import SinkError, StartError, java_causes
from ...services import secret

WITHOUT: Mapping[str, Mapping[str, str]] = {
    "none": {},
    "tls": {"kafka.security.protocol": "SSL"},
    "iam": {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "AWS_MSK_IAM",
        "kafka.sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
        "kafka.sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
    },
}
"""Options of the kinds of authentication without a secret."""

NEEDED = {
    "scram-sha-512": ("username", "password"),
    "plain": ("username", "password"),
    "mutual-tls": ("certificate", "privateKey"),
    "tls": ("certificateAuthority",),
}
"""Keys of a secret. Those of a certificate have the names in AWS Lambda's event sources for Kafka (Lambda developer
guide, "Configuring cluster authentication and network access", ``CLIENT_CERTIFICATE_TLS_AUTH``)."""


def login_options(connection: Connection, endpoint: str | None = None) -> dict[str, str]:
    """Return the login options of Spark's Kafka source and sink; each call reads the secret again.

    Parameters
    ----------
    endpoint
        URL of a local Secrets Manager; None for the region's endpoint.

    Raises
    ------
    StartError
        The secret cannot be read, or lacks a key that the kind needs.
    """
    login = connection.authentication
    if not isinstance(login, SecretLogin):
        return dict(WITHOUT[login])
    try:
        values = dict(secret.read_secret(login.secret, endpoint, NEEDED[login.kind]))
    except SinkError as error:
        raise StartError(str(error)) from error
    if login.kind == "mutual-tls" and "-----BEGIN PRIVATE KEY-----" not in values["privateKey"]:
        # A key with a password needs an algorithm that not every Java has under the name that Kafka uses.
        raise StartError(
            f"secret {login.secret}: privateKey must be an unencrypted PKCS #8 key in PEM (-----BEGIN PRIVATE "
            "KEY-----); convert it with `openssl pkcs8 -topk8 -nocrypt` and store the result: Secrets Manager encrypts it"
        )
    chosen = options_with_secret(login.kind, values)
    private = {name: value for name, value in chosen.items() if name in _PRIVATE}
    return chosen | _options_referring_to_shipped_file(private)


_PRIVATE = frozenset(
    {
        "kafka.sasl.jaas.config",
        "kafka.ssl.keystore.certificate.chain",
        "kafka.ssl.keystore.key",
        "kafka.ssl.truststore.certificates",
    }
)
"""Options with content of the secret."""


def options_with_secret(kind: str, secret: dict[str, str]) -> dict[str, str]:
    """Return options of Spark's Kafka source that contain a secret's content; a notebook gets this function's source.

    Parameters
    ----------
    kind
        Kind of authentication.
    """

    def quoted_jaas_value(text: str) -> str:
        # In the form that Java's StreamTokenizer reads.
        for one, written in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r")):
            text = text.replace(one, written)
        return f'"{text}"'

    settings = {"kafka.security.protocol": "SSL"}
    if kind in ("scram-sha-512", "plain"):
        module = "scram.Scram" if kind == "scram-sha-512" else "plain.Plain"
        user, password = quoted_jaas_value(secret["username"]), quoted_jaas_value(secret["password"])
        settings = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": kind.upper()}
        settings["kafka.sasl.jaas.config"] = (
            f"org.apache.kafka.common.security.{module}LoginModule required username={user} password={password};"
        )
    if kind == "mutual-tls":
        settings["kafka.ssl.keystore.type"] = "PEM"
        settings["kafka.ssl.keystore.certificate.chain"] = secret["certificate"]
        settings["kafka.ssl.keystore.key"] = secret["privateKey"]
    if "certificateAuthority" in secret:
        settings["kafka.ssl.truststore.type"] = "PEM"
        settings["kafka.ssl.truststore.certificates"] = secret["certificateAuthority"]
    return settings


def _options_referring_to_shipped_file(private: Mapping[str, str]) -> dict[str, str]:
    """Return options that refer to a file with their values, which Kafka's own client reads wherever it runs."""
    lines = (f"{name}={_escape_property_value(value)}\n" for name, value in private.items())
    file = ship_file_to_jvms.ship_file_to_jvms(SparkContext.getOrCreate(), "kafka", "".join(lines).encode())
    return {
        "kafka.config.providers": "file",
        "kafka.config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
        **{name: f"${{file:{file}:{name}}}" for name in private},
    }


def _escape_property_value(value: str) -> str:
    r"""Escape a value for a properties file (``java.util.Properties.load``).

    Examples
    --------
    >>> print(_escape_property_value("two\nlines"))
    two\nlines
    """
    text = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\f", "\\f")
    return re.sub(r"^[ \t]", r"\\\g<0>", text)


def login_advice(error: BaseException | None, connection: Connection) -> str | None:
    """Return the advice for brokers that refuse, or that the client does not trust.

    Parameters
    ----------
    error
        Error of Kafka's client.

    Returns
    -------
    str or None
        None for any other error, such as brokers that do not answer.
    """
    # Causes below Kafka's message on a key are the JVM's, which may show a part of the key.
    raised = [] if error is None else [*java_causes(error)]
    errors = {str(each.getClass().getSimpleName()): str(each.getMessage()) for each in raised}
    last = str(raised[-1].getMessage()) if raised else ""
    login = connection.authentication
    named, kind = ("", login) if isinstance(login, str) else (f" of secret {login.secret}", login.kind)
    if "SaslAuthenticationException" in errors:
        return (
            f"the brokers refuse the user or the password{named} ({errors['SaslAuthenticationException']}); correct "
            "them in the secret, and start the job again"
        )
    if "UnsupportedSaslMechanismException" in errors:
        return (
            f"{errors['UnsupportedSaslMechanismException']}; set `authentication` of the cluster in the environment "
            "file to one of those"
        )
    if "SslAuthenticationException" in errors and "fatal alert" in last:
        if kind != "mutual-tls":
            return (
                f"the brokers ask for a certificate ({last}); give them one with "
                "`authentication: {kind: mutual-tls, secret: ARN}`"
            )
        return (
            f"the brokers refuse the certificate{named} ({last}): it is expired, its authority is unknown to them, or "
            "privateKey belongs to another certificate. Write one that they accept into the secret, and start the "
            "job again"
        )
    if "SslAuthenticationException" in errors:
        what = "certificateAuthority of the secret" if named else "a secret's certificateAuthority"
        return (
            f"the brokers' certificate is not trusted here ({last}): it is expired, is for another name than that in "
            f"bootstrap_servers, or its authority is known neither to Java nor by {what}"
        )
    if "InvalidConfigurationException" in errors:
        return (
            f"what Kafka's client reads{named} is not a certificate or key in PEM "
            f"({errors['InvalidConfigurationException']})"
        )
    return None
