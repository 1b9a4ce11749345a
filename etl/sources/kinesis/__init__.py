"""Kinesis streams: settings, reading, shards, and the guard against records that connectors miss."""
