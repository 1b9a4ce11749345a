"""Kinesis streams: their settings, reading, shards, and the guard of what connectors may leave behind."""
