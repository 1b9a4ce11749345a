"""A software bill of materials in the CycloneDX format, with every pinned part."""

from __future__ import annotations

import base64
from pathlib import Path

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL

from tests.supply.pinned_parts import Part, parts


def bill(root: Path, version: str) -> str:
    """Write the bill as JSON.

    Parameters
    ----------
    root
        The repository's.
    version
        Of what is described.
    """
    bom = Bom()
    project = Component(name="millrace", version=version, type=ComponentType.APPLICATION)
    bom.metadata.component = project
    merged: dict[str, list[Part]] = {}
    for part in parts(root):
        merged.setdefault(part.purl, []).append(part)
    for purl, same in merged.items():
        bom.components.add(_component(purl, same))
    bom.register_dependency(project, bom.components)
    return str(make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_4).output_as_string(indent=1))


def _component(purl: str, same: list[Part]) -> Component:
    first = same[0]
    group, _, name = first.name.rpartition(":")
    hashes = [
        HashType(alg=HashAlgorithm.SHA_256, content=each)
        for each in sorted({h for p in same for h in p.hashes})
    ]
    algorithm, _, digest = first.integrity.partition("-")
    if algorithm == "sha512":
        hashes.append(HashType(alg=HashAlgorithm.SHA_512, content=base64.b64decode(digest).hex()))
    return Component(
        name=name,
        group=group or None,
        version=first.version,
        type=ComponentType.LIBRARY,
        purl=PackageURL.from_string(purl),
        bom_ref=purl,
        # Of a Python package a lock names every file that may be installed; which one is, goes by the machine.
        hashes=hashes,
        properties=[Property(name="millrace:lock", value=part.file) for part in same],
    )
