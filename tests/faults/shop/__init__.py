"""A shop's orders and payments: what the deployed rounds send, and the transforms that their queries name.

The folder travels to the job as ``pipelines/shop``.
"""
