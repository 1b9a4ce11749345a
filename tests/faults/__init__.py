"""Fault tests of landing from Kinesis; every round compares the table with the producer's ledger.

``python -m tests.faults --help``. Not a part of ``make test``, except for one short round.
"""
