"""What keeps tables quick and small over months: compaction, expiry, retention."""
