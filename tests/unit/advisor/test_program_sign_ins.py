"""Kafka authentication of a program, read from its source."""

from __future__ import annotations

import pytest

from millrace.advisor.existing.kafka_sign_in import broker_authentication
from millrace.advisor.existing.stream_candidates_of_program import StreamAnswers
from tests.unit.advisor.settings_of_program import LOGIN_ARN, settings_of_program
from tests.unit.advisor.test_program_reader import BATCH, FOUND, KAFKA, RUN, WRITE


@pytest.mark.parametrize(
    ("options", "kind", "secret"),
    [
        ({}, "none", None),
        ({"kafka.security.protocol": "SSL"}, "tls", None),
        ({"kafka.security.protocol": "SSL", "kafka.ssl.keystore.location": "k.jks"}, "mutual-tls", ""),
        ({"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "AWS_MSK_IAM"}, "iam", None),
        ({"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "SCRAM-SHA-512"}, "scram-sha-512", ""),
        ({"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN"}, "plain", ""),
        ({"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN"}, None, None),
        ({"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "OAUTHBEARER"}, None, None),
        ({"kafka.security.protocol": "sasl_ssl", "kafka.sasl.mechanism": "SCRAM-SHA-512"}, "scram-sha-512", ""),
        ({"kafka.security.protocol": "ssl"}, "tls", None),
        ({"kafka.security.protocol": "plaintext"}, "none", None),
        ({"kafka.security.protocol": "sasl_plaintext", "kafka.sasl.mechanism": "PLAIN"}, None, None),
        ({"kafka.security.protocol": "TLS"}, None, None),
    ],
)  # fmt: skip
def test_a_sign_in_is_never_written_as_a_weaker_one(
    options: dict[str, str], kind: str | None, secret: str | None
) -> None:
    text = f"{KAFKA}.option('subscribe', 'orders').options(**{options!r}){WRITE}"
    login = broker_authentication(settings_of_program(text, RUN))
    assert (login.kind, login.secret) == (kind, secret)
    assert (kind is None) == ("none of iam" in login.open)


ROLE = "arn:aws:iam::999988887777:role/reader"


@pytest.mark.parametrize(
    ("name", "value", "note"),
    [
        ("sasl.jaas.config", f"software.amazon.msk.auth.iam.IAMLoginModule required awsRoleArn='{ROLE}';", f"it signs in as {ROLE}, and"),
        ("sasl.jaas.config", "software.amazon.msk.auth.iam.IAMLoginModule required;", ""),
        ("ssl.truststore.location", "corp-ca.jks", "its truststore may hold an authority"),
        ("ssl.truststore.certificates", "-----BEGIN", "its truststore may hold an authority"),
        ("ssl.endpoint.identification.algorithm", "", "this file has no key for kafka.ssl.endpoint.identification.algorithm"),
        ("ssl.endpoint.identification.algorithm", "https", ""),
    ],
)  # fmt: skip
def test_a_part_of_a_sign_in_that_the_file_does_not_keep_is_noted(name: str, value: str, note: str) -> None:
    text = f"{KAFKA}.option('subscribe', 'orders').option('kafka.{name}', {value!r}){WRITE}"
    notes = [each for each in settings_of_program(text, RUN).notes if "table" not in each]
    assert [each.partition(": ")[2][: len(note)] for each in notes] == [note] * bool(note)


def test_a_sign_in_that_depends_on_a_branch_is_a_question() -> None:
    text = f"r = {KAFKA}.option('subscribe', 'orders')\nif secured():\n  r = r.option('kafka.security.protocol', 'SSL')\nr{WRITE}"
    said = settings_of_program(text, RUN)
    assert broker_authentication(said).open == "kafka.security.protocol is SSL (line 3)"
    assert (said.name, said.trigger) == ("orders", 10.0)


def test_a_sign_in_of_another_module_is_a_question() -> None:
    text = f"from shop import PROTOCOL_SSL\n{KAFKA}.option('subscribe', 'orders').option('kafka.security.protocol', PROTOCOL_SSL){WRITE}"
    assert (
        broker_authentication(settings_of_program(text, RUN)).open
        == "kafka.security.protocol is shop.PROTOCOL_SSL (line 1)"
    )


FROM_A_FILE = "import yaml\nspark.readStream.format('kafka').options(**yaml.safe_load(open('c'))).load().writeStream.start()"


@pytest.mark.parametrize("text", [FROM_A_FILE, "object Scala { }"])
@pytest.mark.parametrize(
    ("brokers", "kind"),
    [
        (None, None),
        ("b-1.theirs.example:9092", "none"),
        ("b-1.theirs.example:9094,b-2.theirs.example:9094", "tls"),
        ("b-1.theirs.example:9096", "scram-sha-512"),
        ("b-1.theirs.example:9098", "iam"),
        ("b-1-public.theirs.example:9198", "iam"),
        ("b-1.theirs.example:9093", None),
        ("b-1.theirs.example:90980", None),
        ("b-1.theirs.example:9092,b-2.theirs.example:9098", None),
    ],
)
def test_the_port_of_the_brokers_tells_what_the_program_does_not(
    text: str, brokers: str | None, kind: str | None
) -> None:
    said = settings_of_program(text, RUN, StreamAnswers(topic="orders", brokers=brokers))
    login = broker_authentication(said)
    assert login.kind == kind
    assert (kind is None) == bool(login.open)
    assert ("--brokers HOST:PORT" in login.open) == (brokers is None)
    assert any("is taken from the brokers' port" in each for each in said.notes) == (kind is not None)


def test_a_connection_gives_brokers_and_secret() -> None:
    said = settings_of_program(FOUND["a table behind a connection"], RUN)
    assert said.first_option("kafka.bootstrap.servers") == "b-1:9096"
    assert broker_authentication(said) == ("scram-sha-512", "", LOGIN_ARN)
    refused = settings_of_program(
        "frame = glue.create_data_frame.from_options('kafka', {'connectionName': 'theirs', 'topicName': 'orders'})\n" + BATCH,
        RUN,
    )  # fmt: skip
    assert (
        refused.open["brokers"]
        == "line 1: Glue connection theirs (AccessDenied); give them with --brokers HOST:PORT,..."
    )
