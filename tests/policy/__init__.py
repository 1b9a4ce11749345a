"""Findings of scanners and of the project's own rules in the templates of every environment."""
