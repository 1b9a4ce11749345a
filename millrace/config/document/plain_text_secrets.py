"""Detection of secrets in plain text, by their form or by the name of their key."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from urllib.parse import unquote

from millrace.config.document.placeholders_left_by_import import is_placeholder
from millrace.config.document.problems import MISSING, Finding, Path
from millrace.config.document.yaml_tree import Tree

_KEY = re.compile(
    r"pass(word|wd|phrase)|(?<!no)secret|credential|(^|[._-])(token|pass|pwd|pw)$|(?-i:[a-z]Pass$)|jaas\.config"
    r"|(access|private|api|account|session|shared)[._-]?(access[._-]?)?(key|token)",
    re.IGNORECASE,
)
_REFERENCE = re.compile(
    r"^(arn:aws[a-z-]*:(secretsmanager|ssm|kms):|\{\{resolve:(secretsmanager|ssm-secure):)"
)
_ARN = re.compile(r"^arn:aws[a-z-]*:[a-z0-9-]+:[a-z0-9-]*:(\d{12}|aws)?:[\w+=,.@:/-]+$")

_ARNS = re.compile(r"arn:aws[a-z-]*:[a-z0-9-]+:[a-z0-9-]*:(\d{12}|aws)?:[\w+,.@:/-]+")
"""ARNs inside a text, such as a secret's."""

_NAMED = r"[\w.-]*(?:pass(?:word|wd|phrase)|(?<=[._-])pass|\bpass(?==)|pwd|(?<!no)secret|token|credentials?|signature|(?:secret|access|private|api|account|session|shared|encryption)[._-]?(?:access[._-]?)?key)"
_ELSEWHERE = r"(?!arn:aws|\$\{|\$[A-Za-z_]|\{\{|%\(|<|\*{3}|(?:true|false|null|none)\b)"
"""Values in the place of a secret that are none: a reference, a variable, a placeholder, true or false."""

_FORMS = tuple(
    re.compile(form)
    for form in (
        # A name and a value inside a text: options of a JVM, parameters of a URL, a login module, a connection string.
        rf"(?i)(?<![\w.-]){_NAMED}[\"']?\s*(?:=|:(?!//))\s*\\?[\"']?{_ELSEWHERE}[^\s\"';,&]+",
        rf"(?i)(?<!\S)--?{_NAMED}\s+[\"']?(?!-){_ELSEWHERE}[^\s\"']+",
        r"(?i)\bauthorization[\"']?\s*[=:]\s*[\"']?(?:basic|bearer)\s+[\w.+/=-]{6,}",  # RFC 7617, RFC 6750
        r"(?<![\w+.:-])[A-Za-z][\w+.:-]*://[^/\s:@]*:[^/\s@]+@",  # RFC 3986, userinfo
        r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY( BLOCK)?-----",  # RFC 7468, RFC 4880
        r"LS0tLS1CRUdJTiB(?:QUklWQVRF|SU0EgUFJJVkFUR|FQyBQUklWQVRF|FTkNSWVBURUQg|PUEVOU1NIIFBS|EU0EgUFJJVkFUR)",  # the same in base64
        r"\beyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}",  # RFC 7519
        # IAM user guide, "IAM identifiers": ids of keys, of temporary ones, of bearers and of certificates
        r"\b(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}\b",
        # AWS secret keys: 40 characters of base64 with all three kinds of character.
        r"(?<![A-Za-z0-9/+])(?=[A-Za-z0-9/+]*[a-z])(?=[A-Za-z0-9/+]*[A-Z])(?=[A-Za-z0-9/+]*\d)[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=])",
        # GitHub docs, "About authentication to GitHub", token formats
        r"\bgh[pousr]_[A-Za-z0-9]{36,255}\b|\bgithub_pat_\w{22,255}\b",
        # GitLab docs, "Token overview", token prefixes
        r"\bgl(?:pat|oas|dt|rt|rtr|cbt|ptt|ft|imt|agent|soat|ffct|wt)-[\w.-]{20,}",
        # Slack docs, "Tokens" and "Incoming webhooks"
        r"\bxox[abceoprs](?:\.xox[bp])?-[\w-]{10,}|\bxapp-\d-[\w-]{10,}|hooks\.slack\.com/(?:services|workflows)/[\w/]{20,}",
        # Stripe docs, "API keys" and "Webhooks"
        r"\b(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{10,}|\bwhsec_[A-Za-z0-9]{20,}",
        # Google Cloud docs, "API keys", "OAuth 2.0"
        r"\bAIza[\w-]{35}\b|\bya29\.[\w-]{20,}|\bGOCSPX-[\w-]{28}\b",
        # Azure Storage docs, "Connection strings", "Shared access signatures"
        r"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{86}==|[?&]sig=[\w%+/=-]{20,}",
        # npm docs, "About access tokens"; PyPI help, "API tokens"
        r"\bnpm_[A-Za-z0-9]{36}\b|\bpypi-AgE[\w-]{20,}",
        # Vendors' pages of their tokens: Databricks, SendGrid, Twilio, Docker, HashiCorp Vault, DigitalOcean, Atlassian,
        # Grafana, New Relic, Shopify, Square, Mailchimp, Telegram
        r"\bdapi[0-9a-f]{32}\b|\bSG\.[\w-]{22}\.[\w-]{43}\b|\b(?:SK|AC)[0-9a-f]{32}\b|\bdckr_pat_[\w-]{20,}"
        r"|\bhv[sbr]\.[\w-]{24,}|\bdo[opr]_v1_[0-9a-f]{64}\b|\bATATT3[\w=-]{20,}|\bgl(?:sa|c)_[\w=]{20,}"
        r"|\bNRAK-[A-Z0-9]{27}\b|\bshp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}\b|\bsq0(?:atp|csp)-[\w-]{22,}"
        r"|\b[0-9a-f]{32}-us\d{1,2}\b|\b\d{8,10}:AA[\w-]{33}\b",
        # Artifactory's API keys (JFrog docs, "Access tokens"); keys of several services that begin so
        r"\bAKC[a-zA-Z0-9]{20,}\b|\bAP[\dABCDEF][a-zA-Z0-9]{50,}\b|\bsk-[A-Za-z0-9_-]{20,}",
    )
)

_NAMED_FORMS = 2
"""The first of them, which look for a secret's name with a value behind it."""

_LITERAL = re.compile(
    r"(?i)(?:pass(?:word|wd|phrase)|(?<![a-z])pass|pwd|(?<!no)secret)[\"']?\s*(?::\s*\w+\s*)?[=:]\s*[rbf]?"
    r"([\"'])(?=[^\"']*\d)(?=[^\"']*[a-z])[^\"'\s{}<>$%]{8,}\1"
)
"""A password as a literal of a program, with a letter and a digit."""

_LONGEST = 100_000
"""Most characters of a text that are searched; no key of an environment file needs as many."""

_COLUMNS = ("on", "columns")
"""Keys whose entries are names of columns; a column may be called ``token``."""

ALLOWED = "a reference, such as arn:aws:secretsmanager:..., or the job's own role"


def censor(path: Path, value: str) -> str:
    """Hide a secret except its first two characters and its length; return other values unchanged."""
    return f"{value[:2]}… ({len(value)} characters)" if _is_secret(path, value) else value


def findings_of_secrets(tree: Tree) -> Iterator[Finding]:
    """Yield a finding for every secret of a document: a value, a part of one, or a key."""
    for path, value in tree.leaves:
        text = str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
        if isinstance(text, str) and text and _is_secret(path, text):
            yield Finding(path, text, ALLOWED, "a secret in plain text")
        for depth, step in enumerate(path, 1):
            if isinstance(step, str) and has_secret_form(step):
                shown = f"{step[:2]}… ({len(step)} characters)"
                yield Finding((*path[: depth - 1], shown), shown, ALLOWED, "a secret in plain text")


def number_of_first_line_with_secret(text: str, *, names: bool) -> int:
    """Return the first line of a file that holds something with a secret's form, 0 without one.

    Parameters
    ----------
    names
        Whether a secret's name with any value behind it is one; in a program the value may be a variable.
    """
    forms = _FORMS if names else (*_FORMS[_NAMED_FORMS:], _LITERAL)
    lines = enumerate(text.splitlines(), 1)
    return next((at for at, line in lines if any(form.search(_ARNS.sub("", line)) for form in forms)), 0)


def _is_secret(path: Path, value: str) -> bool:
    # An ARN is a name, even if its end looks like a key.
    if value == MISSING or is_placeholder(value) or _REFERENCE.match(value) or _ARN.match(value):
        return False
    column = len(path) > 1 and path[-2] in _COLUMNS
    by_key = bool(path) and not column and _KEY.search(str(path[-1])) is not None
    return by_key or has_secret_form(value)


@lru_cache(maxsize=4096)
def has_secret_form(text: str) -> bool:
    """Return whether a text holds something with a secret's form, also if it is percent-encoded."""
    text = _ARNS.sub("", text[:_LONGEST])
    plain = unquote(text)
    return any(form.search(each) for each in {text, plain} for form in _FORMS)
