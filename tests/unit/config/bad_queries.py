"""Mistakes in the settings of a query; rows as in ``test_bad_configuration.py``."""

LAND = "jobs.clicks.queries.land-clicks"
DERIVE = "jobs.clicks.queries.count-clicks"
SINK = "        sink: {kind: iceberg, table: clicks_counted}\n"
TRANSFORM = "        transform: pipelines.shop.transforms:counted\n"
ENRICH_COLUMNS = "            columns: {title: title}\n"
WHOLE = (
    TRANSFORM
    + "        enrich:\n          - table: pages\n            on: {page: page}\n"
    + ENRICH_COLUMNS
    + SINK
)
JOINED = TRANSFORM.replace("counted", "joined")
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

DIRECT_ROUTES = """\
      direct:
        kind: direct-route
        dead_letters: orders_letters
        routes:
          orders: {}
"""
ROUTE = "{{source: {}, schema: pipelines/shop/schemas/click.ddl, sink: {}}}"
LETTERS = "        dead_letters: clicks_refused\n"
JDBC = """\
        sink:
          kind: jdbc
          url: {}
          table: clicks
          secret: arn:aws:secretsmanager:us-east-1:111122223333:secret:db-AbCdEf
"""
OPENSEARCH = """\
        sink:
          kind: opensearch
          domain: arn:aws:es:us-east-1:111122223333:domain/shop
          endpoint: {}
          index: clicks
"""
POSTGRESQL = """\
      {}:
        kind: derive
        source: clicks_landed
        sink:
          kind: jdbc
          url: jdbc:postgresql://{}/shop
          secret: arn:aws:secretsmanager:us-east-1:111122223333:secret:shop-AbCdEf
          table: {}
        dead_letters: clicks_of_{}
"""

PARQUET = """\
      {}:
        kind: derive
        source: clicks_landed
        sink:
          kind: parquet
          table: counted{}
"""

HUNDRED = "".join(
    f"      count-{n}:\n        kind: derive\n        source: clicks_landed\n"
    f"        transform: pipelines.shop.transforms:counted\n        sink: {{kind: iceberg, table: counted_{n}}}\n"
    for n in range(99)
)

ROWS = {
    "more queries than one request of CloudWatch switches alarms": (
        "    queries:\n      land-clicks:\n", f"    queries: #!\n{HUNDRED}      land-clicks:\n", "jobs.clicks.queries",
        "101 queries", "at most 100", None,
    ),
    "a join with its own table": (
        WHOLE, JOINED + SINK + STATE.format("join: {source: clicks_landed, watermark: {time: at, delay: 1m}} #!"),
        f"{DERIVE}.state.join.source", "clicks_landed", "the table of another land query: orders_landed", None,
    ),
    "state without a transform that makes results": (
        WHOLE,
        SINK + STATE.format("key: [page]"),
        f"{DERIVE}.transform", "(missing)", "a function that computes the results", None,
    ),
    "the latest of each key beside state": (
        SINK, SINK + STATE.format("key: [page]") + "        latest_by: [page] #!\n",
        f"{DERIVE}.latest_by", "page", "nothing beside state, whose key says what identifies a result", None,
    ),
    "a column in the place of a list of them": (
        SINK, SINK + "        latest_by: page #!\n", f"{DERIVE}.latest_by", "page", "a list of columns, such as [order_id], or a mapping", None,
    ),
    "a URL of another database": (
        SINK, "        sink: {kind: jdbc, url: 'jdbc:mysql://h/db', table: t, secret: arn:aws:secretsmanager:us-east-1:111122223333:secret:x} #!\n",
        f"{DERIVE}.sink.url", "jdbc:mysql://h/db", ", such as jdbc:postgresql://db.shop:5432/shop", None,
    ),
    "the latest of each key into files": (
        SINK, "        sink:\n          kind: parquet #!\n          table: counted\n        latest_by: [page]\n",
        f"{DERIVE}.sink.kind", "parquet", "with latest_by a sink in which a later result replaces an earlier one", None,
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
    "a delete by a query that knows no keys": (
        ORDERS_QUERY,
        DIRECT.format("orders", "orders_good", "orders_bad") + "        kafka: {null_payload: delete} #!\n" + ORDERS_QUERY,
        "jobs.orders.queries.direct.kafka.null_payload", "delete",
        "dead_letter, or a land query and a derive query with latest_by", None,
    ),
    "changes that delete for a query that knows no keys": (
        ORDERS_QUERY,
        DIRECT.format("orders", "orders_good", "orders_bad") + "        format: {kind: dms} #!\n" + ORDERS_QUERY,
        "jobs.orders.queries.direct.format.kind", "dms",
        "a format of rows, or a land query and a derive query with latest_by", None,
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
    "a Kinesis stream for a direct route": (
        ORDERS_QUERY, DIRECT_ROUTES.format(ROUTE.format("clicks", "{kind: iceberg, table: good}") + " #!") + ORDERS_QUERY,
        "jobs.orders.queries.direct.routes.orders.source", "clicks",
        "a Kafka topic: a Kinesis batch holds other records when it is replayed", None,
    ),
    "a direct route without a sink": (
        ORDERS_QUERY,
        DIRECT_ROUTES.format("{source: orders, schema: pipelines/shop/schemas/click.ddl} #!") + ORDERS_QUERY,
        "jobs.orders.queries.direct.routes.orders.sink", "(missing)", "required", None,
    ),
    "a direct route into the table of dead letters": (
        ORDERS_QUERY,
        DIRECT_ROUTES.format(ROUTE.format("orders", "{kind: iceberg, table: orders_letters}")).replace(
            "orders_letters\n", "orders_letters #!\n", 1
        ) + ORDERS_QUERY,
        "jobs.orders.queries.direct.dead_letters", "orders_letters",
        "nothing else writes; jobs.orders.queries.direct.routes.orders.sink.table names this one", None,
    ),
    "a direct route back into what the query reads": (
        ORDERS_QUERY,
        DIRECT_ROUTES.format(ROUTE.format("orders", "{kind: kafka, topic: orders}") + " #!") + ORDERS_QUERY,
        "jobs.orders.queries.direct.routes.orders.sink.topic", "orders",
        "another stream than the one that the query reads", None,
    ),
    "a direct route whose transform is not there": (
        ORDERS_QUERY,
        DIRECT_ROUTES.format(
            "{source: orders, schema: pipelines/shop/schemas/click.ddl, transform: 'pipelines.shop.transforms:no', "
            "sink: {kind: iceberg, table: good}} #!"
        ) + ORDERS_QUERY,
        "jobs.orders.queries.direct.routes.orders.transform", "pipelines.shop.transforms:no",
        "a function of pipelines.shop.transforms: counted", None,
    ),
    "a sink that may refuse rows, and no table for them": (
        SINK, "        sink: {kind: dynamodb, table: counted}\n",
        f"{DERIVE}.dead_letters", "(missing)", "a table for the rows that the dynamodb sink refuses", None,
    ),
    "a table for rows that no sink refuses": (
        SINK, SINK + "        dead_letters: clicks_refused #!\n",
        f"{DERIVE}.dead_letters", "clicks_refused", "nothing with the iceberg sink, which takes every row", None,
    ),
    "an unknown sink": (
        SINK, "        sink:\n          kind: postgres #!\n          table: x\n", f"{DERIVE}.sink.kind", "postgres",
        "jdbc", None,
    ),
    "an OpenSearch endpoint in another region": (
        SINK, OPENSEARCH.format("https://search-shop-x1.eu-west-1.es.amazonaws.com #!") + LETTERS, f"{DERIVE}.sink.endpoint",
        "https://search-shop-x1.eu-west-1.es.amazonaws.com", "an endpoint in us-east-1, the region of arn:aws:es", None,
    ),
    "an OpenSearch endpoint of another domain": (
        SINK, OPENSEARCH.format("https://search-shops-x1.us-east-1.es.amazonaws.com #!") + LETTERS,
        f"{DERIVE}.sink.endpoint", "https://search-shops-x1.us-east-1.es.amazonaws.com",
        "https://search-shop-", None,
    ),
    "a password in a URL": (
        SINK, JDBC.format("jdbc:postgresql://db/shop?user=me&sslmode=require #!") + LETTERS,
        f"{DERIVE}.sink.url", "jdbc:postgresql://db/shop?user=me&sslmode=require", "a URL without user and password",
        None,
    ),
    "a database that is none of ours": (
        SINK, JDBC.format("jdbc:mysql://db/shop #!") + LETTERS, f"{DERIVE}.sink.url", "jdbc:mysql://db/shop",
        "jdbc:postgresql://", None,
    ),
    "a port that is none": (
        SINK, JDBC.format("jdbc:postgresql://db:99999/shop #!") + LETTERS, f"{DERIVE}.sink.url",
        "jdbc:postgresql://db:99999/shop", "a port from 1 to 65535", None,
    ),
    "files of a byte": (
        SINK, "        sink: {kind: parquet, table: counted, file_size: 1B} #!\n", f"{DERIVE}.sink.file_size", "1B",
        "at least 1MiB", None,
    ),
    "a topic that nobody declared": (
        SINK, "        sink:\n          kind: kafka\n          topic: order #!\n" + LETTERS, f"{DERIVE}.sink.topic",
        "order", "a Kafka topic of this environment: orders", "did you mean orders?",
    ),
    "a stream of the other kind": (
        SINK, "        sink:\n          kind: kinesis\n          stream: orders #!\n" + LETTERS,
        f"{DERIVE}.sink.stream", "orders", "a Kinesis stream of this environment: clicks", None,
    ),
    "a query that feeds itself": (
        SINK, "        sink:\n          kind: kinesis\n          stream: clicks #!\n" + LETTERS,
        f"{DERIVE}.sink.stream", "clicks", "another stream than the one that the query reads", None,
    ),
    "results into files": (
        SINK, "        sink:\n          kind: parquet #!\n          table: counted\n" + STATE.format("key: [page]"),
        f"{DERIVE}.sink.kind", "parquet", "a sink in which a later result replaces an earlier one", None,
    ),
    "one place for two queries": (
        ORDERS_QUERY,
        PARQUET.format("first", "") + PARQUET.format("second", " #!") + ORDERS_QUERY,
        "jobs.orders.queries.second.sink.table", "counted",
        "a target that no other query writes; jobs.orders.queries.first.sink.table writes it, too", None,
    ),
    "one table of PostgreSQL, spelled in two ways": (
        ORDERS_QUERY,
        POSTGRESQL.format("first", "DB.shop", "counted", "first")
        + POSTGRESQL.format("second", "db.shop:5432", "public.counted #!", "second")
        + ORDERS_QUERY,
        "jobs.orders.queries.second.sink.table", "public.counted",
        "a target that no other query writes; jobs.orders.queries.first.sink.table writes it, too", None,
    ),
    "files of no size": (
        SINK, "        sink: {kind: parquet, table: counted, file_size: 128} #!\n", f"{DERIVE}.sink.file_size", "128",
        "write a number with its unit", None,
    ),
    "a redacted field that is not there": (
        LAND_SCHEMA, LAND_SCHEMA + "        redact: [at, pages] #!\n", f"{LAND}.redact[1]", "pages",
        "a top-level field of pipelines/shop/schemas/click.ddl", "did you mean page?",
    ),
}  # fmt: skip
