"""Mistakes in the settings of Kafka topics; rows as in ``test_bad_configuration.py``."""

from tests.unit.config.conftest import GOOD

ORDERS_TOPIC = "    topic: orders\n"
ORDERS = "jobs.orders.queries.land-orders"
ORDERS_TABLE = "        table: orders_landed\n"
CLICKS_TABLE = "        table: clicks_landed\n"
FOUR = "    topic: orders\n    partitions: 4\n"
STREAMS_ORDERS = "    topic: orders\n    traffic: {records_per_second: 100, record_size: 1KiB}\n"


def reading(text: str) -> str:
    return f"        kafka: {{{text}}} #!\n" + ORDERS_TABLE


def between(reads: str, *, stream: str = FOUR, at: str = ORDERS_TABLE) -> tuple[str, str]:
    """The whole of the file between the topic and the query: one place, two changes."""
    old = GOOD[GOOD.index(ORDERS_TOPIC) : GOOD.index(at) + len(at)]
    new = old.replace(ORDERS_TOPIC, stream).replace(at, reads + (at if at == LAND_ORDERS else ""))
    return old, new


SECOND = """\
        schema: pipelines/shop/schemas/click.ddl
      land-rest:
        kind: land
        source: orders
        kafka: {{partitions: [{}]}} #!
        table: orders_landed
"""
ROUTES = """\
      land-both:
        kind: route
        table: both_landed
        routes:
          clicks: {source: clicks, schema: pipelines/shop/schemas/click.ddl}
          orders: {source: orders, schema: pipelines/shop/schemas/click.ddl}
"""
LAND_ORDERS = "      land-orders:\n"
BOTH = "jobs.orders.queries.land-both"


def routed(old: str, new: str) -> tuple[str, str]:
    """A query with routes, one place of which is changed."""
    assert ROUTES.count(old) == 1
    return LAND_ORDERS, ROUTES.replace(old, new) + LAND_ORDERS


def derived(text: str) -> tuple[str, str]:
    query = "      derive-both:\n        kind: derive\n        sink: {kind: iceberg, table: derived}\n"
    return LAND_ORDERS, ROUTES + query + text + LAND_ORDERS


def pattern(text: str) -> str:
    return f"    pattern: {text} #!\n    existing: true\n    partitions: 4\n"


ROWS = {
    "Kafka's settings for a Kinesis stream": (
        CLICKS_TABLE, "        kafka: {headers: false} #!\n" + CLICKS_TABLE, "jobs.clicks.queries.land-clicks.kafka",
        "given", "nothing: clicks is a Kinesis stream", None,
    ),
    "a pattern that is no regular expression": (
        ORDERS_TOPIC, pattern("'shop.(orders'"), "streams.orders.pattern", "shop.(orders", "a regular expression", None,
    ),
    "a pattern that could be any topic": (
        ORDERS_TOPIC, pattern("'.*orders'"), "streams.orders.pattern", ".*orders",
        "a pattern that begins with letters", "the job's role may read only topics with that prefix",
    ),
    "a pattern of which one half could be any topic": (
        ORDERS_TOPIC, pattern("'shop|.*'"), "streams.orders.pattern", "shop|.*", "a pattern that begins with letters",
        "the job's role may read only topics with that prefix",
    ),
    "a topic and a pattern": (
        ORDERS_TOPIC, "    topic: orders #!\n    pattern: shop-.*\n    existing: true\n    partitions: 4\n",
        "streams.orders.topic", "orders", "a topic or a pattern, not both", None,
    ),
    "a pattern of topics to make": (
        ORDERS_TOPIC, "    pattern: shop-.*\n    existing: false #!\n    partitions: 4\n",
        "streams.orders.existing", "false", "true: topics that a pattern finds", None,
    ),
    "a partition of a pattern": (
        *between(reading("partitions: [0]"), stream="    pattern: shop-.*\n    existing: true\n    partitions: 4\n"),
        f"{ORDERS}.kafka.partitions", "given", "nothing: orders is a pattern of topics", None,
    ),
    "a partition twice": (
        *between(reading("partitions: [0, 1, 1]")), f"{ORDERS}.kafka.partitions[2]", "1", "each partition once", None,
    ),
    "a partition that the topic does not have": (
        *between(reading("partitions: [3, 4]")), f"{ORDERS}.kafka.partitions[1]", "4",
        "0 to 3, the partitions of orders", None,
    ),
    "no partition": (
        *between(reading("partitions: []")), f"{ORDERS}.kafka.partitions", "an empty list", "1", None,
    ),
    "a negative partition": (
        *between(reading("partitions: [0, 1, 2, 3, -1]")), f"{ORDERS}.kafka.partitions[4]", "-1", "0", None,
    ),
    "partitions of nobody knows how many": (
        ORDERS_TABLE, "        kafka: {partitions: [0]}\n" + ORDERS_TABLE, "streams.orders.partitions", "(missing)",
        "the number of partitions of the topic", None,
    ),
    "a prefix of groups that is a pattern": (
        *between(reading("group_id_prefix: 'shop-*'")), f"{ORDERS}.kafka.group_id_prefix", "shop-*",
        "^[A-Za-z0-9]", None,
    ),
    "a group for the lag that is a pattern": (
        *between(reading("lag_group: 'lag-*'")), f"{ORDERS}.kafka.lag_group", "lag-*", "^[A-Za-z0-9]", None,
    ),
    "a null payload that is neither": (
        *between(reading("null_payload: drop")), f"{ORDERS}.kafka.null_payload", "drop", "dead_letter", None,
    ),
    "a lag that two queries tell": (
        *between(reading("lag_group: lag").replace(" #!", "") + SECOND.format("")
                 .replace("partitions: []", "lag_group: lag").replace("orders_landed", "rest_landed")),
        "jobs.orders.queries.land-rest.kafka.lag_group", "lag",
        "another group: jobs.orders.queries.land-orders reports its lag of orders to this one", None,
    ),
    "a least without a delay": (
        *between(reading("min_records_per_batch: 50")), f"{ORDERS}.kafka.max_delay", "(missing)",
        "below the job's latency of 1m", "Spark would wait 15 minutes",
    ),
    "a delay without a least": (
        *between(reading("max_delay: 5s")), f"{ORDERS}.kafka.max_delay", "5s", "only together with min_records_per_batch",
        None,
    ),
    "a delay longer than the latency": (
        *between(reading("min_records_per_batch: 50, max_delay: 5m")), f"{ORDERS}.kafka.max_delay", "5m",
        "below 30s: a batch starts at the first trigger after it, each 30 s", None,
    ),
    "a least above the pinned most": (
        *between(
            "        records_per_batch: 9000\n" + reading("min_records_per_batch: 9001, max_delay: 5s")
        ), f"{ORDERS}.kafka.min_records_per_batch", "9001", "at most 9000, as records_per_batch says", None,
    ),
    "a least above the plan's most": (
        *between(reading("min_records_per_batch: 9000000, max_delay: 5s")),
        f"{ORDERS}.kafka.min_records_per_batch", "9000000", "the most that the plan lets a batch take", None,
    ),
    "fewer tasks than partitions": (
        *between(reading("min_partitions: 4")), f"{ORDERS}.kafka.min_partitions", "4", "more than 4: a batch has a task",
        None,
    ),
    "an offset of a partition without a number": (
        *between(reading("start_offsets: {first: 5}")), f"{ORDERS}.kafka.start_offsets.first", "the name first", "a whole number", None,
    ),
    "an offset of a partition too few": (
        *between(reading("start_offsets: {0: 5, 1: 5, 2: 5}")), f"{ORDERS}.kafka.start_offsets", "0, 1, 2",
        "an offset for each partition that is read: 0, 1, 2, 3", None,
    ),
    "offsets and a start": (
        *between("        start: latest #!\n" + reading("start_offsets: {0: 5, 1: 5, 2: 5, 3: 5}").replace(" #!", "")),
        f"{ORDERS}.start", "latest", "nothing beside kafka.start_offsets", None,
    ),
    "a partition that nobody reads": (
        *between(reading("partitions: [0, 3, 1]")), f"{ORDERS}.kafka.partitions", "0, 3, 1",
        "no query lands 2 in orders_landed", "millrace split writes the lists for all jobs together",
    ),
    "a partition that two jobs read": (
        *between(reading("partitions: [0, 1, 2]").replace(" #!", "") + SECOND.format("2, 3")),
        "jobs.orders.queries.land-rest.kafka.partitions[0]", "2",
        "a partition that no other query lands in orders_landed; jobs.orders.queries.land-orders does", None,
    ),
    "one table of two that share nothing": (
        *between(ORDERS_TABLE + SECOND.format("0, 1, 2, 3").replace(" #!", "").replace("orders_landed", "orders_landed #!")),
        "jobs.orders.queries.land-rest.table", "orders_landed",
        "a table that nothing else writes; jobs.orders.queries.land-orders.table names this one", None,
    ),
    "a route of a stream that nobody declared": (
        *routed("source: clicks,", "source: click, #!\n           "), f"{BOTH}.routes.clicks.source", "click",
        "a declared stream: clicks, orders", "did you mean clicks?",
    ),
    "a route with a schema that is not there": (
        *routed("clicks: {source: clicks, schema: pipelines/shop/schemas/click.ddl}",
                "clicks: {source: clicks, schema: pipelines/shop/schemas/clik.ddl} #!"),
        f"{BOTH}.routes.clicks.schema", "pipelines/shop/schemas/clik.ddl", "a file that exists",
        "did you mean pipelines/shop/schemas/click.ddl?",
    ),
    "two routes of one stream": (
        *routed("orders: {source: orders,", "orders: {source: clicks, #!\n           "), f"{BOTH}.routes.orders.source",
        "clicks", "records that no other route takes; clicks takes these", None,
    ),
    "a route of all records beside one of a table": (
        *routed("orders: {source: orders,", "orders: {source: clicks, changes_of: shop.orders, format: {kind: dms}, #!\n           "),
        f"{BOTH}.routes.orders.changes_of", "shop.orders", "records that no other route takes; clicks takes these", None,
    ),
    "two formats of the changes in one stream": (
        *routed(ROUTES[ROUTES.index("        routes:"):], """\
        routes:
          orders: {source: clicks, changes_of: a.b, format: {kind: dms}, schema: pipelines/shop/schemas/click.ddl}
          clicks: {source: clicks, changes_of: a.c, format: {kind: debezium}, schema: pipelines/shop/schemas/click.ddl} #!
"""),
        f"{BOTH}.routes.clicks.format", "debezium", "the format of the other routes of clicks: dms", None,
    ),
    "a table of a format that shows none before it is decoded": (
        *routed("{source: orders,", "{source: orders, changes_of: shop.orders, #!\n            format: {kind: debezium, payload: avro, "
        "registry: 'https://r.example', subject: s},\n           "), f"{BOTH}.routes.orders.changes_of",
        "shop.orders", "nothing with payload avro: use one stream for each table", None,
    ),
    "a table of a format without tables": (
        *routed("{source: orders,", "{source: orders, changes_of: shop.orders, #!\n           "), f"{BOTH}.routes.orders.changes_of",
        "shop.orders", "nothing: json has no changes of tables", None,
    ),
    "a topic of one stream": (
        *routed("{source: orders,", "{source: orders, topic: orders, #!\n           "), f"{BOTH}.routes.orders.topic",
        "orders", "nothing: orders is one stream", None,
    ),
    "a route that is no column": (
        *routed("orders: {source: orders,", "Orders: {source: orders, #!\n           "), f"{BOTH}.routes.Orders",
        "the name Orders", "^[a-z]", None,
    ),
    "no route": (
        *routed(ROUTES[ROUTES.index("        routes:"):], "        routes: {} #!\n"), f"{BOTH}.routes",
        "an empty mapping", "1", None,
    ),
    "a route of which nobody knows the topic": (
        *between(ROUTES.replace("      land-both", "      land-more").replace("          clicks: {source: clicks, schema: "
                 "pipelines/shop/schemas/click.ddl}\n", "").replace("{source: orders,", "{source: orders, #!\n           "),
                 stream="    pattern: shop-.*\n    existing: true\n    partitions: 4\n", at=LAND_ORDERS),
        "jobs.orders.queries.land-more.routes.orders.topic", "(missing)", "one topic of the pattern shop-.*", None,
    ),
    "a route of a topic beside the pattern": (
        *between(ROUTES.replace("      land-both", "      land-more").replace("          clicks: {source: clicks, schema: "
                 "pipelines/shop/schemas/click.ddl}\n", "").replace(
                     "{source: orders,", "{source: orders, topic: web-a, #!\n           "),
                 stream="    pattern: shop-.*\n    existing: true\n    partitions: 4\n", at=LAND_ORDERS),
        "jobs.orders.queries.land-more.routes.orders.topic", "web-a", "a topic that the pattern shop-.* matches", None,
    ),
    "a route that the table does not have": (
        *derived("        source: both_landed\n        route: click #!\n"), "jobs.orders.queries.derive-both.route",
        "click", "a route of both_landed: clicks, orders", "did you mean clicks?",
    ),
    "a route of a table without routes": (
        *derived("        source: orders_landed\n        route: orders #!\n"), "jobs.orders.queries.derive-both.route",
        "orders", "nothing: orders_landed is a table without routes", None,
    ),
}  # fmt: skip
