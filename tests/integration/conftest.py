"""One LocalStack, one Kafka broker and one deployment of environment ``local`` for all integration tests."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlparse

import pytest
from localstack_client.session import Session

from millrace.sandbox import demo
from millrace.sandbox.localstack_deployment import Sandbox, deploy_sandbox, running_localstack_and_kafka
from millrace.sandbox.one_job_failure_drill import DrillResult, FailureDrill

DRILL_SECONDS = 600
"""Two jobs from their deployment to the end of their ledgers, each killed once, beside two other parts."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whichever test first asks for the drill waits for it."""
    for item in items:
        if isinstance(item, pytest.Function) and "outcomes" in item.fixturenames:
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
def outcomes(sandbox: Sandbox) -> dict[str, DrillResult]:
    return {
        job: FailureDrill(sandbox, job, feed, seed=7, report=lambda *_: None).run()
        for job, feed in demo.feed_by_job("few").items()
    }
