"""Findings about a job: each with evidence, change and expected effect."""
