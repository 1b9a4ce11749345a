"""Pages in a real browser, without a network."""
