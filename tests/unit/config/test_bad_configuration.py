"""Each mistake in an environment file gives one problem with file, line and key.

A row replaces text of the good file; `#!` marks the line that the problem must name.
"""

import re
from pathlib import Path

import pytest

from millrace.config import ConfigurationError, load
from millrace.config.checks import jobs as check_jobs
from millrace.etl.queries import required_spark_settings
from millrace.sizing import plan
from tests.unit.config import bad_kafka_sources, bad_limits, bad_names, bad_queries, bad_values_for_any_key
from tests.unit.config.conftest import GOOD

KEY = "AKIA" + "ABCDEFGHIJKLMNOP"
STREAM = "streams.clicks"
LAND = "jobs.clicks.queries.land-clicks"
DERIVE = "jobs.clicks.queries.count-clicks"

CLICKS_KIND = "    kind: kinesis\n"
CLICKS_RETENTION = "    retention: 24h\n"
CLICKS_RATE = "      records_per_second: 800\n"
CLICKS_SIZE = "      record_size: 500B\n"
CLUSTER_KIND = "    kind: msk\n"
ORDERS_TOPIC = "    topic: orders\n"
ORDERS_CLUSTER = "    cluster: main\n"
CLUSTER_TO_ORDERS = GOOD[
    GOOD.index("    version: 3.9.x\n") : GOOD.index(ORDERS_CLUSTER) + len(ORDERS_CLUSTER)
]
GLUE_VERSION = '    version: "5.1"\n'
GLUE_WORKER = "    worker: G.1X\n"
LATENCY = "    latency: 60s\n"
EMR_WORKER = "    worker: {vcpu: 4, memory: 16GiB}\n"
LAND_SOURCE = "        source: clicks\n"
LAND_TABLE = "        table: clicks_landed\n"
LAND_SCHEMA = "        table: clicks_landed\n        schema: pipelines/shop/schemas/click.ddl\n"
DERIVE_SOURCE = "        source: clicks_landed\n"
TRANSFORM = "        transform: pipelines.shop.transforms:counted\n"
SINK = "        sink: {kind: iceberg, table: clicks_counted}\n"
ENRICH_COLUMNS = "            columns: {title: title}\n"
SPARK = '      spark.sql.shuffle.partitions: "8"\n'
ZONES = "  availability_zones: 3\n"
REGION = "region: us-east-1\n"

ROWS = {
    # unknown keys, wrong types, wrong units, sizes
    "unknown key": (REGION, "regoin: us-east-1 #!\n", "regoin", "unknown, us-east-1", "region", "did you mean region?"),
    "unknown key in a stream": (
        CLICKS_RETENTION, "    retenton: 24h #!\n", f"{STREAM}.retenton", "unknown, 24h", "retention",
        "did you mean retention?",
    ),
    "unknown key named like the kind": (
        CLICKS_KIND, CLICKS_KIND + "    kinesis: 1 #!\n", f"{STREAM}.kinesis", "unknown, 1", "kind, traffic", None,
    ),
    "missing key": (CLICKS_RATE, "", f"{STREAM}.traffic.records_per_second", "(missing)", "required", None),
    "no kind": (CLICKS_KIND, "", f"{STREAM}.kind", "(missing)", "kinesis or kafka", None),
    "unknown kind": (
        CLICKS_KIND, "    kind: kinesys #!\n", f"{STREAM}.kind", "kinesys", "kinesis or kafka", "did you mean kinesis?",
    ),
    "text for a number": (
        CLICKS_RATE, '      records_per_second: "800" #!\n', f"{STREAM}.traffic.records_per_second", "800", "a number",
        None,
    ),
    "true for a number": (
        CLICKS_KIND, CLICKS_KIND + "    shards: true #!\n", f"{STREAM}.shards", "true", "a whole number", None,
    ),
    "a fraction of a shard": (
        CLICKS_KIND, CLICKS_KIND + "    shards: 1.5 #!\n", f"{STREAM}.shards", "1.5", "a whole number", None,
    ),
    "a mapping for a list": (
        CLICKS_KIND, CLICKS_KIND + "    fan_out_consumers: {a: b} #!\n", f"{STREAM}.fan_out_consumers", "a mapping",
        "a list", None,
    ),
    "infinite rate": (
        CLICKS_RATE, "      records_per_second: .inf #!\n", f"{STREAM}.traffic.records_per_second", ".inf",
        "a finite number", None,
    ),
    "account without quotes": (
        'account: "111122223333"\n', "account: 111122223333 #!\n", "account", "111122223333", "text",
        'write it in quotes: "111122223333"',
    ),
    "version without quotes": (
        GLUE_VERSION, "    version: 5.1 #!\n", "jobs.clicks.version", "5.1", "5.1, 6.0",
        'write it in quotes: "5.1"',
    ),
    "duration without unit": (
        LATENCY, "    latency: 60 #!\n", "jobs.clicks.latency", "60", "a number with its unit", None,
    ),
    "duration in an unknown unit": (
        CLICKS_RETENTION, "    retention: 3 weeks #!\n", f"{STREAM}.retention", "3 weeks", "ms, s, m, h or d", None,
    ),
    "zero duration": (LATENCY, "    latency: 0s #!\n", "jobs.clicks.latency", "0s", "longer than zero", None),
    "size without unit": (
        CLICKS_SIZE, "      record_size: 500 #!\n", f"{STREAM}.traffic.record_size", "500", "KiB", None,
    ),
    "a duration beyond the calendar": (
        LATENCY, "    latency: 99999999999999d #!\n", "jobs.clicks.latency", "99999999999999d", "a shorter duration", None,
    ),
    "a duration of nothing": (
        LATENCY, "    latency: 0.0000001ms #!\n", "jobs.clicks.latency", "0.0000001ms", "longer than zero", None,
    ),
    "a size of nothing": (
        CLICKS_SIZE, "      record_size: 0.4B #!\n", f"{STREAM}.traffic.record_size", "0.4B", "larger than zero", None,
    ),
    "a rate beyond reason": (
        CLICKS_RATE, "      records_per_second: 1.0e+300 #!\n", f"{STREAM}.traffic.records_per_second", "1.0e+300",
        "at most 100000000", None,
    ),
    "zero size": (
        CLICKS_SIZE, "      record_size: 0B #!\n", f"{STREAM}.traffic.record_size", "0B", "larger than zero", None,
    ),
    "negative size": (
        CLICKS_SIZE, "      record_size: -5KiB #!\n", f"{STREAM}.traffic.record_size", "-5KiB", "KiB", None,
    ),
    "negative rate": (
        CLICKS_RATE, "      records_per_second: -1 #!\n", f"{STREAM}.traffic.records_per_second", "-1",
        "at least 1e-06", None,
    ),
    "zero shards": (
        CLICKS_KIND, CLICKS_KIND + "    shards: 0 #!\n", f"{STREAM}.shards", "0", "at least 1", None,
    ),
    "name of a stream": ("  clicks:\n    kind: kinesis\n", "  Clicks: #!\n    kind: kinesis\n", None, None, None, None),
    "name in the file": (
        REGION, REGION + "name: other #!\n", "name", "other", "the file's name is the environment's", None,
    ),
    "wrong region": (REGION, "region: us_east #!\n", "region", "us_east", "such as us-east-1", None),
    # engines
    "worker type of no version": (
        GLUE_WORKER, "    worker: G.3X #!\n", "jobs.clicks.worker", "G.3X", "with Glue 5.1: G.025X, G.1X",
        "did you mean G.1X?",
    ),
    "worker type that this version lacks": (
        GLUE_WORKER, "    worker: Standard #!\n", "jobs.clicks.worker", "Standard", "with Glue 5.1: G.025X", None,
    ),
    "vCPU that EMR Serverless lacks": (
        EMR_WORKER, "    worker: {vcpu: 3, memory: 16GiB} #!\n", "jobs.orders.worker.vcpu", "3", "1, 2, 4, 8, 16", None,
    ),
    "memory that its vCPU lacks": (
        EMR_WORKER, "    worker: {vcpu: 4, memory: 31GiB} #!\n", "jobs.orders.worker.memory", "31.0GiB",
        "with 4 vCPU: 8GiB to 30GiB in steps of 1GiB", None,
    ),
    "memory between steps": (
        EMR_WORKER, "    worker: {vcpu: 8, memory: 18GiB} #!\n", "jobs.orders.worker.memory", "18.0GiB",
        "16GiB to 60GiB in steps of 4GiB", None,
    ),
    "disk too large": (
        EMR_WORKER, "    worker: {vcpu: 4, memory: 16GiB, disk: 300GiB} #!\n", "jobs.orders.worker.disk", "300.0GiB",
        "20GiB to 200GiB", None,
    ),
    # streams and clusters
    "retention too short": (
        CLICKS_RETENTION, "    retention: 1h #!\n", f"{STREAM}.retention", "1h", "at least 1 day", None,
    ),
    "retention too long": (
        CLICKS_RETENTION, "    retention: 366d #!\n", f"{STREAM}.retention", "366d", "at most 365 days", None,
    ),
    "shards pinned on demand": (
        CLICKS_RETENTION, "    mode: on-demand\n    shards: 4 #!\n", f"{STREAM}.shards", "4", "no shards with mode",
        "remove shards, or write mode: provisioned",
    ),
    "existing stream of unknown size": (
        CLICKS_RETENTION, "    existing: theirs\n", f"{STREAM}.shards", "(missing)",
        "the number of shards that the existing stream has", "describe-stream-summary --stream-name theirs",
    ),
    "existing topic of unknown size": (
        ORDERS_TOPIC, "    existing: true\n", "streams.orders.partitions", "(missing)",
        "the number of partitions that the existing topic has", None,
    ),
    "too many consumers": (
        CLICKS_RETENTION, f"    fan_out_consumers: [{', '.join(f'c{i:02}' for i in range(21))}] #!\n",
        f"{STREAM}.fan_out_consumers", "21 consumers", "at most 20", None,
    ),
    "a consumer twice": (
        CLICKS_RETENTION, "    fan_out_consumers: [aa, aa] #!\n", f"{STREAM}.fan_out_consumers[1]", "aa",
        "each consumer once", None,
    ),
    "record larger than the stream takes": (
        CLICKS_SIZE, "      record_size: 2MiB #!\n", f"{STREAM}.traffic.record_size", "2097152B", "at most 1MiB",
        "raise max_record_size, up to 10MiB",
    ),
    "aggregate larger than a record may be": (
        CLICKS_RETENTION, "    aggregate: 2MiB #!\n", f"{STREAM}.aggregate", "2097152B",
        "from a record's size to 1MiB, the largest record of this stream", None,
    ),
    "record larger than Kinesis takes": (
        CLICKS_RETENTION, "    max_record_size: 11MiB #!\n", f"{STREAM}.max_record_size", "11534336", "1MiB to 10MiB",
        None,
    ),
    "a stream written twice": (
        "  orders:\n    kind: kafka\n", "  clicks: #!\n    kind: kafka\n", STREAM, "written twice", "each key once", None,
    ),
    "a query written twice": (
        "      count-clicks:\n", "      land-clicks: #!\n", LAND, "written twice", "each key once; the first is on line 34",
        None,
    ),
    "undeclared cluster": (
        ORDERS_CLUSTER, "    cluster: mian #!\n", "streams.orders.cluster", "mian", "a cluster under kafka: main",
        "did you mean main?",
    ),
    "unknown Kafka version": (
        "    version: 3.9.x\n", "    version: 2.8.1 #!\n", "kafka.main.version", "2.8.1",
        "one of 3.8.x, 3.8.x.kraft, 3.9.x, 3.9.x.kraft, 4.0.x.kraft, 4.1.x.kraft, 4.2.x.kraft", None,
    ),
    "a Kafka version under another name than MSK's": (
        "    version: 3.9.x\n", "    version: 4.0.x #!\n", "kafka.main.version", "4.0.x", "4.0.x.kraft",
        "did you mean 4.0.x.kraft?",
    ),
    "a Kafka version that Express brokers refuse": (
        "    version: 3.9.x\n", "    version: 3.9.x #!\n    tier: express\n", "kafka.main.version", "3.9.x",
        "one of 3.8.x, 3.9.x.kraft, 4.0.x.kraft, 4.1.x.kraft, 4.2.x.kraft with tier express", "did you mean",
    ),
    "a topic on a serverless cluster": (
        CLUSTER_TO_ORDERS,
        CLUSTER_TO_ORDERS.replace("version: 3.9.x", "tier: serverless") + "    existing: false #!\n",
        "streams.orders.existing", "false", "true, as main is a serverless cluster", "kafka-topics.sh",
    ),
    "express over two zones": (
        ZONES + "kafka:\n  main:\n    kind: msk\n    version: 3.9.x\n",
        "  availability_zones: 2\nkafka:\n  main:\n    kind: msk\n    tier: express #!\n", "kafka.main.tier", "express",
        "over 3 Availability Zones; the network has 2", None,
    ),
    "brokers of a serverless cluster": (
        CLUSTER_TO_ORDERS,
        CLUSTER_TO_ORDERS.replace("version: 3.9.x", "tier: serverless\n    brokers: 3 #!") + "    existing: true\n    partitions: 4\n",
        "kafka.main.brokers", "3", "a serverless cluster has no brokers", None,
    ),
    "brokers unevenly over zones": (
        CLUSTER_KIND, CLUSTER_KIND + "    brokers: 4 #!\n", "kafka.main.brokers", "4", "a multiple of 3", None,
    ),
    "subnets without a VPC": (
        ZONES, "  subnets: [subnet-0123456789abcdef0, subnet-0123456789abcdef1] #!\n", "network.subnets",
        "subnet-0123456789abcdef0, subnet-0123456789abcdef1", "together with network.vpc", None,
    ),
    "a VPC without subnets": (
        ZONES, "  vpc: vpc-0123456789abcdef0\n", "network.subnets", "(missing)", "two or more subnets", None,
    ),
    "no IPv4 range": (ZONES, "  cidr: 10.42.0.1/16 #!\n", "network.cidr", "10.42.0.1/16", "an IPv4 range", None),
    "a public range": (ZONES, "  cidr: 8.8.0.0/16 #!\n", "network.cidr", "8.8.0.0/16", "a private range", None),
    "brokers that are no addresses": (
        CLUSTER_KIND + "    version: 3.9.x\n", "    kind: external\n    bootstrap_servers: broker-1, broker-2:9094 #!\n",
        "kafka.main.bootstrap_servers", "broker-1", "host:port", None,
    ),
    "a port with a digit that is no number": (
        CLUSTER_KIND + "    version: 3.9.x\n", "    kind: external\n    bootstrap_servers: broker:909² #!\n",
        "kafka.main.bootstrap_servers", "broker:909²", "host:port", None,
    ),
    # jobs and queries
    "undeclared stream": (
        LAND_SOURCE, "        source: clicsk #!\n", f"{LAND}.source", "clicsk", "a declared stream: clicks, orders",
        "did you mean clicks?",
    ),
    "table that nobody lands": (
        DERIVE_SOURCE, "        source: click_landed #!\n", f"{DERIVE}.source", "click_landed",
        "the table of a land query: clicks_landed, orders_landed", "did you mean clicks_landed?",
    ),
    "two writers of one table": (
        SINK, "        sink: {kind: iceberg, table: clicks_landed} #!\n", f"{DERIVE}.sink.table", "clicks_landed",
        f"{LAND}.table names this one", None,
    ),
    "two writers in two jobs": (
        "        table: orders_landed\n", "        table: clicks_landed #!\n",
        "jobs.orders.queries.land-orders.table", "clicks_landed", f"{LAND}.table names this one", None,
    ),
    "enriched from its own sink": (
        "          - table: pages\n", "          - table: clicks_counted #!\n", f"{DERIVE}.enrich[0].table",
        "clicks_counted", "other than the one this query writes", None,
    ),
    "a reserved column": (
        ENRICH_COLUMNS, "            columns: {_id: title} #!\n", f"{DERIVE}.enrich[0].columns._id", "_id",
        "does not begin with _", None,
    ),
    "no schema file": (
        LAND_SCHEMA, LAND_TABLE + "        schema: pipelines/shop/schemas/clicks.ddl #!\n", f"{LAND}.schema",
        "pipelines/shop/schemas/clicks.ddl", "a file that exists", "did you mean pipelines/shop/schemas/click.ddl?",
    ),
    "a start without its zone": (
        LAND_TABLE, LAND_TABLE + "        start: 2026-01-31T00:00:00 #!\n", f"{LAND}.start",
        "2026-01-31T00:00:00", "earliest, latest, or a time with its zone", None,
    ),
    "a start that is none": (
        LAND_TABLE, LAND_TABLE + "        start: newest #!\n", f"{LAND}.start",
        "newest", "earliest, latest, or a time with its zone", None,
    ),
    "a schema outside": (
        LAND_SCHEMA, LAND_TABLE + "        schema: pipelines/../secret.ddl #!\n", f"{LAND}.schema",
        "pipelines/../secret.ddl", "below pipelines/", None,
    ),
    "a schema by a path that the archive has not": (
        LAND_SCHEMA, LAND_TABLE + "        schema: pipelines/shop/../shop/schemas/click.ddl #!\n", f"{LAND}.schema",
        "pipelines/shop/../shop/schemas/click.ddl", "without .., which travels", None,
    ),
    "no such module": (
        TRANSFORM, "        transform: pipelines.shop.transform:counted #!\n", f"{DERIVE}.transform",
        "pipelines.shop.transform:counted", "there is no pipelines/shop/transform.py",
        "did you mean pipelines.shop.transforms?",
    ),
    "no such function": (
        TRANSFORM, "        transform: pipelines.shop.transforms:count #!\n", f"{DERIVE}.transform",
        "pipelines.shop.transforms:count", "a function of pipelines.shop.transforms: counted", "did you mean counted?",
    ),
    "a module with a syntax error": (
        TRANSFORM, "        transform: pipelines.shop.broken:counted #!\n", f"{DERIVE}.transform",
        "pipelines.shop.broken:counted", "pipelines/shop/broken.py:1", None,
    ),
    "a transform outside pipelines": (
        TRANSFORM, "        transform: os:system #!\n", f"{DERIVE}.transform", "os:system", "below pipelines", None,
    ),
    "no function named": (
        TRANSFORM, "        transform: pipelines.shop.transforms #!\n", f"{DERIVE}.transform",
        "pipelines.shop.transforms", "a function, such as", None,
    ),
    "a Spark setting of ours": (
        SPARK, '      spark.executor.cores: "8" #!\n', "jobs.clicks.spark[spark.executor.cores]", "8",
        "those that Millrace derives", "pin the plan's number",
    ),
    "a Spark setting that the core sets": (
        SPARK, '      spark.sql.ansi.enabled: "true" #!\n', "jobs.clicks.spark[spark.sql.ansi.enabled]", "true",
        "that the core sets for each query", "remove it: the core would ignore it",
    ),
    "no Spark setting": (
        SPARK, '      shuffle: "8" #!\n', "jobs.clicks.spark.shuffle", "8", "begins with spark.", None,
    ),
    # secrets
    "a password for Spark": (
        SPARK, "      spark.jdbc.password: hunter2 #!\n", "jobs.clicks.spark[spark.jdbc.password]", "hu… (7 characters)",
        "a reference", "a secret in plain text",
    ),
    "an access key in a tag": (
        "  team: web\n", f"  team: {KEY} #!\n", "tags.team", "AK… (20 characters)", "a reference",
        "a secret in plain text",
    ),
    "a password in an address": (
        CLUSTER_KIND + "    version: 3.9.x\n",
        "    kind: external\n    bootstrap_servers: sasl://user:hunter2@broker:9094 #!\n",
        "kafka.main.bootstrap_servers", "sa… (31 characters)", "a reference", "a secret in plain text",
    ),
    "a secret under an unknown key": (
        REGION, REGION + "password: hunter2 #!\n", "password", "hu… (7 characters)", "a reference",
        "a secret in plain text",
    ),
} | bad_limits.ROWS | bad_names.ROWS | bad_queries.ROWS | bad_kafka_sources.ROWS | bad_values_for_any_key.ROWS  # fmt: skip


def line_of(text: str, mark: str) -> int:
    return next((i for i, line in enumerate(text.splitlines(), 1) if mark in line), 0)


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_one_message_names_file_line_key_value_and_what_is_allowed(row: tuple, project: Path) -> None:
    old, new, key, value, allowed, hint = row
    assert GOOD.count(old) == 1, "the row must change one place"
    text = GOOD.replace(old, new)
    (project / "environments" / "shop.yaml").write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        plan(load("shop", root=project))
    if key is None:  # a bad name breaks what refers to it as well
        key, value, allowed = "streams.Clicks", "the name Clicks", "lower-case letters"
    problem = next(each for each in caught.value.problems if each.key == key)
    assert problem.file == "environments/shop.yaml"
    if "#!" in new:
        assert problem.line == line_of(text, "#!")
    else:
        assert problem.line > 1
    assert problem.value == value
    assert allowed in problem.allowed
    assert hint is None or hint in (problem.hint or "")
    if row not in (ROWS["name of a stream"], ROWS["a stream written twice"]):  # others refer to these
        assert len(caught.value.problems) == 1


@pytest.mark.parametrize(
    "row", bad_values_for_any_key.UNREADABLE.values(), ids=bad_values_for_any_key.UNREADABLE.keys()
)
def test_a_text_that_no_value_can_be_made_of_is_told_with_its_key_and_line(row: tuple, project: Path) -> None:
    old, new = row
    assert GOOD.count(old) == 1, "the row must change one place"
    text = GOOD.replace(old, new)
    (project / "environments" / "shop.yaml").write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        plan(load("shop", root=project))
    (problem,) = caught.value.problems
    assert (problem.file, problem.line) == ("environments/shop.yaml", line_of(text, "#!"))
    (key,) = re.findall(r"(\w+): [^:]*#!", text)
    assert f".{key} " in problem.value
    assert problem.allowed == "readable YAML"


def test_the_good_file_is_good(project: Path) -> None:
    environment = load("shop", root=project)
    assert environment.name == "shop"
    job = plan(environment).jobs["clicks"]
    assert (job.cores.value, job.executors.value, job.vcpu) == (4, 1, 4)


def test_all_mistakes_are_told_at_once(project: Path) -> None:
    text = (
        GOOD.replace(CLICKS_RETENTION, "    retention: 1h\n")
        .replace(GLUE_WORKER, "    worker: G.3X\n")
        .replace(EMR_WORKER, "    worker: {vcpu: 4, memory: 31GiB}\n")
        .replace(TRANSFORM, "        transform: pipelines.shop.transforms:nothing\n")
        .replace(CLICKS_RATE, "      records_per_second: none\n")
        .replace(LAND_TABLE, LAND_TABLE + "        trigger: 5\n")
    )
    (project / "environments" / "shop.yaml").write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        load("shop", root=project)
    assert {problem.key for problem in caught.value.problems} == {
        "jobs.clicks.queries.count-clicks.transform",
        "jobs.clicks.queries.land-clicks.trigger",
        "jobs.clicks.worker",
        "jobs.orders.worker.memory",
        "streams.clicks.retention",
        "streams.clicks.traffic.records_per_second",
    }


def test_a_broken_name_hides_no_mistake_below_it(project: Path) -> None:
    text = GOOD.replace("  clicks:\n" + CLICKS_KIND, "  Clicks:\n" + CLICKS_KIND).replace(CLICKS_RATE, "")
    (project / "environments" / "shop.yaml").write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        load("shop", root=project)
    keys = {problem.key for problem in caught.value.problems}
    assert {"streams.Clicks", "streams.Clicks.traffic.records_per_second"} <= keys


def test_a_folder_is_no_environment(project: Path) -> None:
    (project / "environments" / "folder.yaml").mkdir()
    with pytest.raises(ConfigurationError, match="no environment 'folder'") as caught:
        load("folder", root=project)
    assert "folder" not in caught.value.problems[0].allowed


def test_settings_that_the_core_sets_are_known():
    """The configuration imports nothing of the core."""
    assert required_spark_settings.RUNTIME.keys() == check_jobs.FIXED_IN_CORE
