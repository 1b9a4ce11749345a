"""AWS and other servers beside Spark: clients, waits, secrets, questions at a start."""
