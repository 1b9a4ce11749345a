"""A company's rules, applied to every role of an app and to the managed policies beside the roles."""

from __future__ import annotations

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from constructs import Construct

from millrace.config.model import Environment


def apply_company_rules(app: Construct, environment: Environment) -> None:
    """Give every role its permissions boundary and its path; managed policies get the path.

    Parameters
    ----------
    app
        The app, with all stacks.
    environment
        ``governance`` holds the rules.
    """
    rules = environment.governance
    if rules.permissions_boundary is None and rules.role_path == "/":
        return
    for number, construct in enumerate(app.node.find_all()):
        if isinstance(construct, Stack) and rules.permissions_boundary is not None:
            # An aspect of the stack, after CDK's own, which `@aws-cdk/core:permissionsBoundary` adds when a stack is
            # made: that one would override a property of the role.
            boundary = iam.ManagedPolicy.from_managed_policy_arn(
                app, f"Boundary{number}", rules.permissions_boundary
            )
            iam.PermissionsBoundary.of(construct).apply(boundary)
        if isinstance(construct, iam.CfnRole | iam.CfnManagedPolicy) and rules.role_path != "/":
            construct.path = rules.role_path
