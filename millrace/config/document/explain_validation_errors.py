"""Pydantic's errors in the terms of the environment file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from rapidfuzz import fuzz, process

from millrace.config.aws.regions import REGION, REGIONS
from millrace.config.base import SLUG, SLUG_SAID
from millrace.config.document.problems import MISSING, Finding, Path

_PATTERNS = {
    SLUG: SLUG_SAID,
    r"^[a-z][a-z0-9_]{0,126}$": "lower-case letters, digits and underscores, a letter first",
    r"^[0-9]{12}$": "an account number of twelve digits, in quotes",
    REGION: "a region, such as us-east-1",
    r"^(\*\.)?([a-z0-9_-]{1,63}\.)+[a-z][a-z0-9-]{0,62}$": "a domain name, such as example.com or *.example.com",
    r"^vpc-[0-9a-f]{8,17}$": "a VPC id, such as vpc-0123456789abcdef0",
    r"^subnet-[0-9a-f]{8,17}$": "a subnet id, such as subnet-0123456789abcdef0",
    r"^[a-zA-Z0-9._-]{1,249}$": "a Kafka topic name: up to 249 letters, digits, dots, underscores, hyphens",
    r"^[A-Za-z_][\w]*(\.[A-Za-z_][\w]*)*:[A-Za-z_]\w*$": "a function, such as pipelines.flights.transforms:with_delay",
    r"^[a-z0-9_]{1,127}$": "a Glue database: lower-case letters, digits and underscores",
    r"^[a-z0-9_]{1,255}$": "a Glue table: lower-case letters, digits and underscores",
    r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$": "a bucket's name: 3 to 63 lower-case letters, digits, dots, hyphens",
    r"^arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+$": (
        "a key's ARN, such as arn:aws:kms:us-east-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"
    ),
    r"^arn:aws[a-z-]*:iam::[0-9]{12}:role/[A-Za-z0-9_+=,.@/-]+$": (
        "a role's ARN, such as arn:aws:iam::111122223333:role/streaming"
    ),
    r"^arn:aws[a-z-]*:iam::([0-9]{12}|aws):policy/[A-Za-z0-9_+=,.@/-]+$": (
        "a policy's ARN, such as arn:aws:iam::111122223333:policy/boundary"
    ),
    r"^arn:aws[a-z-]*:kafka:[a-z0-9-]+:[0-9]{12}:cluster/[A-Za-z0-9-]+/[A-Za-z0-9-]+$": (
        "an MSK cluster's ARN, such as arn:aws:kafka:us-east-1:111122223333:cluster/shared/abcd1234-ab12-1"
    ),
    r"^arn:aws[a-z-]*:acm:[a-z0-9-]+:[0-9]{12}:certificate/[A-Za-z0-9-]+$": (
        "a certificate's ARN, such as arn:aws:acm:us-east-1:111122223333:certificate/1234abcd"
    ),
    r"^(arn:aws[a-z-]*:kinesis:[a-z0-9-]+:[0-9]{12}:stream/)?[a-zA-Z0-9_.-]{1,128}$": (
        "a stream's name, or its ARN where it is in another account"
    ),
    r"^[a-z]{2}(-[a-z]+)+-[0-9][a-z]$": "an Availability Zone, such as us-east-1a",
    r"^/([A-Za-z0-9_+=,.@-]+/)*$": "a path that begins and ends with /, such as /streaming/",
    r"^[a-z][a-z0-9-]{0,18}[a-z0-9]$": "2 to 20 lower-case letters, digits and hyphens, a letter first",
    r"^[a-z0-9]{1,10}$": "up to 10 lower-case letters and digits",
    r"^[^@\s]+@[^@\s]+\.[^@\s]+$": "an e-mail address",
    r"^[\t -/:-@\[\]-`{-~]$": "one character of ASCII that is no letter, digit or backslash",
    r"^[!-/:-@\[\]-`{-~]$": "one character of ASCII that is no letter, digit or backslash, and no blank",
    r"^https?://[A-Za-z0-9._-]+(:[0-9]{1,5})?(/\S*)?$": "an address that begins with https:// or http://, without a user",
    r"^s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]/[^*?\s]+$": (
        "a prefix, such as s3://company-lake/reference/airports"
    ),
    r"^[0-9]{12}\.dkr\.ecr\.[a-z0-9-]+\.amazonaws\.com(\.cn)?/[a-z0-9/._-]+(:[A-Za-z0-9_.-]+|@sha256:[0-9a-f]{64})$": (
        "an image in a private ECR repository, such as "
        "111122223333.dkr.ecr.us-east-1.amazonaws.com/spark:3.5.6"
    ),
    r"^(Mon|Tue|Wed|Thu|Fri|Sat|Sun):([01]?[0-9]|2[0-3])$": "a day and an hour, such as Sun:5",
}
_KINDS = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping of keys",
    "model_type": "a mapping of keys",
    "model_attributes_type": "a mapping of keys",
    "string_type": "text",
}


def findings_of_validation_error(
    error: ValidationError, model: type[BaseModel], written: Callable[[Path], str | None]
) -> list[Finding]:
    """Translate every error of one validation.

    Parameters
    ----------
    error
        Error that ``model.model_validate_json`` raised.
    model
        The model that was validated.
    written
        Function that returns the text of the scalar at a path in the file.
    """
    return [_finding_of_error(each, model, written) for each in error.errors(include_url=False)]


def path_in_file(loc: Sequence[str | int], model: Any) -> Path:
    """Remove the parts of pydantic's location that are not in the file: tags of unions, ``[key]``."""
    return _path_model_and_field_of_location(loc, model)[0]


def did_you_mean_text(word: str, choices: Sequence[str]) -> str | None:
    """Return the choice most similar to ``word`` as a question, if one is similar enough."""
    match = process.extractOne(
        word.lower(), choices, scorer=fuzz.WRatio, processor=str.lower, score_cutoff=70
    )
    return f"did you mean {match[0]}?" if match else None


def findings_of_unknown_name(
    path: Path, name: str, known: Sequence[str], what: str, none: str = "there is none"
) -> Iterator[Finding]:
    """Yield a finding for a name that is none of the known ones, with these and the most similar.

    Parameters
    ----------
    what
        Meaning of the known names.
    none
        Words in their place if there are none.
    """
    if name not in known:
        yield Finding(path, name, f"{what}: {', '.join(known) or none}", did_you_mean_text(name, known))


def shown_value(value: Any, written: str | None = None) -> str:
    """Return a value as it is written in a file, shortened.

    Parameters
    ----------
    written
        Its text in the file, if known: a number can be written in several ways.
    """
    if isinstance(value, Mapping):
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}" if value else "an empty list"
    if value is None:
        return "empty"
    text = value if isinstance(value, str) else written or json.dumps(value, default=str)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _finding_of_error(error: Any, model: type[BaseModel], written: Callable[[Path], str | None]) -> Finding:
    path, owner, field = _path_model_and_field_of_location(error["loc"], model)
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    shown = shown_value(value, written(path))
    if kind == "extra_forbidden":
        keys = [
            key
            for key in _fields_by_file_key(owner)
            if key != "name" or "streams" not in _fields_by_file_key(owner)
        ]
        return Finding(
            path, f"unknown, {shown}", f"one of {', '.join(keys)}", did_you_mean_text(str(path[-1]), keys)
        )
    if kind == "missing":
        meaning = f": {field.description}" if field and field.description else ""
        return Finding(path, MISSING, f"required{meaning}")
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        return _union_tag_finding(path, field, value, context)
    if error["loc"] and error["loc"][-1] == "[key]":
        if kind == "literal_error":
            choices = (
                [str(choice) for choice in get_args(get_args(_without_annotated(field.annotation))[0])]
                if field
                else []
            )
            return Finding(
                path,
                f"the name {path[-1]}",
                f"one of {', '.join(choices)}",
                did_you_mean_text(str(path[-1]), choices),
            )
        shown = f"the name {path[-1]}"
        field = None
    return Finding(path, shown, *_allowed_values_and_hint(kind, value, shown, context, error["msg"], field))


def _union_tag_finding(
    path: Path, field: FieldInfo | None, value: Any, context: Mapping[str, Any]
) -> Finding:
    name = str(context["discriminator"]).strip("'")
    tags = list(_union_members_by_tag(field.annotation, name)) if field else []
    kind = value.get(name) if isinstance(value, Mapping) else None
    shown = MISSING if kind is None else shown_value(kind)
    return Finding((*path, name), shown, " or ".join(tags), did_you_mean_text(shown, tags) if kind else None)


_BOUNDS = {
    "greater_than": ("gt", "greater than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}
"""Name of the bound and its words, by kind of pydantic's error."""


def _allowed_values_and_hint(
    kind: str, value: Any, shown: str, context: Mapping[str, Any], message: str, field: FieldInfo | None
) -> tuple[str, str | None]:
    if kind == "literal_error":
        choices = [str(choice) for choice in get_args(_without_annotated(field.annotation))] if field else []
        if not isinstance(value, str) and shown in choices:
            return f"one of {', '.join(choices)}", f'write it in quotes: "{shown}"'
        return f"one of {', '.join(choices)}", did_you_mean_text(shown, choices)
    if kind == "string_pattern_mismatch":
        pattern = _pattern_in_words(context, field)
        return pattern, did_you_mean_text(shown, REGIONS) if pattern == _PATTERNS[REGION] else None
    if kind == "value_error":
        return str(context["error"]), f'write it in quotes: "{shown}"' if isinstance(value, float) else None
    if kind == "string_type" and isinstance(value, int | float):
        return "text", f'write it in quotes: "{shown}"'
    if kind in _BOUNDS:
        name, words = _BOUNDS[kind]
        bound = context[name]
        if isinstance(bound, str):  # of a duration, in words: pydantic writes them
            return f"{words} {bound}", None
        return f"a number, {words} {int(bound) if float(bound).is_integer() else bound}", None
    if kind == "too_short":
        return f"at least {context['min_length']} entry", None
    if kind in ("int_type", "float_type") and isinstance(value, str):
        return _KINDS[kind], _number_hint(value)
    return _KINDS.get(kind, message), None


_SHORT = {"": 1, "k": 1_000, "m": 1_000_000}


def _number_hint(text: str) -> str | None:
    """Return a hint with the valid form of a number such as ``20,000``, ``20 000`` or ``20k``."""
    if (match := re.fullmatch(r"([0-9][0-9,_' ]*(?:\.[0-9]+)?) ?([kKmM]?)", text.strip())) is None:
        return None
    number = float(re.sub("[,_' ]", "", match[1])) * _SHORT[match[2].lower()]
    return f"write {number:.15g}"


def _pattern_in_words(context: Mapping[str, Any], field: FieldInfo | None) -> str:
    pattern = str(context["pattern"])
    example = f", such as {field.examples[0]}" if field and field.examples else ""
    return _PATTERNS.get(pattern, f"text that matches {pattern}{example}")


def _path_model_and_field_of_location(
    loc: Sequence[str | int], model: Any
) -> tuple[Path, Any, FieldInfo | None]:
    """Follow a location through the model: return the path in the file, the last model, the last field."""
    path: list[str | int] = []
    owner, annotation = model, model
    field: FieldInfo | None = None
    metadata: tuple[Any, ...] = ()
    for step in loc:
        if step == "[key]":
            continue
        if (discriminator := _discriminator_name(annotation, metadata)) is not None:
            annotation = _union_members_by_tag(annotation, discriminator).get(str(step))
            metadata = ()
            continue
        path.append(step)
        bare = _without_annotated(annotation)
        if isinstance(bare, type) and issubclass(bare, BaseModel):
            owner = bare
            field = _fields_by_file_key(bare).get(str(step))
            annotation, metadata = (field.annotation, tuple(field.metadata)) if field else (None, ())
            if field is not None and field.discriminator is not None:
                metadata = (*metadata, field)
        elif get_origin(bare) in (dict, Mapping, tuple):
            inner = get_args(bare)[0 if get_origin(bare) is tuple else 1]
            annotation, metadata = inner, ()
            if loc[-1] != "[key]":
                field = FieldInfo.from_annotation(inner)
        else:
            annotation, metadata = None, ()
    return tuple(path), owner, field


def _discriminator_name(annotation: Any, metadata: Sequence[Any]) -> str | None:
    if get_origin(annotation) is Annotated:
        metadata = (*get_args(annotation)[1:], *metadata)
    fields = (each.discriminator for each in metadata if isinstance(each, FieldInfo))
    return next((each for each in fields if isinstance(each, str)), None)


def _union_members_by_tag(annotation: Any, name: str) -> dict[str, type[BaseModel]]:
    return {
        str(tag): member
        for member in get_args(_without_annotated(annotation))
        if isinstance(member, type) and issubclass(member, BaseModel)
        for tag in get_args(member.model_fields[name].annotation)
    }


def _without_annotated(annotation: Any) -> Any:
    """Strip ``Annotated`` and ``| None``."""
    if get_origin(annotation) is Annotated:
        return _without_annotated(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        rest = [each for each in get_args(annotation) if each is not NoneType]
        if len(rest) == 1:
            return _without_annotated(rest[0])
    return annotation


def _fields_by_file_key(model: type[BaseModel]) -> dict[str, FieldInfo]:
    return {field.alias or name: field for name, field in model.model_fields.items()}
