"""Functions by which `millrace import` recognises a query with other rows: those of Spark's own registry."""

from __future__ import annotations

from pyspark.sql import SparkSession

from millrace.advisor.programs.library_functions import may_reshape


def test_all_aggregates_and_generators_of_spark_are_known(spark: SparkSession) -> None:
    registry = spark._jsparkSession.sessionState().functionRegistry()
    names = registry.listFunction().iterator()
    group_by_name = {}
    while names.hasNext():
        about = registry.lookupFunction(names.next()).get()
        group_by_name[about.getName()] = about.getGroup()
    reshaping = {name for name, group in group_by_name.items() if group in ("agg_funcs", "generator_funcs")}
    assert len(reshaping) > 60
    assert not [name for name in reshaping if not may_reshape(name, [])]
    others = [name for name in group_by_name.keys() - reshaping if may_reshape(name, [])]
    assert set(others) <= {"window", "schema_of_variant_agg"}
