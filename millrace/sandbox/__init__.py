"""Sandbox on one machine: LocalStack, Kafka, Spark, traffic and the ledger that checks them."""
