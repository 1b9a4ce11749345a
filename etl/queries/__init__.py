"""Land, direct and derive: one handler for each kind of query, and what they are made of."""
