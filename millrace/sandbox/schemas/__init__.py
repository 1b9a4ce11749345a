"""Schemas without Spark: inferred from samples, DDL, Avro."""

import csv

# Spark's parser of CSV has no limit; Python's default is 131,072 characters of a field.
csv.field_size_limit(2**31 - 1)
