"""Lake Formation grants of a job, for databases in which IAM alone is not enough.

Sources: "Lake Formation permissions reference" and "Implicit Lake Formation permissions" (Lake Formation developer
guide): the creator of a table has every permission on it; all others, also the job's next role, need grants.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aws_cdk import aws_lakeformation as lake

from ..stacks.job_base import JobStack

_READ = ("DESCRIBE", "SELECT")
_WRITE = ("ALTER", "DELETE", "DESCRIBE", "INSERT", "SELECT")


def add_lake_formation_grants(stack: JobStack) -> None:
    """Grant a job's role its access to the environment's database and to each existing table that it reads.

    No grant names the job's own tables: most do not exist before the job's first start, and Lake Formation grants nothing
    on a table that does not exist. The grant is on all tables of the database, and IAM narrows it to the job's own.

    Parameters
    ----------
    stack
        The job's stack, with its role.
    """
    names = stack.names
    where = {"catalog_id": names.account}
    of = lake.CfnPrincipalPermissions
    database = of.DatabaseResourceProperty(**where, name=names.database)
    _add_lake_formation_grant(stack, "LakeDatabase", {"database": database}, ("CREATE_TABLE", "DESCRIBE"))
    tables = of.TableResourceProperty(**where, database_name=names.database, table_wildcard={})
    _add_lake_formation_grant(stack, "LakeTables", {"table": tables}, _WRITE)
    for name in stack.permissions.existing_tables_read:
        table = of.TableResourceProperty(**where, database_name=name.database, name=name.table)
        _add_lake_formation_grant(stack, f"Lake-{name.database}-{name.table}", {"table": table}, _READ)
    if names.environment.storage.lake_formation == "tables-and-location":
        location = of.DataLocationResourceProperty(**where, resource_arn=names.bucket_arn("lake"))
        _add_lake_formation_grant(
            stack, "LakeLocation", {"data_location": location}, ("DATA_LOCATION_ACCESS",)
        )


def _add_lake_formation_grant(
    stack: JobStack, name: str, on: Mapping[str, Any], permissions: Sequence[str]
) -> None:
    of = lake.CfnPrincipalPermissions
    of(
        stack,
        name,
        principal=of.DataLakePrincipalProperty(data_lake_principal_identifier=stack.role.role_arn),
        resource=of.ResourceProperty(**on),
        permissions=list(permissions),
        permissions_with_grant_option=[],
    )
