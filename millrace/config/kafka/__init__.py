"""Kafka in an environment file: clusters, authentication, options of a reader."""
