"""Protobuf without a library: its wire format, and the descriptor files that configuration checks and the core decodes by."""
