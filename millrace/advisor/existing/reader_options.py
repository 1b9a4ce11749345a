"""Options of a program's reader: the keys of a land query that they become, and notes on those that have none."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from millrace.advisor.existing.stream_candidates_of_program import (
    NAMES,
    StreamCandidate,
    describe_values_with_lines,
)
from millrace.advisor.programs.possible_values import Values
from millrace.advisor.programs.program_stream_model import CATALOG, FORMAT, GLUE
from millrace.config.kafka.reading_options import KafkaReading

INSTEAD = "it is taken from the event log, or the plan computes it"

SHARD_LIMITS = (
    "maxFetchRecordsPerShard",
    "kinesis.maxFetchRecordsPerShard",
    "kinesis.executor.maxFetchRecordsPerShard",
)
"""Limits of a batch in the Kinesis readers of Glue, of EMR and of Qubole: for each shard."""

_KEYS = {
    "minPartitions": "min_partitions",
    "minOffsetsPerTrigger": "min_records_per_batch",
    "maxTriggerDelay": "max_delay",
    "includeHeaders": "headers",
    "groupIdPrefix": "group_id_prefix",
}
_OF_ALL_TOPICS = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "minPartitions")
_NUMBERS = (*_OF_ALL_TOPICS, *SHARD_LIMITS)

_SPARKS_DELAY = "15m"
"""Spark's default of ``maxTriggerDelay``."""

_WITHOUT_EFFECT = re.compile(
    "|".join(
        (
            *(re.escape(each.lower()) for names in NAMES.values() for each in names),
            *(each.lower().replace(".", r"\.") for each in (*_KEYS, *_NUMBERS)),
            *(
                FORMAT,
                CATALOG,
                GLUE,
                "database",
                "table_name",
                "typeofdata",
                "connectionname",
                "secret",
                "classification",
                "delimiter",
            ),
            r"(kafka\.)?bootstrap\.servers|(kafka\.)?(security|sasl|ssl(?!\.endpoint))\..*",
            r"(kinesis\.)?(starting|ending|initial)\w*",  # the cut-over tells where the new job starts
            r"(kinesis\.)?(aws)?region|(kinesis\.)?endpointurl|kinesis\.consumer(type|name)|fanoutconsumerarn",
            r"(aws|kinesis\.)sts\w*|(kinesis\.)?failondataloss|inferschema|schema",
            r"(kinesis\.)?(client\.?)?(avoidemptybatches|describeshardinterval|numretries)",
        )
    )
)
"""Options that become a key, that the import reads elsewhere, or that every job of Millrace sets itself."""

_ALWAYS_SO = {
    "kafka.isolation.level": "read_committed",
    "kafka.ssl.endpoint.identification.algorithm": "https",
    "ssl.endpoint.identification.algorithm": "https",
}
_ROLE = re.compile(r"awsRoleArn\s*=\s*[\"']?(arn:[\w:/+=,.@-]+)")


def reading_keys_and_notes(
    candidates: Sequence[StreamCandidate], options: dict[str, str], unclear: Mapping[str, Values]
) -> tuple[dict[str, Any], list[str]]:
    """Return the keys of a query's ``kafka`` for a reader, and notes on what the file does not keep of its options.

    Parameters
    ----------
    candidates
        The sources of one stream.
    options
        Options that have one value; limits that are none of this stream are removed.
    unclear
        Options that have several values, or one that is not known.
    """
    line = f"line {candidates[0].source.line}" if candidates else "its line"
    notes = [
        f"its {name} is {describe_values_with_lines(unclear[name.lower()])}: {INSTEAD if name in _NUMBERS else 'it is left out'}"
        for name in (*_NUMBERS, *_KEYS)
        if name.lower() in unclear
    ]
    for name in _NUMBERS:
        number = options.get(name.lower(), "0")
        if not number.isdecimal():
            notes.append(f"its {name} {options.pop(name.lower())} is no number: {INSTEAD}")
        elif int(number) and name in _OF_ALL_TOPICS and any(each.reads_several_topics for each in candidates):
            notes.append(
                f"{line}: its {name} {options.pop(name.lower())} is of all its topics together: {INSTEAD}"
            )
    keys: dict[str, Any] = {}
    for name, key in _KEYS.items():
        if name.lower() not in options:
            continue
        value = _value_of_key(key, options[name.lower()])
        try:
            KafkaReading.model_validate({key: value})
        except ValidationError:
            notes.append(f"{line}: its {name} {value} is no value of kafka.{key} and is left out")
        else:
            keys[key] = value
    if "min_records_per_batch" in keys and "maxtriggerdelay" not in {*options, *unclear}:
        keys["max_delay"] = _SPARKS_DELAY
    if not {"min_records_per_batch", "max_delay"} <= keys.keys():  # one has no meaning without the other
        keys = {
            key: value for key, value in keys.items() if key not in ("min_records_per_batch", "max_delay")
        }
    return keys, [*dict.fromkeys(notes), *_notes_on_other_options(candidates)]


def _value_of_key(key: str, text: str) -> int | bool | str:
    if key == "max_delay":
        return f"{text}ms" if text.isdecimal() else re.sub("min$", "m", text.strip())
    if key == "headers":
        return {"true": True, "false": False}.get(text.lower(), text)
    return int(text) if text.isdecimal() and key != "group_id_prefix" else text


def _notes_on_other_options(candidates: Sequence[StreamCandidate]) -> Iterator[str]:
    """Yield notes on options that have no key; an option with its default has an effect neither here nor there."""
    for each in candidates:
        line, given = f"line {each.source.line}", each.source.options
        texts = {key: {str(one.value).lower() for one in values} for key, values in given.items()}
        for key in ("failondataloss", "kinesis.failondataloss"):
            if texts.get(key, {"true"}) != {"true"}:
                yield (
                    f"{line}: its failOnDataLoss is {describe_values_with_lines(given[key])}, and lost records always stop a job here"
                )
        for key in ("kafka.sasl.jaas.config", "sasl.jaas.config"):
            for role in _ROLE.findall(" ".join(str(one.value) for one in given.get(key, ()))):
                yield f"{line}: it signs in as {role}, and jobs here as their own role: that needs access to the cluster"
        if any(re.fullmatch(r"(kafka\.)?ssl\.truststore\.(location|certificates)", key) for key in texts):
            yield (
                f"{line}: its truststore may hold an authority that Java does not know: write that into the secret of `authentication` "
                "as certificateAuthority"
            )
        others = [
            key
            for key, values in texts.items()
            if not _WITHOUT_EFFECT.fullmatch(key) and values != {_ALWAYS_SO.get(key)}
        ]
        if each.source.more:
            others.append(f"what {each.source.more} gives")
        if others:
            yield f"{line}: this file has no key for {', '.join(others)}"
