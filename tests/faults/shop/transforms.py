"""Transforms of the shop: plain functions from DataFrame to DataFrame."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from millrace.etl.queries.stateful import JOINED_ID
from millrace.etl.record.envelope import CARRIED


def with_tax(orders: DataFrame) -> DataFrame:
    """Leave out what is free, and add a fifth as ``tax``."""
    return orders.where("amount > 0").select(
        *CARRIED, "n", "purchase", "amount", (F.col("amount") / 5).alias("tax")
    )


def sold(orders: DataFrame) -> DataFrame:
    """Count orders of each item and add up their amounts, in windows of ten minutes."""
    grouped = orders.groupBy(F.window("at", "10 minutes"), "item")
    sums = grouped.agg(F.count(F.lit(1)).alias("orders"), F.sum("amount").alias("amount"))
    return sums.select(F.col("window.start").alias("since"), "item", "orders", "amount")


def settled(orders: DataFrame, payments: DataFrame) -> DataFrame:
    """Pair each order with every payment of the same purchase within an hour of it."""
    paid = payments.select(
        F.col("purchase").alias("paid_purchase"), "paid", F.col("at").alias("paid_at"), JOINED_ID
    )
    hour = F.expr("INTERVAL 1 HOUR")
    near = F.col("paid_at").between(F.col("at") - hour, F.col("at") + hour)
    pairs = orders.join(paid, (F.col("purchase") == F.col("paid_purchase")) & near)
    return pairs.select(*CARRIED, JOINED_ID, "purchase", "amount", "paid")


def latest(orders: DataFrame) -> DataFrame:
    """Keep of each number the order that arrived last."""
    columns = ("purchase", "item", "amount")
    last = F.max_by(F.struct(*columns), "_arrived_at").alias("last")
    return orders.groupBy("n").agg(last).select("n", *(f"last.{each}" for each in columns))
