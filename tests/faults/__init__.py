"""Faults, thrown at landing from Kinesis; every round holds the table against the producer's ledger.

``python -m tests.faults --help``. Not a part of ``make test``, except for one short round.
"""
