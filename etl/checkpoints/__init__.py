"""Content of a checkpoint, and the check that a version of a query may continue from it."""
