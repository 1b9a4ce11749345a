"""Verification of an environment's set-up on a small copy: deployed, fed, killed, resharded, compared with a ledger, removed."""
