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
    return RemovalPolicy.DESTROY if environment.removal == "destroy" else RemovalPolicy.RETAIN
