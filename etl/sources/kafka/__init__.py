"""Kafka topics: settings, login, reading, shared topics, unreadable records, offsets of consumer groups."""
