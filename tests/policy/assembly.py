"""Cloud assemblies that the CDK app writes, read as files."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millrace.config import Environment, Names, load
from millrace.sandbox.programs.localstack import ACCOUNT
from millrace.sandbox.programs.toolchain import ROOT, node_bin_folder

Template = dict[str, Any]
_SUFFIX = ".template.json"


@dataclass(frozen=True)
class Assembly:
    """One environment's cloud assembly.

    Attributes
    ----------
    environment
        Its configuration.
    account
        The account for which it was written.
    folder
        Where it lies.
    """

    environment: Environment
    account: str
    folder: Path

    @property
    def names(self) -> Names:
        """The environment's deployed names."""
        return Names(self.environment, self.account)

    @functools.cached_property
    def templates(self) -> dict[str, Template]:
        """Templates by the part of the environment, such as ``storage`` or ``job-flights``."""
        return {
            file.name.removeprefix(f"{self.names.prefix}-").removesuffix(_SUFFIX): json.loads(
                file.read_text()
            )
            for file in sorted(self.folder.glob(f"*{_SUFFIX}"))
        }

    @functools.cached_property
    def manifest(self) -> dict[str, Any]:
        """The manifest."""
        return dict(json.loads((self.folder / "manifest.json").read_text()))

    def template_file(self, part: str) -> Path:
        """Where a part's template lies."""
        return self.folder / f"{self.names.prefix}-{part}{_SUFFIX}"

    def construct(self, part: str, logical_id: str) -> str:
        """Give a resource's construct path below the environment, such as ``storage/Lake``.

        Falls back to the part and the logical id where CDK wrote no path down.
        """
        path = self._paths.get((part, logical_id), f"/{self.names.prefix}-{part}/{logical_id}")
        path = path.removeprefix(f"/{self.names.prefix}-")
        return re.sub(r"/(Resource|Default)$", "", path)

    @functools.cached_property
    def _paths(self) -> dict[tuple[str, str], str]:
        return {
            (part, entry["data"]): path
            for part in self.templates
            for path, entries in json.loads(self._metadata_file(part).read_text()).items()
            for entry in entries
            if entry["type"] == "aws:cdk:logicalId"
        }

    def _metadata_file(self, part: str) -> Path:
        return self.folder / f"{self.names.prefix}-{part}.metadata.json"


class SynthesisError(RuntimeError):
    """The app refused an environment."""


def synthesise(name: str, folder: Path, file: Path | None = None) -> Assembly:
    """Write one environment's assembly, as ``cdk synth`` would, in this process.

    The first call takes some seconds, which go into CDK's libraries; the next ones do not.
    An environment without an account is written for LocalStack's.

    Parameters
    ----------
    name
        Of an environment of the repository.
    folder
        Takes the assembly; what was there goes.
    file
        An environment's file in the place of that.

    Raises
    ------
    SynthesisError
        The app could not build it. Findings of the rule packs are no reason: they stand in
        the assembly's validation report.
    """
    if not os.environ["PATH"].startswith(str(node_bin_folder())):
        os.environ["PATH"] = f"{node_bin_folder()}{os.pathsep}{os.environ['PATH']}"
    os.environ.setdefault("CDK_DEFAULT_ACCOUNT", ACCOUNT)
    from aws_cdk import App  # looks for Node when it is imported

    from millrace.infra import app

    context = json.loads((ROOT / "cdk.json").read_text())["context"]
    shutil.rmtree(folder, ignore_errors=True)
    status = app.synthesise_and_return_status(
        App(outdir=str(folder), context=context | {"env": str(file or name)}, analytics_reporting=False)
    )
    if status not in (0, 1) or not (folder / "manifest.json").exists():
        raise SynthesisError(f"environment {name} was not synthesised: the app ended with status {status}")
    environment = load(str(file or name), root=ROOT)
    return Assembly(environment=environment, account=app.account_of_environment(environment), folder=folder)
