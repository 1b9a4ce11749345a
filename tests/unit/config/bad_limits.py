"""Numbers that break a limit; rows as in ``test_bad_configuration.py``."""

STREAM = "streams.clicks"
LAND = "jobs.clicks.queries.land-clicks"
DERIVE = "jobs.clicks.queries.count-clicks"
CLICKS_RATE = "      records_per_second: 800\n"
CLICKS_SIZE = "      record_size: 500B\n"
CLUSTER_KIND = "    kind: msk\n"
LATENCY = "    latency: 60s\n"
RATE = "    rate: {records_per_second_per_core: 5000, batch_overhead: 2s}\n"
LAND_SCHEMA = "        table: clicks_landed\n        schema: pipelines/shop/schemas/click.ddl\n"
SINK = "        sink: {kind: iceberg, table: clicks_counted}\n"
REGION = "region: us-east-1\n"

ROWS = {
    "an SLA that the overhead uses up": (
        LATENCY, "    latency: 4s #!\n", "jobs.clicks.latency", "4s", "more than 8s for", "batch_overhead",
    ),
    "a trigger that the SLA forbids": (
        SINK, SINK + "        trigger: 29s #!\n", f"{DERIVE}.trigger", "29s", "less than 28s", None,
    ),
    "a limit that lets the backlog grow": (
        LAND_SCHEMA, LAND_SCHEMA + "        records_per_batch: 100 #!\n", f"{LAND}.records_per_batch", "100",
        "fewer and the backlog grows", None,
    ),
    "a limit that the SLA makes impossible": (
        LAND_SCHEMA, LAND_SCHEMA + "        records_per_batch: 1000000 #!\n", f"{LAND}.records_per_batch", "1000000",
        "12001 to 54525: more and a full batch takes longer than 15 s", None,
    ),
    "shards below the traffic": (
        CLICKS_RATE + CLICKS_SIZE, "      records_per_second: 1800\n      record_size: 500B\n    shards: 1 #!\n", f"{STREAM}.shards", "1",
        "at least 2: 1,800 records/s in at peak, 1,000 a shard", None,
    ),
    "cores below the work": (
        LATENCY + RATE, LATENCY + "    cores: 1 #!\n" + RATE.replace("5000", "800"), "jobs.clicks.cores", "1", "at least 4", None,
    ),
    "workers below the cores": (
        LATENCY, LATENCY + "    cores: 12\n    max_workers: 3 #!\n", "jobs.clicks.max_workers", "3",
        "at least 4: 12 cores take 3 executors, and the driver", None,
    ),
    # Computed anew for every worker, partition and broker, these numbers took minutes and then all memory.
    "workers by a slip of the finger": (
        LATENCY, LATENCY + "    max_workers: 99999999999 #!\n", "jobs.clicks.max_workers", "99999999999", "at most 100000", None,
    ),
    "cores by a slip of the finger": (
        LATENCY, LATENCY + "    cores: 99999999999 #!\n", "jobs.clicks.cores", "99999999999", "at most 100000", None,
    ),
    "shards by a slip of the finger": (
        CLICKS_RATE + CLICKS_SIZE, CLICKS_RATE + CLICKS_SIZE + "    shards: 99999999999 #!\n", f"{STREAM}.shards", "99999999999", "at most 200000", None,
    ),
    "brokers by a slip of the finger": (
        CLUSTER_KIND, CLUSTER_KIND + "    brokers: 99999999999 #!\n", "kafka.main.brokers", "99999999999", "at most 1000", None,
    ),
    "a broker type of another tier": (
        CLUSTER_KIND, CLUSTER_KIND + "    broker_type: express.m7g.large #!\n", "kafka.main.broker_type",
        "express.m7g.large", "with tier standard: kafka.m7g.large", None,
    ),
    "a region that is none": (
        REGION, "region: eu-centrl-1 #!\n", "region", "eu-centrl-1", "a region of AWS, as of", "did you mean eu-central-1?",
    ),
}  # fmt: skip
