"""Permissions of the people who deploy and operate an environment: the calls of the commands, command by command.

Sources: the actions are those that the commands call, which ``tests/unit/cli/test_policies.py`` records; resource types and
condition keys are those of the service authorization reference. The roles of the bootstrap are those that CDK's synthesizer
writes into each assembly. See ``docs/design/permissions.md#policies-of-people``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from millrace.config.aws.iam_statements import Grant

from ..environment_permission_scope import PermissionScope
from . import command_data_access_grants as read
from . import job_operation_grants as run
from .split_policies import split_into_policies, statement_length

_Part = Callable[[PermissionScope], list[Grant]]
_ASK: tuple[_Part, ...] = (run.grants_to_call_state_machines,)
_ONCE: tuple[_Part, ...] = (*_ASK, run.grants_to_watch_job_runs, run.grants_to_read_log_lines)
_DEPLOY: tuple[_Part, ...] = (
    *(
        run.grants_to_assume_bootstrap_roles,
        run.grants_to_read_stacks,
        *_ASK,
        run.grants_to_stop_applications,
        run.grants_to_read_metrics,
        run.grants_to_read_log_lines,
    ),
    *(
        read.grants_to_read_catalog_tables,
        read.grants_to_read_table_metadata,
        read.grants_to_read_checkpoints,
        run.grants_to_keep_replaced_versions,
    ),
)
_PARTS: dict[str, tuple[_Part, ...]] = {
    "preflight": (
        run.grants_to_assume_bootstrap_roles,
        run.grants_to_read_stacks,
        read.grants_to_read_what_decides_deployment,
    ),
    "deploy": (*_DEPLOY, read.grants_to_read_what_decides_deployment),
    "upgrade": _DEPLOY,
    "rollback": _DEPLOY,
    "start": _ASK,
    "stop": _ASK,
    "drain": _ASK,
    "status": _ASK,
    "logs": (run.grants_to_read_log_lines,),
    "checkpoint": (read.grants_to_read_checkpoints, read.grants_to_write_checkpoints),
    "replay": (*_ONCE, read.grants_to_write_checkpoints),
    "bench": (*_ONCE, read.grants_to_read_checkpoints, read.grants_to_write_checkpoints),
    "backfill": (*_ONCE, read.grants_to_read_catalog_tables, read.grants_to_read_table_files),
    "erase": (read.grants_to_read_checkpoints, read.grants_to_write_checkpoints),
    "audit": (
        *(
            read.grants_to_read_catalog_tables,
            read.grants_to_read_table_files,
            read.grants_to_read_checkpoints,
        ),
        *(read.grants_to_read_streams, read.grants_to_read_topics, run.grants_to_read_metrics),
    ),
    "split": (read.grants_to_read_topics,),
    "schema": (read.grants_to_read_catalog_tables, read.grants_to_read_table_metadata),
    "history": (read.grants_to_read_event_logs,),
    "cost": (read.grants_to_read_costs,),
}

ROLES: dict[str, tuple[str, ...]] = {
    "deployer": ("preflight", "deploy", "upgrade", "rollback", "start", "status"),
    "operator": (
        *("status", "start", "stop", "drain", "logs", "checkpoint", "replay", "bench", "backfill", "erase"),
        *("audit", "split", "schema", "history", "cost"),
    ),
}
"""Commands of each role; ``verify`` deploys a copy of its own and has no policy here."""


def iam_json_statement(grant: Grant) -> dict[str, Any]:
    """Write a grant as a statement of IAM's JSON."""
    document: dict[str, Any] = {
        "Sid": grant.sid,
        "Effect": grant.effect,
        "Action": list(grant.actions),
        "Resource": list(grant.resources),
    }
    return document | ({"Condition": dict(grant.conditions)} if grant.conditions else {})


def grants_of_command(scope: PermissionScope, command: str) -> list[Grant]:
    """Return the grants that one command needs, in a fixed order, without those that would be for no resource.

    Raises
    ------
    KeyError
        No policy contains that command.
    """
    return [grant for part in _PARTS[command] for grant in part(scope) if grant.resources]


def policy_documents_of_role(scope: PermissionScope, role: str) -> list[dict[str, Any]]:
    """Write the policies of ``deployer`` or ``operator``, none longer than IAM allows.

    Returns
    -------
    list of dict
        Policy documents, usually one or two.
    """
    # Several commands may need the same statement, such as that of a key.
    statements = {
        json.dumps(iam_json_statement(grant)): grant
        for command in ROLES[role]
        for grant in grants_of_command(scope, command)
    }
    shared = split_into_policies(
        list(statements.values()), lambda grant: statement_length(iam_json_statement(grant))
    )
    return [
        {"Version": "2012-10-17", "Statement": [iam_json_statement(grant) for grant in each]}
        for each in shared
    ]
