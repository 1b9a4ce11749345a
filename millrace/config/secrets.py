"""Secrets written in plain text, recognised by their form or by the key that holds them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from millrace.config.document import Tree
from millrace.config.problems import MISSING, Finding

_KEY = re.compile(
    r"pass(word|wd|phrase)|(?<!no)secret|credential|(^|[._-])token($|[._-])|jaas\.config"
    r"|(access|private|api|account|session)[._-]?(key|token)",
    re.IGNORECASE,
)
_REFERENCE = re.compile(
    r"^(arn:aws[a-z-]*:(secretsmanager|ssm|kms):|\{\{resolve:(secretsmanager|ssm-secure):)"
)
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

ALLOWED = "a reference, such as arn:aws:secretsmanager:..., or the job's own role"


def is_secret_key(key: str) -> bool:
    """Tell whether a key by its name holds a secret."""
    return _KEY.search(key) is not None


def mask(value: str) -> str:
    """Hide a secret but leave a trace that tells which one it is."""
    if value == MISSING or _REFERENCE.match(value):
        return value
    return f"{value[:2]}…({len(value)} characters)"


def findings(tree: Tree) -> Iterator[Finding]:
    """Find every secret of a document, wherever it stands.

    Parameters
    ----------
    tree
        The merged document.
    """
    for path, value in tree.leaves():
        if not isinstance(value, str) or not value or _REFERENCE.match(value):
            continue
        by_key = any(isinstance(step, str) and is_secret_key(step) for step in path)
        if by_key or any(form.search(value) for form in _FORMS):
            yield Finding(path, mask(value), ALLOWED, "a secret in plain text")
