"""Run of all preflight checks: read-only questions to an account, in parallel, that decide whether a deployment will go through."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from botocore.exceptions import BotoCoreError, ClientError

from millrace.config.aws.pagination import list_all
from millrace.lifecycle.account.deployed_environment import DeployedEnvironment, ignoring_not_found_errors
from millrace.lifecycle.changes.refused_updates import Template
from millrace.lifecycle.changes.undeclared_stacks import existing_stack_states
from millrace.sizing.plan_model import Plan

Verdict = Literal["ok", "warning", "failed", "not known"]

ABSENT = (
    "ResourceNotFoundException",
    "NotFoundException",
    "404",
    "NoSuchBucket",
    "NoSuchBucketPolicy",
    "ParameterNotFound",
)
"""Codes of errors of a subject that does not exist."""

_THREADS = 8


@dataclass(frozen=True)
class PreflightRow:
    """Answer to one question.

    Attributes
    ----------
    remedy, command
        What to do, and the command for it; empty if there is nothing to do.
    """

    subject: str
    verdict: Verdict
    found: str
    remedy: str = ""
    command: str = ""


def row_of_check(subject: str, wrong: str, right: str, remedy: str, command: str = "") -> PreflightRow:
    """Return a row that fails if there is something wrong, and else says what is right."""
    return (
        PreflightRow(subject, "failed", wrong, remedy, command)
        if wrong
        else PreflightRow(subject, "ok", right)
    )


@dataclass
class PreflightAccount:
    """The account that is asked, and what is to be deployed there.

    Attributes
    ----------
    templates
        Templates by stack; None if they were not synthesised.
    """

    aws: DeployedEnvironment
    plan: Plan
    templates: Mapping[str, Template] | None = None
    _lock: Any = field(default_factory=threading.RLock)

    def client(self, service: str) -> Any:
        """Return a client; boto3 makes them in one thread at a time."""
        with self._lock:
            return self.aws.client(service)

    def list_items(self, service: str, operation: str, key: str, **given: Any) -> list[Any]:
        """Return the items under a key of all pages of an operation."""
        return list(list_all(self.client(service), operation, key, **given))

    def answer_if_exists(self, service: str, operation: str, **given: str) -> dict[str, Any] | None:
        """Return the answer of an operation; None if its subject does not exist."""
        with ignoring_not_found_errors(*ABSENT):
            return dict(getattr(self.client(service), operation)(**given))
        return None

    @cached_property
    def stack_states(self) -> dict[str, str]:
        """States of the environment's stacks, by name."""
        return existing_stack_states(self.client("cloudformation"), self.aws.names.prefix)

    def has_stack(self, part: str) -> bool:
        """Return whether a stack of the environment is deployed."""
        return self.aws.names.stack(part) in self.stack_states


Check = Callable[[PreflightAccount], Iterator[PreflightRow]]


def run_all_checks(account: PreflightAccount, checks: Mapping[str, Check]) -> tuple[PreflightRow, ...]:
    """Ask all questions at the same time; one that AWS does not answer is ``not known``, and stops no other.

    Parameters
    ----------
    checks
        By the subject of a row that could not be asked.
    """

    def rows_of_check(subject: str, check: Check) -> list[PreflightRow]:
        answers: list[PreflightRow] = []
        try:
            answers.extend(check(account))
        except ClientError as error:
            code = error.response["Error"].get("Code", "an error without a code")
            answers.append(PreflightRow(subject, "not known", f"{code} at {error.operation_name}"))
        except (BotoCoreError, OSError, AttributeError, LookupError, TypeError, ValueError) as error:
            # A network that refuses, or an answer of a form that no document describes.
            answers.append(PreflightRow(subject, "not known", f"{type(error).__name__}: {error}"))
        return answers

    with ThreadPoolExecutor(_THREADS) as pool:
        return tuple(row for rows in pool.map(rows_of_check, checks, checks.values()) for row in rows)
