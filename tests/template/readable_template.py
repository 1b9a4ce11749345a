"""Templates as text for comparison: one value per line, without values that change by themselves."""

from __future__ import annotations

import io
import json
import re
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import LiteralScalarString

_ASSET = re.compile(r"\b[0-9a-f]{64}\b|(?<=')[0-9a-f]{24}(?=-')")
_IGNORED = ("Rules", "Parameters", "Conditions")
"""What CDK adds to every template for its bootstrap version."""


def readable(template: dict[str, Any]) -> str:
    """Write a template as YAML.

    Asset hashes are masked, joined strings are written as one with ``${...}`` in place of
    references, and strings that hold JSON (state machines, dashboards) are opened.

    Parameters
    ----------
    template
        As CDK wrote it.
    """
    kept = {key: value for key, value in template.items() if key not in _IGNORED}
    yaml = YAML()
    yaml.width = 4096
    yaml.default_flow_style = False
    yaml.representer.ignore_aliases = lambda *_: True
    text = io.StringIO()
    yaml.dump(_plain(kept), text)
    return _ASSET.sub("<asset>", text.getvalue())


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        if len(value) == 1:
            (name,) = value
            if name in ("Ref", "Fn::GetAtt", "Fn::Join", "Fn::Sub", "Fn::ImportValue"):
                return _opened(_expression(value))
        return {key: _plain(each) for key, each in sorted(value.items()) if key != "Metadata"}
    if isinstance(value, list) and value and all(_is_tag(each) for each in value):
        return {each["Key"]: _plain(each["Value"]) for each in value}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return _opened(value) if isinstance(value, str) else value


def _is_tag(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {"Key", "Value"}


def _expression(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and len(value) == 1:
        (name, inner), *_ = value.items()
        if name == "Fn::Join":
            return str(inner[0]).join(_expression(part) for part in inner[1])
        if name == "Fn::GetAtt":
            return "${" + ".".join(inner) + "}"
        if name == "Fn::Sub":
            return str(inner)
        if name in ("Ref", "Fn::ImportValue"):
            return (
                "${" + str(inner).rsplit(":", 1)[-1] + "}"
                if name == "Fn::ImportValue"
                else "${" + str(inner) + "}"
            )
    return "${" + json.dumps(value, sort_keys=True) + "}"


def _opened(text: str) -> Any:
    if text[:1] in "{[" and len(text) > 2:
        try:
            return {"(json)": _plain(json.loads(text))}
        except json.JSONDecodeError:
            return text
    return LiteralScalarString(text) if "\n" in text else text
