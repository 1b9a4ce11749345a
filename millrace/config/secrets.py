"""Secrets written in plain text, recognised by their form or by the key that holds them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from millrace.config.document import Tree
from millrace.config.problems import MISSING, Finding, Path

_KEY = re.compile(
    r"pass(word|wd|phrase)|(?<!no)secret|credential|(^|[._-])token$|jaas\.config"
    r"|(access|private|api|account|session)[._-]?(key|token)",
    re.IGNORECASE,
)
_REFERENCE = re.compile(
    r"^(arn:aws[a-z-]*:(secretsmanager|ssm|kms):|\{\{resolve:(secretsmanager|ssm-secure):)"
)
_ARN = re.compile(r"^arn:aws[a-z-]*:[a-z0-9-]+:[a-z0-9-]*:(\d{12}|aws)?:[\w+=,.@:/-]+$")
_FORMS = (
    re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----"),
    re.compile(r"\b\w+://[^/\s:@]+:[^/\s@]+@"),
    re.compile(r"\bpassword\s*=\s*[\"']?[^\s\"';]+", re.IGNORECASE),
    # AWS secret keys: 40 characters of base64 with all three kinds of character.
    re.compile(
        r"(?<![A-Za-z0-9/+])(?=[A-Za-z0-9/+]*[a-z])(?=[A-Za-z0-9/+]*[A-Z])(?=[A-Za-z0-9/+]*\d)[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=])"
    ),
)

_COLUMNS = ("on", "columns")
"""Keys whose entries are names of columns: a column may well be called ``token``."""

ALLOWED = "a reference, such as arn:aws:secretsmanager:..., or the job's own role"


def is_secret_key(key: str) -> bool:
    """Tell whether a key by its name holds a secret."""
    return _KEY.search(key) is not None


def censor(path: Path, value: str) -> str:
    """Hide a secret but leave a trace that tells which one it is; other values pass."""
    return f"{value[:2]}… ({len(value)} characters)" if _is_secret(path, value) else value


def findings(tree: Tree) -> Iterator[Finding]:
    """Find every secret of a document, wherever it stands.

    Parameters
    ----------
    tree
        The merged document.
    """
    for path, value in tree.leaves():
        if isinstance(value, str) and value and _is_secret(path, value):
            yield Finding(path, value, ALLOWED, "a secret in plain text")


def _is_secret(path: Path, value: str) -> bool:
    if value == MISSING or _REFERENCE.match(value):
        return False
    column = len(path) > 1 and path[-2] in _COLUMNS
    if _ARN.match(value):
        return False  # the name of a thing, however much its end looks like a key
    by_key = bool(path) and not column and is_secret_key(str(path[-1]))
    return by_key or any(form.search(value) for form in _FORMS)
