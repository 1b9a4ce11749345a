"""Databases of Lake Formation: each job's role is granted what it needs, and nothing where nobody asked."""

from __future__ import annotations

from typing import Any

import boto3
import pytest

from tests.template.conftest import Synthesis, Synthesise

GRANT = "AWS::LakeFormation::PrincipalPermissions"


def granted(found: Synthesis, job: str) -> list[dict[str, Any]]:
    return [r["Properties"] for r in found.resources(GRANT, f"job-{job}").values()]


def test_nothing_is_granted_where_iam_decides(each: Synthesis) -> None:
    assert each.resources(GRANT) == {}


@pytest.mark.parametrize("asked", ["tables", "tables-and-location"])
def test_a_job_is_granted_the_database_its_tables_and_each_given_one(
    synthesise: Synthesise, prod: Synthesis, asked: str
) -> None:
    storage = prod.environment.storage.model_copy(update={"lake_formation": asked})
    found = synthesise(prod.environment.model_copy(update={"storage": storage}))
    known = set(
        boto3.client("lakeformation", region_name="us-east-1").meta.service_model.shape_for("Permission").enum
    )
    account, database = found.names.account, found.names.database
    for job in found.environment.jobs:
        (role,) = {str(each["Principal"]) for each in granted(found, job)}
        assert "Role" in role
        on = {str(each["Resource"]): set(each["Permissions"]) for each in granted(found, job)}
        assert all(permissions <= known for permissions in on.values())
        assert on.pop(str({"Database": {"CatalogId": account, "Name": database}})) == {
            "CREATE_TABLE",
            "DESCRIBE",
        }
        tables = {"CatalogId": account, "DatabaseName": database, "TableWildcard": {}}
        assert on.pop(str({"Table": tables})) == {"ALTER", "DELETE", "DESCRIBE", "INSERT", "SELECT"}
        if asked == "tables-and-location":
            (location,) = [each for each in on if "DataLocation" in each]
            assert found.names.bucket("lake") in location
            assert on.pop(location) == {"DATA_LOCATION_ACCESS"}
        given = {
            e.table for e in found.environment.tables.values() if any(f"'{e.table}'" in each for each in on)
        }
        assert len(on) == len(given), "one for each table of others that the job reads"
        assert all(permissions == {"DESCRIBE", "SELECT"} for permissions in on.values())
    assert any(e for e in found.environment.tables), "an environment with a table of others"
