"""Each mistake in network, storage, governance, history server or existing resources gives one problem."""

from pathlib import Path

import pytest

from millrace.config import ConfigurationError, load
from millrace.config.aws.resource_names import Names
from millrace.sizing import plan
from tests.unit.config.conftest import GOOD

KEY = "arn:aws:kms:us-east-1:111122223333:key/1234abcd"
MSK = "arn:aws:kafka:us-east-1:111122223333:cluster/shared/abcd-1"
NET = "  availability_zones: 3\n"
VPC = "  vpc: vpc-0123456789abcdef0\n  subnets: [subnet-0123456789abcdef0, subnet-0123456789abcdef1]\n"
CLICKS = "    kind: kinesis\n"
KAFKA = "    kind: msk\n    version: 3.9.x\n"
TOPIC = "    topic: orders\n"
TOP = "project: shop\n"
GLUE = "    worker: G.1X\n"
EMR = "    worker: {vcpu: 4, memory: 16GiB}\n"
LAND_CLICKS = "        source: clicks\n"
LAND_ORDERS = "        source: orders\n"
EXISTING = "arn:aws:kinesis:us-east-1:999988887777:stream/clicks"

CERTIFICATE = "arn:aws:acm:us-east-1:111122223333:certificate/1"
SIGN_IN = (
    "history: {{clients: [10.0.0.0/8], sign_in: {{issuer: 'https://x', authorization_endpoint: 'https://x/a', "
    "token_endpoint: 'https://x/t', user_info_endpoint: 'https://x/u', client_id: m, session: {1}, "
    "secret: 'arn:aws:secretsmanager:{0}:111122223333:secret:x-AbCdEf'}}}}\n"
)

ROWS = {
    "a zone of another subnet": (
        NET, VPC + "  zones: {subnet-0123456789abcdef0: us-east-1a, subnet-0123456789abcdef9: us-east-1b}\n",
        "network.zones.subnet-0123456789abcdef9", "us-east-1b", "subnets that",
    ),
    "a zone of another region": (
        NET, VPC + "  zones: {subnet-0123456789abcdef0: eu-west-1a, subnet-0123456789abcdef1: us-east-1a}\n",
        "network.zones.subnet-0123456789abcdef0", "eu-west-1a", "a zone of us-east-1",
    ),
    "two subnets of one zone": (
        NET, VPC + "  zones: {subnet-0123456789abcdef0: us-east-1a, subnet-0123456789abcdef1: us-east-1a}\n",
        "network.zones", "us-east-1a, us-east-1a", "two or more",
    ),
    "a way out of another's VPC": (NET, VPC + "  egress: nat\n", "network.egress", "nat", "is never changed"),
    "an unknown way out": (NET, NET + "  egress: internet\n", "network.egress", "internet", "endpoints, nat, cheapest"),
    "one availability zone": (NET, "  availability_zones: 1\n", "network.availability_zones", "1", "at least 2"),
    "a key that is an alias": (
        TOP, TOP + "storage: {keys: {data: alias/company}}\n", "storage.keys.data", "alias/company", "a key's ARN",
    ),
    "a key of another region": (
        TOP, TOP + f"storage: {{keys: {{data: {KEY.replace('us-east-1', 'eu-west-1')}}}}}\n",
        "storage.keys.data", KEY.replace("us-east-1", "eu-west-1"), "a key in us-east-1",
    ),
    "an unknown kind of bucket": (
        TOP, TOP + "storage: {buckets: {lakes: company-lake}}\n", "storage.buckets.lakes", "the name lakes",
        "one of lake, checkpoints",
    ),
    "one bucket for two purposes": (
        TOP, TOP + "storage: {buckets: {lake: company, checkpoints: company}}\n",
        "storage.buckets.checkpoints", "company", "a bucket of its own",
    ),
    "deleting what exists": (
        TOP, TOP + "storage: {buckets: {lake: company}, disposable: [lake]}\n",
        "storage.disposable", "lake", "company is not ours",
    ),
    "an unknown thing to dispose of": (
        TOP, TOP + "storage: {disposable: [everything]}\n", "storage.disposable[0]", "everything", "one of lake",
    ),
    "half a day of dead letters": (
        TOP, TOP + "storage: {dead_letter_retention: 12h}\n", "storage.dead_letter_retention", "12h", "whole days",
    ),
    "dead letters that go before their stream forgets them": (
        TOP, TOP + "storage: {dead_letter_retention: 1d}\n", "storage.dead_letter_retention", "1d", "at least 7d, as long",
    ),
    "a boundary that is a name": (
        TOP, TOP + "governance: {permissions_boundary: Boundary}\n", "governance.permissions_boundary", "Boundary",
        "a policy's ARN",
    ),
    "a path without slashes": (
        TOP, TOP + "governance: {role_path: streaming}\n", "governance.role_path", "streaming", "begins and ends with /",
    ),
    "a key of another region's bootstrap": (
        TOP,
        TOP + "governance: {bootstrap_key: 'arn:aws:kms:eu-west-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab'}\n",
        "governance.bootstrap_key",
        "arn:aws:kms:eu-west-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab", "a key in us-east-1",
    ),
    "a DNS firewall in somebody's VPC": (
        NET, VPC + "  allowed_domains: [example.com]\n", "network.allowed_domains", "('example.com',)", "is never changed",
    ),
    "a domain with a path": (
        NET, NET + "  allowed_domains: [example.com/orders]\n", "network.allowed_domains[0]", "example.com/orders",
        "a domain name, such as example.com or *.example.com",
    ),
    "a qualifier with capitals": (
        TOP, TOP + "governance: {qualifier: Acme}\n", "governance.qualifier", "Acme", "up to 10 lower-case",
    ),
    "no address": (
        TOP, TOP + "observability: {notify: [oncall]}\n", "observability.notify[0]", "oncall", "an e-mail address",
    ),
    "a channel without its workspace": (
        TOP, TOP + "observability: {channels: ['slack:C0123ABCD']}\n", "observability.channels[0]", "slack:C0123ABCD", "slack:",
    ),
    "a channel without a role": (
        TOP, TOP + "observability: {channels: ['slack:T0123ABCD/C0123ABCD']}\n", "observability.channel_role", "(missing)",
        "a role for the channels",
    ),
    "samples for a week": (
        TOP, TOP + "observability: {prometheus_retention: 7d}\n", "observability.prometheus_retention", "7d",
        "at least 30 days",
    ),
    "too much memory for Fargate": (
        TOP, TOP + "history: {clients: [10.0.0.0/8], vcpu: 1, memory_gib: 16}\n", "history.memory_gib", "16", "with 1 vCPU: 2 to 8",
    ),
    "a history server for everybody": (
        TOP, TOP + "history: {clients: [0.0.0.0/0]}\n", "history.clients[0]", "0.0.0.0/0", "a private IPv4 range",
    ),
    "a history server whose readers nobody named": (
        TOP, TOP + "history: {}\n", "history.clients", "(missing)", "required",
    ),
    "sign-in without TLS": (
        TOP, TOP + SIGN_IN.format("us-east-1", "8h"), "history.certificate", "(missing)", "without HTTPS",
    ),
    "sign-in with a secret elsewhere": (
        TOP, TOP + SIGN_IN.format("eu-west-1", "8h").replace("[10.0.0.0/8]", f"[10.0.0.0/8], certificate: {CERTIFICATE}"),
        "history.sign_in.secret", "arn:aws:secretsmanager:eu-west-1:111122223333:secret:x-AbCdEf", "a secret in us-east-1",
    ),
    "a session of a month": (
        TOP, TOP + SIGN_IN.format("us-east-1", "30d").replace("[10.0.0.0/8]", f"[10.0.0.0/8], certificate: {CERTIFICATE}"),
        "history.sign_in.session", "30d", "at most 7 days",
    ),
    "a public image": (
        TOP, TOP + "history: {clients: [10.0.0.0/8], image: apache/spark:3.5.6}\n", "history.image", "apache/spark:3.5.6", "private ECR",
    ),
    "a certificate elsewhere": (
        TOP, TOP + "history: {clients: [10.0.0.0/8], certificate: arn:aws:acm:eu-west-1:111122223333:certificate/1}\n",
        "history.certificate", "arn:aws:acm:eu-west-1:111122223333:certificate/1", "in us-east-1",
    ),
    "deleting an existing stream": (
        CLICKS, CLICKS + "    existing: theirs\n    shards: 2\n    disposable: true\n",
        "streams.clicks.disposable", "true", "never deleted",
    ),
    "changing an existing stream": (
        CLICKS, CLICKS + "    existing: theirs\n    shards: 2\n    shard_level_metrics: true\n",
        "streams.clicks.shard_level_metrics", "given", "never changed",
    ),
    "fan-out at an existing stream": (
        LAND_CLICKS, LAND_CLICKS + "        fan_out: true\n",
        "jobs.clicks.queries.land-clicks.fan_out", "true", "would register",
    ),
    "another account without a role": (
        CLICKS, CLICKS + f"    existing: {EXISTING}\n    shards: 2\n",
        "streams.clicks.read_role", "(missing)", "a role in account 999988887777",
    ),
    "a role of a third account": (
        CLICKS, CLICKS + f"    existing: {EXISTING}\n    shards: 2\n    read_role: arn:aws:iam::111122223333:role/r\n",
        "streams.clicks.read_role", "arn:aws:iam::111122223333:role/r", "account 999988887777",
    ),
    "a stream of another region": (
        CLICKS, CLICKS + "    existing: arn:aws:kinesis:eu-west-1:111122223333:stream/clicks\n    shards: 2\n",
        "streams.clicks.existing", "arn:aws:kinesis:eu-west-1:111122223333:stream/clicks", "in us-east-1",
    ),
    "a key for a stream of ours": (
        CLICKS, CLICKS + f"    existing_key: {KEY}\n", "streams.clicks.existing_key", KEY, "together with existing",
    ),
    "present shards of an on-demand stream": (
        CLICKS, CLICKS + "    mode: on-demand\n    shards_now: 4\n", "streams.clicks.shards_now", "4", "on-demand",
    ),
    "fan-out of a topic": (
        LAND_ORDERS, LAND_ORDERS + "        fan_out: true\n",
        "jobs.orders.queries.land-orders.fan_out", "true", "Kinesis' own",
    ),
    "twenty consumers and ours": (
        CLICKS, CLICKS + f"    fan_out_consumers: [{', '.join(f'c-{n}' for n in range(20))}]\n",
        "streams.clicks.fan_out_consumers", "21 consumers", "at most 20",
    ),
    "deleting an existing topic": (
        TOPIC, TOPIC + "    existing: true\n    partitions: 3\n    disposable: true\n",
        "streams.orders.disposable", "true", "never deleted",
    ),
    "sizing an existing cluster": (
        KAFKA, f"    kind: msk\n    existing: {MSK}\n    brokers: 3\n", "kafka.main.brokers", "3", "never changed",
    ),
    "a cluster of another account": (
        KAFKA, f"    kind: msk\n    existing: {MSK.replace('111122223333', '999988887777')}\n",
        "kafka.main.existing", MSK.replace("111122223333", "999988887777"), "a cluster of account 111122223333",
    ),
    "IAM to nobody knows which cluster": (
        KAFKA, "    kind: external\n    bootstrap_servers: b-1:9098\n    authentication: iam\n",
        "kafka.main.arn", "(missing)", "the cluster's ARN",
    ),
    "seven days of a Glue job": (GLUE, GLUE + "    timeout: 7d\n", "jobs.clicks.timeout", "7d", "below 7 days"),
    "half a minute of a Glue job": (GLUE, GLUE + "    timeout: 90s\n", "jobs.clicks.timeout", "90s", "whole minutes"),
    "too many retries": (GLUE, GLUE + "    retries: 11\n", "jobs.clicks.retries", "11", "at most 10"),
    "a role that is a name": (GLUE, GLUE + "    role: streaming\n", "jobs.clicks.role", "streaming", "a role's ARN"),
    "a role of another account": (
        GLUE, GLUE + "    role: arn:aws:iam::999988887777:role/r\n", "jobs.clicks.role",
        "arn:aws:iam::999988887777:role/r", "a role of account 111122223333",
    ),
    "a role of another account for flow logs": (
        NET, NET + "  flow_logs_role: arn:aws:iam::999988887777:role/r\n", "network.flow_logs_role",
        "arn:aws:iam::999988887777:role/r", "a role of account 111122223333",
    ),
    "fewer at the start than always": (
        EMR, EMR + "    min_executors: 3\n    initial_executors: 2\n", "jobs.orders.initial_executors", "2", "at least 3",
    ),
    "idle for seconds": (EMR, EMR + "    idle_stop: 30s\n", "jobs.orders.idle_stop", "30s", "whole minutes"),
    "writing a table of somebody else's": (
        TOP, TOP + "tables: {clicks_landed: {database: d, table: t, location: s3://company-lake/t}}\n",
        "jobs.clicks.queries.land-clicks.table", "clicks_landed", "never written",
    ),
    "a location with a star": (
        TOP, TOP + "tables: {pages: {database: d, table: t, location: 's3://company-lake/*'}}\n",
        "tables.pages.location", "s3://company-lake/*", "a prefix",
    ),
}  # fmt: skip


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_one_message_names_the_key_the_value_and_what_is_allowed(row: tuple, project: Path) -> None:
    old, new, key, value, allowed = row
    assert GOOD.count(old) == 1, "the row must change one place"
    text = GOOD.replace(old, new)
    if EXISTING in text:
        text += 'governance: {other_accounts: ["999988887777"]}\n'
    if row is ROWS["fan-out at an existing stream"]:
        text = text.replace(CLICKS, CLICKS + "    existing: theirs\n    shards: 2\n")
    if row is ROWS["twenty consumers and ours"]:
        text = text.replace(LAND_CLICKS, LAND_CLICKS + "        fan_out: true\n")
    (project / "environments" / "shop.yaml").write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        plan(load("shop", root=project))
    (problem,) = caught.value.problems
    assert (problem.file, problem.key, problem.value) == ("environments/shop.yaml", key, value)
    assert problem.line > 0
    assert allowed in problem.allowed


def test_what_exists_keeps_its_own_name(project: Path) -> None:
    text = (
        GOOD.replace(
            CLICKS,
            CLICKS
            + f"    existing: {EXISTING}\n    shards: 2\n    read_role: arn:aws:iam::999988887777:role/r\n",
        )
        .replace(KAFKA, f"    kind: msk\n    existing: {MSK}\n")
        .replace(
            TOP,
            TOP + "storage: {buckets: {lake: company-lake}, database: company}\n"
            "governance: {name_prefix: acme, other_accounts: ['999988887777']}\n"
            "tables: {pages: {database: reference, table: web_pages, location: s3://company-lake/pages}}\n",
        )
    )
    (project / "environments" / "shop.yaml").write_text(text)
    names = Names(load("shop", root=project), "111122223333")
    assert names.prefix == "acme-shop-shop"
    assert (names.stream("clicks"), names.stream_arn("clicks")) == ("clicks", EXISTING)
    assert names.cluster("main") == "shared"
    assert names.bucket("lake") == "company-lake"
    assert names.bucket("checkpoints").startswith("acme-shop-shop-checkpoints-111122223333")
    assert names.table("pages") == "reference.web_pages"
    assert names.table("clicks_landed") == "company.clicks_landed"
    assert names.stack("storage") == "acme-shop-shop-storage"


OWNED = "storage: {buckets: {lake: their-lake, checkpoints: their-checkpoints, event-logs: their-logs}, database: theirs}\n"


def test_two_environments_cannot_have_one_bucket_for_checkpoints(project: Path) -> None:
    """Jobs of one name would read, write and delete each other's."""
    folder = project / "environments"
    (folder / "shop.yaml").write_text(GOOD.replace(TOP, TOP + OWNED))
    load("shop", root=project)
    (folder / "base.yaml").write_text(OWNED)
    (folder / "east.yaml").write_text("extends: base\n" + GOOD)
    (folder / "broken.yaml").write_text("storage: [\n")
    for name, text in {
        "odd": "storage: {buckets: 5}",
        "list": "[1]",
        "empty": "",
        "many": "account: [1]\n" + OWNED,
    }.items():
        (folder / f"{name}.yaml").write_text(text + "\n")
    with pytest.raises(ConfigurationError) as caught:
        load("east", root=project)
    assert {(p.file, p.key, p.value) for p in caught.value.problems} == {
        ("environments/base.yaml", "storage.database", "theirs"),
        ("environments/base.yaml", "storage.buckets.checkpoints", "their-checkpoints"),
        ("environments/base.yaml", "storage.buckets.event-logs", "their-logs"),
    }
    assert all("that no other environment uses" in p.allowed for p in caught.value.problems)


def test_environments_of_two_accounts_are_apart(project: Path) -> None:
    folder = project / "environments"
    (folder / "shop.yaml").write_text(GOOD.replace(TOP, TOP + OWNED))
    (folder / "far.yaml").write_text(GOOD.replace(TOP, TOP + OWNED).replace("111122223333", "444455556666"))
    assert load("far", root=project).storage.database == "theirs"
