"""Programs that the sandbox installs and starts: LocalStack, Kafka, Spark, the history server."""
