"""Fill of the pull-through cache of the history server's image: requests to the account's registry, as of ``docker pull``.

ECR copies an image from the public gallery when a client with internet access requests it the first time (ECR user
guide, "Sync an upstream registry with an Amazon ECR private registry"). The requests are those of the registry's HTTP
API (distribution specification, "Pull"): the manifest, then each of its blobs. The received data is discarded.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from millrace.lifecycle.problems import AwsError, translate_aws_errors

_TYPES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_CHUNK = 1024 * 1024
_SECONDS = 60.0


Open = Callable[[urllib.request.Request], AbstractContextManager[Any]]
"""Opens an address; the result is read like a file."""


def open_url(request: urllib.request.Request) -> AbstractContextManager[Any]:
    """Open an HTTPS address; redirections are followed, such as those to the layers in S3."""
    return urllib.request.urlopen(request, timeout=_SECONDS)  # type: ignore[no-any-return]  # noqa: S310 - https, written here


@dataclass(frozen=True)
class Registry:
    """A registry of images.

    Attributes
    ----------
    host
        Such as ``111122223333.dkr.ecr.us-east-1.amazonaws.com``.
    authorization
        The header's value.
    """

    host: str
    authorization: str
    fetch: Open = open_url

    def manifest(self, repository: str, reference: str) -> dict[str, Any]:
        """Read a manifest, or a list of manifests for several platforms.

        Raises
        ------
        OSError
            The registry refuses or cannot be reached.
        """
        path = f"{repository}/manifests/{reference}"
        with self.fetch(self._request(path, {"Accept": ", ".join(_TYPES)})) as answer:
            found: dict[str, Any] = json.loads(answer.read())
            return found

    def blob(self, repository: str, digest: str) -> int:
        """Read a blob without keeping it; return its size in bytes.

        Raises
        ------
        OSError
            The registry refuses or cannot be reached.
        """
        size = 0
        with self.fetch(self._request(f"{repository}/blobs/{digest}", {})) as answer:
            while part := answer.read(_CHUNK):
                size += len(part)
        return size

    def _request(self, path: str, headers: Mapping[str, str]) -> urllib.request.Request:
        request = urllib.request.Request(f"https://{self.host}/v2/{path}", headers=dict(headers))
        # Not sent to the address of a layer: S3 refuses a request with two signatures.
        request.add_unredirected_header("Authorization", self.authorization)
        return request


def public_gallery(repository: str, fetch: Open = open_url) -> Registry:
    """Return the public gallery, which gives everybody a token.

    Raises
    ------
    OSError
        The gallery cannot be reached.
    """
    address = f"https://public.ecr.aws/token/?service=public.ecr.aws&scope=repository:{repository}:pull"
    with fetch(urllib.request.Request(address)) as answer:
        token = json.loads(answer.read())["token"]
    return Registry("public.ecr.aws", f"Bearer {token}", fetch)


def account_registry(ecr: Any, host: str, fetch: Open = open_url) -> Registry:
    """Return the account's registry, with the caller's credentials.

    Raises
    ------
    AwsError
        ECR gives no token.
    """
    with translate_aws_errors("signing in to the account's registry"):
        token = ecr.get_authorization_token()["authorizationData"][0]["authorizationToken"]
    return Registry(host, f"Basic {token}", fetch)


def pull_image(registry: Registry, repository: str, tag: str, say: Callable[[str], None]) -> int:
    """Request an image of linux/amd64 and all of its blobs.

    Returns
    -------
    int
        Bytes of the blobs.

    Raises
    ------
    AwsError
        The registry refuses or cannot be reached.
    """
    try:
        say("manifest")
        found = registry.manifest(repository, tag)
        if "manifests" in found:
            found = registry.manifest(repository, _platform(found))
        blobs = list(_blobs(found))
        size = 0
        for number, digest in enumerate(blobs, start=1):
            say(f"layer {number} of {len(blobs)}")
            size += registry.blob(repository, digest)
    except urllib.error.HTTPError as error:
        why = error.read(500).decode(errors="replace")
        raise AwsError(f"the registry answers {error.code} to {error.url}: {why}") from error
    except (OSError, ValueError, KeyError) as error:
        raise AwsError(f"pulling {repository}:{tag}: {error!r}") from error
    return size


def _platform(index: Mapping[str, Any]) -> str:
    """Return the digest of the manifest for Fargate's platform, which is the task definition's default."""
    for each in index["manifests"]:
        platform = each.get("platform", {})
        if (platform.get("os"), platform.get("architecture")) == ("linux", "amd64"):
            return str(each["digest"])
    raise ValueError("no manifest for linux/amd64")


def _blobs(manifest: Mapping[str, Any]) -> Iterator[str]:
    yield manifest["config"]["digest"]
    yield from dict.fromkeys(layer["digest"] for layer in manifest["layers"])
