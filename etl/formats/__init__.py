"""Payload formats beside JSON, each a decoder of :mod:`etl.decode`'s protocol."""
