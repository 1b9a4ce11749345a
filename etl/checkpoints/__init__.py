"""What a checkpoint holds, and whether a version of a query may go on from it."""
