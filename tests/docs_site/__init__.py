"""Builds the documentation site: generated pages and hooks for MkDocs."""
