"""What it takes: capacity, shards, workers, limits and cost, as pure functions."""
