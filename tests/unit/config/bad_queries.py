"""Mistakes in what a query says; rows as those of ``test_bad_configuration.py``."""

LAND = "jobs.clicks.queries.land-clicks"
DERIVE = "jobs.clicks.queries.count-clicks"
SINK = "        sink: {kind: iceberg, table: clicks_counted}\n"
TRANSFORM = "        transform: pipelines.shop.transforms:counted\n"
ENRICH_COLUMNS = "            columns: {title: title}\n"
LAND_SCHEMA = "        table: clicks_landed\n        schema: pipelines/shop/schemas/click.ddl\n"
ORDERS_QUERY = "      land-orders:\n"
DIRECT = """\
      direct:
        kind: direct
        source: {}
        schema: pipelines/shop/schemas/click.ddl
        sink:
          kind: iceberg
          table: {}
        dead_letters: {}
"""
STATE = """\
        state:
          watermark:
            time: at
            delay: 10m
          {}
"""

ROWS = {
    "a join with its own table": (
        SINK, SINK + STATE.format("join: {source: clicks_landed, watermark: {time: t, delay: 1m}} #!"),
        f"{DERIVE}.state.join.source", "clicks_landed", "the table of another land query: orders_landed", None,
    ),
    "state without a transform that makes results": (
        TRANSFORM + "        enrich:\n          - table: pages\n            on: {page: page}\n" + ENRICH_COLUMNS + SINK,
        SINK + STATE.format("key: [page]"),
        f"{DERIVE}.transform", "(missing)", "a function that makes the results", None,
    ),
    "a watermark without a delay": (
        SINK, SINK + "        state:\n          watermark: {time: at} #!\n          key: [page]\n",
        f"{DERIVE}.state.watermark.delay", "(missing)", "required", None,
    ),
    "a column that is none": (
        SINK, SINK + STATE.format('key: ["page; drop"] #!'), f"{DERIVE}.state.key[0]", "page; drop",
        "^[A-Za-z_][A-Za-z0-9_]*$", None,
    ),
    "a Kinesis stream for a direct query": (
        ORDERS_QUERY, DIRECT.format("clicks #!", "clicks_good", "clicks_bad") + ORDERS_QUERY,
        "jobs.orders.queries.direct.source", "clicks",
        "a Kafka topic: a Kinesis batch holds other records when it is replayed", None,
    ),
    "one table for good records and dead letters": (
        ORDERS_QUERY, DIRECT.format("orders", "orders_good", "orders_good #!") + ORDERS_QUERY,
        "jobs.orders.queries.direct.dead_letters", "orders_good",
        "nothing else writes; jobs.orders.queries.direct.sink.table names this one", None,
    ),
    "a direct query without a table for dead letters": (
        ORDERS_QUERY, DIRECT.replace("        dead_letters: {}\n", "").format("orders", "orders_good") + ORDERS_QUERY,
        "jobs.orders.queries.direct.dead_letters", "(missing)", "required", None,
    ),
    "a redacted field that is not there": (
        LAND_SCHEMA, LAND_SCHEMA + "        redact: [page, pages] #!\n", f"{LAND}.redact[1]", "pages",
        "a top-level field of pipelines/shop/schemas/click.ddl", "did you mean page?",
    ),
}  # fmt: skip
