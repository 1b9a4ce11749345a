"""OpenSearch: an index of a domain."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from millrace.config.aws.iam_statements import Grant, allow
from millrace.config.base import arn_region_account_resource
from millrace.config.document.problems import Finding
from millrace.config.sinks.base import SinkConfig, SinkContext, SinkUse
from millrace.etl.launch import sinks as launch

DomainArn = Annotated[
    str, StringConstraints(pattern=r"^arn:aws[a-z-]*:es:[a-z0-9-]+:[0-9]{12}:domain/[a-z][a-z0-9-]{2,27}$")
]

_ENDPOINT = (
    r"https://(search|vpc)-(?P<rest>[a-z0-9-]+)\.(?P<region>[a-z0-9-]+)\.es\.amazonaws\.com(\.cn)?(:[0-9]+)?"
)
"""Endpoints as AWS names them (OpenSearch Service developer guide, "Creating a domain"); a custom one may have any name."""


class OpenSearchSink(SinkConfig):
    """An index of an OpenSearch domain, with the identity as the document's id."""

    named_by = "index"
    in_python = True
    not_in_sandbox = "LocalStack fetches its OpenSearch from the internet at the first call"

    kind: Literal["opensearch"]
    domain: DomainArn = Field(
        description="ARN of the domain, which must exist.",
        examples=["arn:aws:es:us-east-1:111122223333:domain/shop"],
    )
    endpoint: str = Field(
        pattern=r"^https://[A-Za-z0-9.-]+(:[0-9]{1,5})?$",
        description="The domain's endpoint.",
        examples=["https://search-shop.us-east-1.es.amazonaws.com"],
    )
    index: str = Field(
        pattern=r"^[a-z0-9][a-z0-9_.-]{0,200}$",
        description="Name of the index, which must exist, with its mapping.",
        examples=["clicks"],
    )

    @property
    def target_key_and_name(self) -> tuple[str, str]:
        """Key ``index``, and endpoint with index."""
        return self.named_by, f"https://{launch.canonical_server(self.endpoint, 443)}/{self.index}"

    def check(self, use: SinkUse) -> Iterator[Finding]:
        """Compare the endpoint with the domain, if AWS named the endpoint."""
        region, _, name = arn_region_account_resource(self.domain)
        name = name.removeprefix("domain/")
        match = re.fullmatch(_ENDPOINT, self.endpoint)
        if match is not None and match["region"] != region:
            yield Finding(
                (*use.path, "endpoint"),
                self.endpoint,
                f"an endpoint in {region}, the region of {self.domain}",
            )
        elif match is not None and not f"{match['rest']}-".startswith(f"{name}-"):
            yield Finding(
                (*use.path, "endpoint"),
                self.endpoint,
                f"the endpoint of {self.domain}: https://search-{name}-… or https://vpc-{name}-…",
            )

    def manual_erasure_steps(self, where: str, context: SinkContext) -> str:
        """Return a request; its query is not SQL."""
        return (
            f'POST {self.endpoint}/{self.index}/_delete_by_query {{"query": {{"term": {{FIELD: VALUE}}}}}} for {where}, '
            f"then POST {self.endpoint}/{self.index}/_forcemerge?only_expunge_deletes=true; snapshots keep them"
        )

    def launch_settings(self, context: SinkContext) -> launch.OpenSearchSinkSettings:
        """Return the index, and the region for signed requests."""
        region = arn_region_account_resource(self.domain)[0]
        return launch.OpenSearchSinkSettings(endpoint=self.endpoint, index=self.index, region=region)

    def grants(self, context: SinkContext) -> Iterator[Grant]:
        """Allow sending documents to the index, and checking that it exists."""
        if context.deletes:
            # With latest_by a document's order is read before it is replaced or deleted.
            yield allow("CompareDocuments", ["es:ESHttpPost"], [f"{self.domain}/{self.index}/_mget"])
        yield allow("WriteDocuments", ["es:ESHttpPost"], [f"{self.domain}/{self.index}/_bulk"])
        yield allow("FindIndexes", ["es:ESHttpHead"], [f"{self.domain}/{self.index}"])
