"""Availability Zones, by the ids that are the same in every account, in which a service has subnets."""

from __future__ import annotations

from datetime import date

AS_OF = date(2026, 11, 23)
"""When :data:`EMR_SERVERLESS` was read."""

EMR_SERVERLESS = {
    "us-east-1": ("use1-az1", "use1-az2", "use1-az4", "use1-az5", "use1-az6"),
    "us-east-2": ("use2-az1", "use2-az2", "use2-az3"),
}
"""By region, the zones to which EMR Serverless says it is limited (its user guide, "Endpoints and quotas").

Of other regions the list is not known here, and of MSK, Glue and Fargate none at all: MSK names the zones that it
refuses only in its answer to a new cluster (MSK developer guide, "Creating a cluster").
"""
