"""Synthesise the shop's project: ``python -m tests.faults.synthesise_shop PROJECT ASSEMBLY``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from aws_cdk import App

from millrace.config import Names, load
from millrace.infra.environment_stacks import build_stacks
from millrace.sandbox.programs.localstack import ACCOUNT
from millrace.sandbox.programs.toolchain import ROOT
from millrace.sizing import plan
from tests.faults.shop_project import NAME


def main(folder: Path, assembly: Path) -> None:
    """Write the cloud assembly of the environment, with the archive of its own pipelines."""
    # What the CDK command line would hand over.
    context = json.loads((ROOT / "cdk.json").read_text())["context"]
    app = App(outdir=str(assembly), context=context)
    environment = load(NAME, root=folder)
    build_stacks(app, names=Names(environment, ACCOUNT), plan=plan(environment), root=folder)
    app.synth()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
