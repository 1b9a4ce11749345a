"""Cost of a plan beside its workers: storage, network, use, shared parts; price lists; and what was billed."""
