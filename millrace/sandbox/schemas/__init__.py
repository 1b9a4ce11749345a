"""Schemas without Spark: inferred from samples, DDL, Avro."""
