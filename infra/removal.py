"""What happens to data when its resource leaves a stack."""

from __future__ import annotations

from aws_cdk import RemovalPolicy

from millrace.config.model import Environment


def removal_policy(environment: Environment) -> RemovalPolicy:
    """Return what becomes of a resource that holds data.

    It survives, unless the environment says ``removal: destroy``. The second key to
    destruction is each resource's own: a bucket refuses to go while anything is in it,
    a key waits thirty days, and a stack is protected from termination.
    """
    if environment.removal == "destroy":
        return RemovalPolicy.DESTROY
    # A first deployment that fails takes its own, still empty, resources away again: kept, their
    # names would block the next attempt.
    return RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE
