"""The public image of the history server."""

from __future__ import annotations

PUBLIC_IMAGE = "emr-serverless/spark/emr-7.13.0"
"""Repository in AWS's public gallery: Spark 3.5 with its history server and the jars for S3."""

TAG = "latest"
