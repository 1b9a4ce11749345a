"""Models of a query from its log: what a change would bring, with intervals and scores."""
