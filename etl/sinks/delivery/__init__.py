"""Behind the sinks: what proves that a batch was written, rows in the form of a service, connections."""
