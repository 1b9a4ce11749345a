"""Checks of an environment file: mistakes that one section alone cannot show."""
