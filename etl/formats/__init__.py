"""Payload formats: each decodes a payload into columns, or says why not. One module for each kind, imported when a query has it."""
