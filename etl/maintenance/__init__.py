"""Table maintenance for months of operation: compaction, expiry, retention."""
