"""The history server's image, in a stack that is deployed before the server's own."""

from __future__ import annotations

from aws_cdk import CfnOutput
from constructs import Construct

from millrace.config.aws.resource_names import Names

from ..constructs.history_image_pull_through_cache import PullThroughCachedImage
from .base import EnvironmentStack


class HistoryServerImageStack(EnvironmentStack):
    """The pull-through cache of an environment that names no image of its own.

    A service whose tasks find no image fails, and its stack is rolled back. With the cache in that
    stack, nothing would be left to pull into (docs/history-server.md).

    Attributes
    ----------
    image
        The private copy; empty until somebody, or a task with internet access, has pulled it once.
    """

    def __init__(self, scope: Construct, *, names: Names) -> None:
        super().__init__(
            scope,
            names=names,
            part="history-image",
            stateful=False,
            description=f"Image of the Spark history server of {names.prefix}",
        )
        self.image = PullThroughCachedImage(self, "Image", names=names)
        CfnOutput(
            self,
            "ImageUri",
            value=self.image.uri,
            description="Filled by the first pull; see docs/history-server.md",
        )
