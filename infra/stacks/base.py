"""Base of all stacks of an environment: account, region, name, tags, exports."""

from __future__ import annotations

from aws_cdk import DefaultStackSynthesizer, Fn, Stack, Tags, Token
from aws_cdk import Environment as CdkEnvironment
from constructs import Construct

from millrace.config.aws.resource_names import Names

TAGGED_FOR_GOOD = ("AWS::Kinesis::StreamConsumer", "AWS::MSK::ServerlessCluster")
"""Types whose tags CloudFormation cannot change: it would replace the resources, whose names are in use."""


class EnvironmentStack(Stack):
    """A stack with its environment's account, region, name and tags.

    Parameters
    ----------
    names
        The deployed names; the stack's id and name are ``names.stack(part)``.
    part
        Which part of the environment it holds, such as ``storage``.
    stateful
        Whether it holds data. Such a stack is protected from termination unless the
        environment says ``removal: destroy``.
    description
        One sentence for the console.
    """

    def __init__(
        self, scope: Construct, *, names: Names, part: str, stateful: bool, description: str
    ) -> None:
        environment = names.environment
        name = names.stack(part)
        super().__init__(
            scope,
            name,
            stack_name=name,
            description=description,
            env=CdkEnvironment(account=names.account, region=environment.region),
            # Assets and roles of the bootstrap stack are found by this name. Each stack's assets lie below its own
            # prefix, so that a job's role can be limited to what was ever deployed with its job: an executor that
            # joins a run after the next deployment loads the files of the run's start.
            synthesizer=DefaultStackSynthesizer(
                qualifier=environment.governance.qualifier, bucket_prefix=f"{name}/"
            ),
            # A third of a template with many alarms is its indentation, and CloudFormation takes 1 MB ("Quotas").
            suppress_template_indentation=True,
            termination_protection=stateful and environment.removal != "destroy",
        )
        self.names = names
        for key, value in environment.tags.items():
            Tags.of(self).add(key, value, exclude_resource_types=list(TAGGED_FOR_GOOD))
        # They are also part of every name: they never change on a resource.
        Tags.of(self).add("millrace:project", environment.project)
        Tags.of(self).add("millrace:environment", environment.name)

    def export_permanently(self, *values: str) -> None:
        """Export values permanently, whether another stack of this synthesis imports them or not.

        CDK exports a value while something in the app imports it. When the last importer is removed from the
        file, its stack is still deployed, and CloudFormation refuses to delete the export
        (docs/design/stacks.md#exports-that-stay). Values of existing resources are literals and need no export.
        """
        for value in values:
            if Token.is_unresolved(value):
                self.export_value(value)

    @property
    def availability_zones(self) -> list[str]:
        """The region's zones as the account sees them, found by CloudFormation.

        CDK would ask the account during synthesis, which needs no credentials here.
        """
        return [Fn.select(index, Fn.get_azs()) for index in range(self.names.environment.zone_count)]
