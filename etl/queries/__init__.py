"""Land, direct and derive: one handler for each kind of query, and their common parts."""
