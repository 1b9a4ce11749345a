"""Removal policies of resources that hold data."""

from __future__ import annotations

from aws_cdk import RemovalPolicy

from millrace.config.model import Environment


def removal_policy(environment: Environment, *, disposable: bool) -> RemovalPolicy:
    """Return the removal policy of a resource that holds data.

    Parameters
    ----------
    environment
        ``removal`` is the first of two switches for deletion.
    disposable
        The resource's own mark, the second switch: a mistake in one place deletes nothing.

    Returns
    -------
    aws_cdk.RemovalPolicy
        ``DESTROY`` with both switches, else the resource is kept.
    """
    if environment.removal == "destroy" and disposable:
        return RemovalPolicy.DESTROY
    # A first deployment that fails deletes its own resources, which are still empty: if they were kept,
    # their names would block the next attempt.
    return RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE


def is_disposable(environment: Environment, *kinds: str) -> bool:
    """Tell whether ``storage.disposable`` marks all of these."""
    return set(kinds) <= set(environment.storage.disposable)
