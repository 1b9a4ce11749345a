"""Metrics of a running job: measured beside the batches, and sent to outputs that cannot delay them."""
