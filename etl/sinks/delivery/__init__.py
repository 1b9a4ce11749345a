"""Delivery of batches to sinks: proof that a batch was written, rows in the form of a service, connections."""
