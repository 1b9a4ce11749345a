"""Removal of what a verification created."""
