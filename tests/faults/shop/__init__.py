"""Orders and payments of a shop: records of the deployed rounds, and the transforms of their queries.

The folder travels to the job as ``pipelines/shop``.
"""
