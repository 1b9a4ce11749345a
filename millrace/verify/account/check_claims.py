"""Check of claims in an account: each is proved, refuted or undetermined; the report has no names of the account."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from millrace.config.aws.resource_names import Names
from millrace.lifecycle.account.deployed_environment import NotDeployedError
from millrace.lifecycle.aws_error_messages import AwsError
from millrace.verify.account import account_checks, deployment_checks
from millrace.verify.account.check_input_and_answer import CheckAnswer, ClaimContext, UndeterminedError
from millrace.verify.account.claims import read_claims

Verdict = Literal["proved", "refuted", "undetermined"]

CHECKS: Mapping[str, Callable[[ClaimContext], CheckAnswer]] = {
    each.__name__: each for each in (*account_checks.ALL, *deployment_checks.ALL)
}

_ABSENT = ("EntityNotFoundException", "ResourceNotFoundException", "NoSuchBucket", "NoSuchEntity")
_NOTHING = "nothing of it is deployed, or has run"


@dataclass(frozen=True)
class ClaimAnswer:
    """Answer to one claim.

    Attributes
    ----------
    why
        Observation for ``proved`` and ``refuted``, reason for ``undetermined``.
    """

    id: str
    verdict: Verdict
    why: str

    @property
    def report_line(self) -> str:
        """Line that a user sends back."""
        return f"{self.id}: {self.verdict}" + (f" ({self.why})" if self.why else "")


def check_claims(
    context: ClaimContext, say: Callable[[str], None] = lambda _: None
) -> tuple[ClaimAnswer, ...]:
    """Return the answer to each claim, in the file's order; a refusal of one does not stop the others.

    Parameters
    ----------
    context
        The account and the environment.
    say
        Called with the id of each claim.
    """
    answers = []
    for name, claim in read_claims().items():
        if claim.check is None:
            answers.append(ClaimAnswer(name, "undetermined", "a person has to look: docs/unproved.md"))
            continue
        say(name)
        verdict, why = _verdict_and_reason_of_check(CHECKS[claim.check], context)
        answers.append(ClaimAnswer(name, verdict, text_without_account_names(why, context.names)))
    return tuple(answers)


def _verdict_and_reason_of_check(
    check: Callable[[ClaimContext], CheckAnswer], context: ClaimContext
) -> tuple[Verdict, str]:
    try:
        answer = check(context)
    except UndeterminedError as error:
        return "undetermined", str(error)
    except NotDeployedError:
        return "undetermined", _NOTHING
    except ClientError as error:
        code = error.response["Error"].get("Code", "an error without a name")
        return "undetermined", _NOTHING if code in _ABSENT else f"{code} at {error.operation_name}"
    except AwsError as error:
        cause = error.__cause__
        if isinstance(cause, ClientError):
            return "undetermined", f"{cause.response['Error'].get('Code')} at {cause.operation_name}"
        return "undetermined", type(cause or error).__name__
    except (BotoCoreError, OSError) as error:
        return "undetermined", type(error).__name__
    except (AttributeError, LookupError, ResponseParserError, TypeError, ValueError) as error:
        # An answer of a form that no document describes: it proves nothing, and the verification continues.
        return "undetermined", f"an unexpected response: {type(error).__name__}"
    return ("proved" if answer.holds else "refuted"), answer.seen


def text_without_account_names(text: str, names: Names) -> str:
    """Return a text without ARNs, account ids and the environment's names."""
    text = re.sub(r"arn:[^\s,)]+", "ARN", text)
    text = re.sub(r"\b\d{12}\b", "ACCOUNT", text)
    return text.replace(names.prefix, "PREFIX")


def verdict_counts_text(answers: Sequence[ClaimAnswer]) -> str:
    """Return the numbers of verdicts in words: ``12 proved, 1 refuted, 30 undetermined``."""
    verdicts: tuple[Verdict, ...] = ("proved", "refuted", "undetermined")
    return ", ".join(f"{sum(each.verdict == v for each in answers)} {v}" for v in verdicts)


def answers_document(answers: Sequence[ClaimAnswer]) -> dict[str, Any]:
    """Return an object for ``json.dumps``."""
    return {
        "version": 1,
        "verdict": verdict_counts_text(answers),
        "claims": [{"id": each.id, "verdict": each.verdict, "why": each.why} for each in answers],
    }


def claims_report(answers: Sequence[ClaimAnswer], *, version: str, region: str, read: str) -> str:
    """Return the Markdown that a user sends back.

    Parameters
    ----------
    version, region, read
        Millrace's version, the environment's region, and the date.
    """
    counted = [each.report_line for each in answers if each.verdict != "undetermined"]
    others = [each.report_line for each in answers if each.verdict == "undetermined"]
    lines = "\n".join(
        [f"millrace {version}, {region}, {read}: {verdict_counts_text(answers)}", *counted, *others]
    )
    return f"# Claims about AWS, asked\n\nSend these lines; docs/unproved.md says what each means.\n\n```text\n{lines}\n```\n"
