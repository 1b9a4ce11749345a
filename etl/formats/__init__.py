"""Payload formats: each decodes a payload into columns or gives a reason. One module per kind, imported when a query uses it."""
