"""Records: traffic that is generated, producers, the ledger of what was sent."""
