"""What a checkpoint holds, and whether a version of a query may continue from it."""
