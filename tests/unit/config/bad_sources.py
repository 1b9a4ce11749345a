"""Mistakes in how Kafka topics are read; rows as those of ``test_bad_configuration.py``."""

ORDERS_TOPIC = "    topic: orders\n"
ORDERS = "jobs.orders.queries.land-orders"
ORDERS_TABLE = "        table: orders_landed\n"
CLICKS_TABLE = "        table: clicks_landed\n"
FOUR = "    topic: orders\n    partitions: 4\n"
STREAMS_ORDERS = "    topic: orders\n    traffic: {records_per_second: 100, record_size: 1KiB}\n"


def reading(text: str) -> str:
    return f"        kafka: {{{text}}} #!\n" + ORDERS_TABLE


def between(reads: str, *, stream: str = FOUR) -> tuple[str, str]:
    """The whole of the file between the topic and the query: one place, two changes."""
    from tests.unit.config.conftest import GOOD

    old = GOOD[GOOD.index(ORDERS_TOPIC) : GOOD.index(ORDERS_TABLE) + len(ORDERS_TABLE)]
    new = old.replace(ORDERS_TOPIC, stream).replace(ORDERS_TABLE, reads)
    return old, new


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
        "a pattern that begins with letters", "the job's role may read the topics that begin so",
    ),
    "a pattern of which one half could be any topic": (
        ORDERS_TOPIC, pattern("'shop|.*'"), "streams.orders.pattern", "shop|.*", "a pattern that begins with letters",
        "the job's role may read the topics that begin so",
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
        *between(reading("partitions: [0, -1]")), f"{ORDERS}.kafka.partitions[1]", "-1", "0", None,
    ),
    "partitions of nobody knows how many": (
        ORDERS_TABLE, "        kafka: {partitions: [0]}\n" + ORDERS_TABLE, "streams.orders.partitions", "(missing)",
        "the number of partitions of the topic", None,
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
        "below 1m, the job's latency", None,
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
    "an offset of a partition too few": (
        *between(reading("start_offsets: {0: 5, 1: 5, 2: 5}")), f"{ORDERS}.kafka.start_offsets", "0, 1, 2",
        "an offset for each partition that is read: 0, 1, 2, 3", None,
    ),
    "offsets and a start": (
        *between("        start: latest #!\n" + reading("start_offsets: {0: 5, 1: 5, 2: 5, 3: 5}").replace(" #!", "")),
        f"{ORDERS}.start", "latest", "nothing beside kafka.start_offsets", None,
    ),
    "a negative offset": (
        *between(reading("partitions: [0], start_offsets: {0: 5, 1: -5}")), f"{ORDERS}.kafka.start_offsets.1", "-5", "0", None,
    ),
}  # fmt: skip
