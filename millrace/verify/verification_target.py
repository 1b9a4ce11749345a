"""Target of a verification: only the differences between an AWS account and the sandbox."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog

from millrace.config.names import Names
from millrace.lifecycle.kafka_access import Settings
from millrace.lifecycle.problems import ThrottledError, translate_aws_errors
from millrace.sandbox.child_processes import StalledError, wait_until
from millrace.verify.environment import VerificationCopy
from millrace.verify.verification_cost import Run


class VerifyError(RuntimeError):
    """A verification that cannot continue; the message says why, and what to do."""


@dataclass(frozen=True)
class TimeLimits:
    """Longest time of each part, in seconds; after it the verification ends as failed.

    Attributes
    ----------
    start
        From the start of a job to its first commit.
    end
        From the request to end a run to its end.
    recover
        From the end of a killed run to the next commit.
    land
        Without a further row in any table, after all records were sent.
    reshard
        Until a stream takes its new number of shards.
    remove
        Until all is deleted.
    vanish
        Until AWS no longer lists deleted resources.
    """

    start: float
    end: float
    recover: float
    land: float
    reshard: float
    remove: float
    vanish: float


@dataclass(frozen=True)
class ExpectedSeconds:
    """Expected seconds of parts, measured or guessed, for an estimate."""

    deploy: float
    start: float
    recover: float
    reshard: float
    remove: float


class Place(ABC):
    """A place where environments are deployed and their jobs run."""

    patience: TimeLimits
    paid: bool
    """Whether runs in this place are billed."""

    @property
    @abstractmethod
    def where(self) -> str:
        """The place, for people."""

    @abstractmethod
    def client(self, service: str) -> Any:
        """Return a boto3 client of a service."""

    def check(self, _copy: VerificationCopy) -> None:  # noqa: B027 - not every place has quotas
        """Check before the deployment that everything can be created."""

    @abstractmethod
    def deploy(self, copy: VerificationCopy, assembly: Path) -> None:
        """Deploy the stacks of an assembly."""

    @abstractmethod
    def catalog(self, names: Names) -> Catalog:
        """Open the catalog of the environment's tables."""

    @abstractmethod
    def kafka(self, names: Names, cluster: str) -> Settings:
        """Return the settings of librdkafka for a cluster."""

    @abstractmethod
    def start(self, names: Names, job: str) -> None:
        """Start a job."""

    @abstractmethod
    def kill_run(self, names: Names, job: str) -> None:
        """End a job's run at once, without grace, and return when it has ended."""

    def restart_killed_job(self, names: Names, job: str) -> None:  # noqa: B027 - as its docstring says
        """Restart a killed job, where nothing else does."""

    def why_ended(self, _names: Names, _job: str) -> str | None:
        """Return why a job will not continue by itself; None while it runs, or where it is restarted within a time limit."""
        return None

    @abstractmethod
    def stop(self, names: Names, job: str) -> None:
        """End a job's run with grace, permanently."""

    @abstractmethod
    def end_all_runs(self, prefix: str, jobs: Mapping[str, Mapping[str, str]]) -> None:
        """End every run of an environment, and prevent new ones.

        Parameters
        ----------
        prefix
            Prefix of all names of the environment.
        jobs
            Types and physical ids of the existing resources of each job's stack, by the job's logical name.
        """

    @abstractmethod
    def runs(self, names: Names, job: str) -> list[Run]:
        """Return all runs of a job, with their billed quantities."""


def wait_for(reached: Callable[[], bool], seconds: float, what: str, *, poll_seconds: float = 0.5) -> None:
    """Wait for a condition; a request that AWS throttles is repeated later.

    Parameters
    ----------
    reached
        The condition, which is polled; it may raise boto3's errors.
    seconds
        Longest wait.
    what
        Name of the condition, for the message.

    Raises
    ------
    VerifyError
        The time ran out.
    AwsError
        AWS refuses a request.
    """
    last = ""

    def look() -> bool:
        nonlocal last
        last = ""
        try:
            with translate_aws_errors(f"waiting for {what}"):
                return reached()
        except ThrottledError as error:
            last = f" ({error})"
            return False

    try:
        wait_until(look, seconds=seconds, what=what, poll_seconds=poll_seconds)
    except StalledError as error:
        raise VerifyError(f"timeout after {seconds:.0f} s of waiting for {what}{last}") from error


@contextmanager
def aws_errors(what: str) -> Iterator[None]:
    """Raise errors of reading tables, in the catalog and in their files, as one message.

    Raises
    ------
    AwsError
        The catalog refuses the request.
    VerifyError
        A file cannot be read.
    """
    try:
        with translate_aws_errors(f"asking the catalog for {what}"):
            yield
    except OSError as error:
        raise VerifyError(f"{what} cannot be read: {error}") from error
