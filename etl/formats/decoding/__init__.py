"""Around a format: routes, decompression, redaction, tombstones; and what several formats share."""
