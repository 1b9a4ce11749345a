"""States of ended runs against the APIs' own models."""

from __future__ import annotations

import botocore.session

from millrace.config.engines import ended_run_states


def states_of_api(service: str, shape: str) -> set[str]:
    return set(botocore.session.get_session().get_service_model(service).shape_for(shape).enum)


def test_every_other_state_is_of_a_run_that_may_still_write() -> None:
    going = states_of_api("glue", "JobRunState") - set(ended_run_states.GLUE)
    assert going == {"STARTING", "RUNNING", "STOPPING", "WAITING"}
    going = states_of_api("emr-serverless", "JobRunState") - set(ended_run_states.EMR_SERVERLESS)
    assert going == {"SUBMITTED", "PENDING", "SCHEDULED", "RUNNING", "CANCELLING", "QUEUED"}


def test_all_are_states_of_the_apis() -> None:
    assert set(ended_run_states.GLUE) <= states_of_api("glue", "JobRunState")
    assert set(ended_run_states.EMR_SERVERLESS) <= states_of_api("emr-serverless", "JobRunState")
    assert set(ended_run_states.SUCCEEDED) <= ended_run_states.ALL
