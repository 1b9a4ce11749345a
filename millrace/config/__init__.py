"""Environment files: the model, its checks, its JSON Schema."""

from millrace.config.load import environments, find_root, load
from millrace.config.model import Environment
from millrace.config.names import Names
from millrace.config.problems import ConfigurationError, Finding, Problem

__all__ = [
    "ConfigurationError",
    "Environment",
    "Finding",
    "Names",
    "Problem",
    "environments",
    "find_root",
    "load",
]
