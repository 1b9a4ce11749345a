"""Products of the AWS Price List API for our prices, in one table.

No row was confirmed by an answer of the API itself. Sources: public code that calls the API (infracost, its files below
``internal/resources/aws``, August 2026) for services, usage types, operations and families; for products that infracost does
not price (EMR Serverless, Glue 6.0, sizes of Express brokers) usage types in other public code and bills, as read in
November 2026. Units also come from such code. An answer that fits no row exactly is refused, so a wrong row leaves a price
without an update, but never gives a wrong price.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from millrace.sizing.cost import HOURS


@dataclass(frozen=True)
class PriceProduct:
    """A product of the API for one of our prices.

    Attributes
    ----------
    service
        Service code.
    usage
        The complete usage type after the region's prefix: ``EUW1-Storage-ShardHour`` is ``Storage-ShardHour``.
    units
        Names that AWS may use for the unit, in lower case without hyphens and spaces.
    factor
        Our unit in those of AWS.
    attributes
        More attributes that the product must have.
    tiers
        Whether the price depends on the amount of usage.
    begin
        Start of the tier that we use, in AWS' unit.
    worldwide
        Whether the product has no region.
    """

    service: str
    usage: str
    units: tuple[str, ...]
    factor: float = 1
    attributes: Mapping[str, str] = field(default_factory=dict)
    tiers: bool = False
    begin: float = 0
    worldwide: bool = False


_HOUR = ("hrs", "hr", "hours", "hour")
_GB = ("gb", "gigabytes")
_GB_MONTHS = ("gbmo", "gbmonth", "gbmonths")


def _unit_names_per_hour(*things: str) -> tuple[str, ...]:
    return (*_HOUR, *(f"{thing}{hour}" for thing in things for hour in _HOUR))


def _kinesis_product(usage: str, operation: str, units: tuple[str, ...], factor: float = 1) -> PriceProduct:
    return PriceProduct("AmazonKinesis", usage, units, factor, {"operation": operation})


def _glue_product(usage: str) -> PriceProduct:
    return PriceProduct(
        "AWSGlue", usage, _unit_names_per_hour("dpu", "mdpu", "memorydpu"), attributes={"operation": "Jobrun"}
    )


def _emr_product(usage: str, *things: str) -> PriceProduct:
    return PriceProduct("ElasticMapReduce", f"EMR-SERVERLESS-{usage}", _unit_names_per_hour(*things))


PRODUCTS: Mapping[str, PriceProduct] = MappingProxyType(
    {
        "glue.dpu_hour": _glue_product("ETL-DPU-Hour"),
        "glue.memory_dpu_hour": _glue_product("ETL-MemOptimized-DPU-Hour"),  # a weaker source than the others
        "glue.6.0.dpu_hour": _glue_product("ETL-DPU-Hour-Gen2"),
        "emr.x86_64.vcpu_hour": _emr_product("vCPUHours", "vcpu"),
        "emr.x86_64.gib_hour": _emr_product("MemoryGBHours", "gb", "memorygb"),
        "emr.arm64.vcpu_hour": _emr_product("ARM-vCPUHours", "vcpu"),
        "emr.arm64.gib_hour": _emr_product("ARM-MemoryGBHours", "gb", "memorygb"),
        "emr.disk_gib_hour": _emr_product("StorageGBHours", "gb", "storagegb"),
        "kinesis.shard_hour": _kinesis_product(
            "Storage-ShardHour", "shardHourStorage", _unit_names_per_hour("shard")
        ),
        "kinesis.million_put_units": _kinesis_product(
            "PutRequestPayloadUnits",
            "PutRequest",
            ("putrequest", "putrequests", "payloadunits", "units"),
            1e6,
        ),
        "kinesis.extended_retention_shard_hour": _kinesis_product(
            "Extended-ShardHour", "shardHourStorage", _unit_names_per_hour("shard")
        ),
        "kinesis.long_retention_gb_month": _kinesis_product(
            "LongTermRetention-ByteHrs", "LongTermRetentionByteHrs", _GB_MONTHS
        ),
        "kinesis.fan_out_consumer_shard_hour": _kinesis_product(
            "EnhancedFanoutHour", "ConsumerHour", _unit_names_per_hour("consumershard", "consumer", "shard")
        ),
        "kinesis.fan_out_gb": _kinesis_product("ReadBytes", "EnhancedFanoutDataRetrieval", _GB),
        "kinesis.on_demand.stream_hour": _kinesis_product(
            "OnDemand-StreamHour", "OnDemandStreamHr", _unit_names_per_hour("stream")
        ),
        "kinesis.on_demand.gb_in": _kinesis_product(
            "OnDemand-BilledIncomingBytes", "OnDemandDataIngested", _GB
        ),
        "kinesis.on_demand.gb_out": _kinesis_product(
            "OnDemand-BilledOutgoingBytes", "OnDemandDataRetrieval", _GB
        ),
        "kinesis.on_demand.fan_out_gb": _kinesis_product(
            "OnDemand-BilledOutgoingEFOBytes", "OnDemandEFODataRetrieval", _GB
        ),
        "kinesis.on_demand.extended_retention_gb_month": _kinesis_product(
            "OnDemand-ExtendedRetention-ByteHrs", "OnDemandExtendedRetentionByteHrs", _GB_MONTHS
        ),
        "kinesis.on_demand.long_retention_gb_month": _kinesis_product(
            "OnDemand-LongTermRetention-ByteHrs", "OnDemandLongTermRetentionByteHrs", _GB_MONTHS
        ),
        **{
            f"msk.{tier.lower()}.m7g.{size}_hour": PriceProduct(
                "AmazonMSK", f"{tier}.m7g.{size}", _unit_names_per_hour("broker", "instance")
            )
            for tier in ("Kafka", "Express")
            for size in ("large", "xlarge", "2xlarge", "4xlarge", "8xlarge", "12xlarge", "16xlarge")
        },
        "msk.storage_gb_month": PriceProduct("AmazonMSK", "Kafka.Storage.GP2", _GB_MONTHS),
        "kms.key_month": PriceProduct("awskms", "KMS-Keys", ("keys", "key", "keymonths")),
        "network.endpoint_month": PriceProduct(
            "AmazonVPC", "VpcEndpoint-Hours", _HOUR, HOURS, {"productFamily": "VpcEndpoint"}
        ),
        "network.endpoint_gb": PriceProduct(
            "AmazonVPC", "VpcEndpoint-Bytes", _GB, attributes={"productFamily": "VpcEndpoint"}, tiers=True
        ),
        **{
            f"network.after_{begin}.endpoint_gb": PriceProduct(
                "AmazonVPC",
                "VpcEndpoint-Bytes",
                _GB,
                attributes={"productFamily": "VpcEndpoint"},
                tiers=True,
                begin=begin,
            )
            for begin in (1_000_000, 5_000_000)
        },
        "network.nat_hour": PriceProduct(
            "AmazonEC2", "NatGateway-Hours", _HOUR, attributes={"productFamily": "NAT Gateway"}
        ),
        "network.nat_gb": PriceProduct(
            "AmazonEC2", "NatGateway-Bytes", _GB, attributes={"productFamily": "NAT Gateway"}
        ),
        "network.dns_million_queries": PriceProduct(
            "AmazonRoute53", "DNS-Firewall-Queries", ("queries", "query"), 1e6, tiers=True
        ),
        "network.dns_domain_month": PriceProduct(
            "AmazonRoute53", "DNS-Firewall-Domains", ("domains", "domain")
        ),
        **{
            f"cloudwatch.{name}metric_month": PriceProduct(
                "AmazonCloudWatch", "CW:MetricMonitorUsage", ("metrics",), tiers=True, begin=begin
            )
            for name, begin in (
                ("", 0),
                ("after_10000.", 10_000),
                ("after_250000.", 250_000),
                ("after_1000000.", 1_000_000),
            )
        },
        "cloudwatch.thousand_calls": PriceProduct(
            "AmazonCloudWatch", "CW:Requests", ("requests", "request"), 1000
        ),
        "cloudwatch.alarm_month": PriceProduct(
            "AmazonCloudWatch", "CW:AlarmMonitorUsage", ("alarms",), attributes={"productFamily": "Alarm"}
        ),
        "cloudwatch.dashboard_month": PriceProduct(
            "AmazonCloudWatch",
            "DashboardsUsageHour",
            ("dashboards", "dashboard"),
            worldwide=True,
        ),
        "fargate.vcpu_hour": PriceProduct(
            "AmazonECS", "Fargate-vCPU-Hours:perCPU", _unit_names_per_hour("vcpu")
        ),
        "fargate.gib_hour": PriceProduct("AmazonECS", "Fargate-GB-Hours", _unit_names_per_hour("gb")),
        "alb.hour": PriceProduct(
            "AWSELB",
            "LoadBalancerUsage",
            _unit_names_per_hour("lb", "loadbalancer"),
            attributes={"productFamily": "Load Balancer-Application"},
        ),
        "logs.gb_in": PriceProduct("AmazonCloudWatch", "DataProcessing-Bytes", _GB),
        "s3.thousand_puts": PriceProduct("AmazonS3", "Requests-Tier1", ("requests", "request"), 1000),
        "s3.gb_month": PriceProduct(
            "AmazonS3", "TimedStorage-ByteHrs", _GB_MONTHS, attributes={"volumeType": "Standard"}, tiers=True
        ),
    }
)
"""Products by the name of the price. No public source names a product for prices that are missing here: Express data in,
the throughput of MSK's volumes, Kinesis On-demand Advantage, the memory DPU of Glue 6.0, MSK Serverless.
"""
