"""All pages of an answer of AWS, for every part that asks an account."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def list_all(client: Any, operation: str, key: str, **request: Any) -> Iterator[Any]:
    """Yield the items under a key of all pages of an operation.

    Parameters
    ----------
    client
        A boto3 client.
    operation
        Its method, such as ``list_stacks``.
    key
        Key of the list in each page; a page without it has no items.
    """
    for page in client.get_paginator(operation).paginate(**request):
        yield from page.get(key, ())
