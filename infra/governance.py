"""A company's rules, applied to every role of an app, and to the policies beside them."""

from __future__ import annotations

from aws_cdk import aws_iam as iam
from constructs import IConstruct

from millrace.config.model import Environment


def govern(app: IConstruct, environment: Environment) -> None:
    """Give every role that is made its permissions boundary and its path; policies beside it have the path.

    Parameters
    ----------
    app
        With all stacks.
    environment
        Its ``governance`` says which.
    """
    rules = environment.governance
    if rules.permissions_boundary is None and rules.role_path == "/":
        return
    for construct in app.node.find_all():
        if isinstance(construct, iam.CfnRole):
            construct.permissions_boundary = rules.permissions_boundary
        if isinstance(construct, iam.CfnRole | iam.CfnManagedPolicy) and rules.role_path != "/":
            construct.path = rules.role_path
