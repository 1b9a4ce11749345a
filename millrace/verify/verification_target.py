"""Where a verification runs: what differs between an account of AWS and the sandbox, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pyiceberg.catalog import Catalog

from millrace.config.names import Names
from millrace.lifecycle.kafka_access import Settings
from millrace.lifecycle.problems import ThrottledError, translate_aws_errors
from millrace.sandbox.child_processes import StalledError, wait_until
from millrace.verify.environment import VerificationCopy
from millrace.verify.verification_cost import Run


class VerifyError(RuntimeError):
    """A verification that cannot continue; says why, and what to do."""


@dataclass(frozen=True)
class TimeLimits:
    """How long each part may take at most, in seconds; beyond it the verification ends as failed.

    Attributes
    ----------
    start
        From the start of a job to its first commit.
    end
        From the request that a run ends to its end.
    recover
        From the end of a killed run to the next commit.
    land
        Without a further row in any table, once all is sent.
    reshard
        Until a stream takes its new number of shards.
    remove
        Until all is deleted.
    vanish
        Until what is deleted is told of no more.
    """

    start: float
    end: float
    recover: float
    land: float
    reshard: float
    remove: float
    vanish: float


@dataclass(frozen=True)
class Expected:
    """How long parts take by experience or by guess, in seconds: what an estimate is made of."""

    deploy: float
    start: float
    recover: float
    reshard: float
    remove: float


class Place(Protocol):
    """A place where environments are deployed and their jobs run."""

    patience: TimeLimits
    paid: bool
    """Whether what runs there is billed."""

    @property
    def where(self) -> str:
        """For people."""

    def client(self, service: str) -> Any:
        """Make a boto3 client of a service."""

    def check(self, copy: VerificationCopy, /) -> None:
        """Look whether all can be made, before anything is."""

    def deploy(self, copy: VerificationCopy, assembly: Path, /) -> None:
        """Deploy the stacks of an assembly."""

    def catalog(self, names: Names, /) -> Catalog:
        """Open the catalog of the environment's tables."""

    def kafka(self, names: Names, cluster: str, /) -> Settings:
        """Settings of librdkafka for a cluster."""

    def start(self, names: Names, job: str, /) -> None:
        """Start a job."""

    def kill(self, names: Names, job: str, /) -> None:
        """End a job's run at once, without grace, and return when it has ended."""

    def restart_killed_job(self, names: Names, job: str, /) -> None:
        """Start a killed job again, where nothing else does."""

    def ended(self, names: Names, job: str, /) -> str | None:
        """Why a job will not continue by itself; None while it runs or is about to."""

    def stop(self, names: Names, job: str, /) -> None:
        """End a job's run with grace, for good."""

    def end(self, prefix: str, jobs: Mapping[str, Mapping[str, str]], /) -> None:
        """End every run of an environment, and let none begin again.

        Parameters
        ----------
        prefix
            Of all names of the environment.
        jobs
            By logical name the types and physical ids of its stack's resources; what is not there is left out.
        """

    def runs(self, names: Names, job: str, /) -> list[Run]:
        """All runs of a job, with what each was billed for."""


def wait_for(reached: Callable[[], bool], seconds: float, what: str, *, poll_seconds: float = 0.5) -> None:
    """Wait for something; where AWS says that it was asked too often, it is asked again later.

    Parameters
    ----------
    reached
        Asked again and again; may raise what boto3 raises.
    seconds
        At most.
    what
        Said where it did not come.

    Raises
    ------
    VerifyError
        It did not come.
    AwsError
        AWS refuses the question.
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
    """Raise what goes wrong while tables are read, in the catalog and in their files, as one message.

    Raises
    ------
    AwsError
        The catalog refuses the question.
    VerifyError
        A file cannot be read.
    """
    try:
        with translate_aws_errors(f"asking the catalog for {what}"):
            yield
    except OSError as error:
        raise VerifyError(f"{what} cannot be read: {error}") from error
