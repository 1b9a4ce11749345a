"""One LocalStack, one Kafka broker and one deployment of environment ``local`` for all integration tests."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlparse

import pytest
from localstack_client.session import Session

from millrace.sandbox import demo
from millrace.sandbox.environment_trial import EnvironmentTrial
from millrace.sandbox.localstack_deployment import Sandbox, deploy_sandbox, running_localstack_and_kafka
from millrace.sandbox.records.ledger import Ledger, LedgerComparison
from millrace.sandbox.trial_results import TableAfterTrial

DRILL_SECONDS = 900
"""Two jobs from their deployment to the comparison of all their tables, each killed once, beside two other parts."""

TABLES = {
    "departures": ("departures_landed", "departures_enriched"),
    "flights": ("flights_landed", "flights_weather"),
}
"""Landing and derived table of each job of environment ``local``."""


@dataclass(frozen=True)
class JobOutcome:
    """What the drill left of a job: its ledger, and both tables with their full names."""

    ledger: Ledger
    landed: TableAfterTrial
    derived: TableAfterTrial
    landed_table: str
    derived_table: str

    @property
    def account(self) -> LedgerComparison:
        assert self.landed.account is not None
        return self.landed.account


@dataclass(frozen=True)
class Drill:
    """The tables after the drill, and the outcome of each job."""

    tables: dict[str, TableAfterTrial]
    jobs: dict[str, JobOutcome]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whichever test first asks for the drill waits for it."""
    for item in items:
        if isinstance(item, pytest.Function) and "drill" in item.fixturenames:
            item.add_marker(pytest.mark.timeout(DRILL_SECONDS), append=False)


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    with running_localstack_and_kafka() as (stack, broker):
        yield deploy_sandbox("local", stack, broker)


@pytest.fixture(scope="session")
def aws(sandbox: Sandbox) -> Session:
    """A session of clients that talk to the sandbox's LocalStack, or to LOCALSTACK_ENDPOINT's."""
    return Session(localstack_host=urlparse(sandbox.stack.endpoint).netloc)


@pytest.fixture(scope="session")
def drill(sandbox: Sandbox) -> Drill:
    feeds = demo.feed_by_stream(sandbox.environment, "few")
    trial = EnvironmentTrial(sandbox, demo.JOBS, feeds, say=lambda _: None)
    tables, ledgers = trial.run(time.monotonic(), 0.0), trial.ledger_by_table()
    return Drill(
        tables,
        {
            job: JobOutcome(
                ledgers[landed],
                tables[landed],
                tables[derived],
                sandbox.names.table(landed),
                sandbox.names.table(derived),
            )
            for job, (landed, derived) in TABLES.items()
        },
    )


@pytest.fixture(scope="session")
def outcomes(drill: Drill) -> dict[str, JobOutcome]:
    return drill.jobs
