"""What happens to data when its resource leaves a stack."""

from __future__ import annotations

from aws_cdk import RemovalPolicy

from millrace.config.model import Environment


def removal_policy(environment: Environment, *, disposable: bool) -> RemovalPolicy:
    """Return what becomes of a resource that holds data.

    Parameters
    ----------
    environment
        Its ``removal`` is the first of two keys to destruction.
    disposable
        The resource's own mark, the second key: a slip in one place deletes nothing.

    Returns
    -------
    aws_cdk.RemovalPolicy
        ``DESTROY`` with both keys, else it survives.
    """
    if environment.removal == "destroy" and disposable:
        return RemovalPolicy.DESTROY
    # A first deployment that fails takes its own, still empty, resources away again: kept, their
    # names would block the next attempt.
    return RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE


def is_disposable(environment: Environment, *kinds: str) -> bool:
    """Tell whether ``storage.disposable`` marks all of these."""
    return set(kinds) <= set(environment.storage.disposable)
