"""Kafka topics: their settings, signing in, reading, shared topics, odd records, offsets of consumer groups."""
