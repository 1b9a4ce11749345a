"""Lake Formation: each job's role gets the grants that it needs, and none where the file asks for none."""

from __future__ import annotations

from typing import Any

import boto3
import pytest

from millrace.config import load
from tests.template.conftest import ROOT, Synthesis, Synthesise
from tests.template.test_existing_resources import everything_exists

GRANT = "AWS::LakeFormation::PrincipalPermissions"


def granted(found: Synthesis, job: str) -> list[dict[str, Any]]:
    return [r["Properties"] for r in found.resources(GRANT, f"job-{job}").values()]


def test_nothing_is_granted_where_iam_decides(each: Synthesis) -> None:
    assert each.resources(GRANT) == {}


@pytest.mark.parametrize("asked", ["tables", "tables-and-location"])
def test_a_job_is_granted_the_database_its_tables_and_each_given_one(
    synthesise: Synthesise, asked: str
) -> None:
    environment = everything_exists(load("prod", root=ROOT))
    storage = environment.storage.model_copy(update={"lake_formation": asked})
    result = synthesise(environment.model_copy(update={"storage": storage}))
    model = boto3.client("lakeformation", region_name="us-east-1").meta.service_model
    known = set(model.shape_for("Permission").enum)
    catalog = {"CatalogId": result.names.account}
    read, written = {"DESCRIBE", "SELECT"}, {"ALTER", "DELETE", "DESCRIBE", "INSERT", "SELECT"}
    expected = [
        ({"Database": {**catalog, "Name": "company_streaming"}}, {"CREATE_TABLE", "DESCRIBE"}),
        ({"Table": {**catalog, "DatabaseName": "company_streaming", "TableWildcard": {}}}, written),
    ]
    if asked == "tables-and-location":
        resource = f"arn:aws:s3:::{result.names.bucket('lake')}"
        expected.append(({"DataLocation": {**catalog, "ResourceArn": resource}}, {"DATA_LOCATION_ACCESS"}))
    given = ({"Table": {**catalog, "DatabaseName": "reference", "Name": "carriers"}}, read)
    reading = set()
    for job, section in result.environment.jobs.items():
        grants = granted(result, job)
        assert all(set(each["Permissions"]) <= known for each in grants)
        principals = [each["Principal"]["DataLakePrincipalIdentifier"] for each in grants]
        assert all(each == principals[0] for each in principals)
        if section.role is not None:
            assert principals[0] == section.role
        else:
            assert "Fn::GetAtt" in principals[0]
        on = [(each["Resource"], set(each["Permissions"])) for each in grants]
        if given in on:
            on.remove(given)
            reading.add(job)
        assert len(on) == len(expected)
        assert all(each in expected for each in on)
    assert reading, "a job that reads a table of others"
