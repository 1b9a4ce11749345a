"""Environment files: the model, its checks, its JSON Schema."""

from millrace.config.aws.resource_names import Names
from millrace.config.document.problems import ConfigurationError, Finding, Problem
from millrace.config.load import environment_names, find_root, load
from millrace.config.model import Environment

__all__ = [
    "ConfigurationError",
    "Environment",
    "Finding",
    "Names",
    "Problem",
    "environment_names",
    "find_root",
    "load",
]
