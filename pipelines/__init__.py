"""Yours: the transforms and schemas that jobs name."""
