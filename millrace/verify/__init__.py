"""Proves an environment's set-up on a small copy: made, fed, killed, resharded, held against a ledger, removed."""
