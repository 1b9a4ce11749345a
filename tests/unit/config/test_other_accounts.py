"""Resources of other accounts are refused unless ``governance.other_accounts`` names them; existing ones are listed.

Those of another partition are refused, and those of another region where jobs or services use their own region alone.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from millrace.config import ConfigurationError, load
from millrace.config.aws.foreign_accounts_and_hosts import hosts_of_urls_and_servers, ports_of_urls
from millrace.config.document.yaml_tree import Tree
from tests.unit.cli.test_command_output import millrace

DEV = """
project: shop
account: "111122223333"
region: us-east-1
streams:
  orders: {kind: kinesis, traffic: {records_per_second: 10, record_size: 1KiB}}
jobs:
  orders:
    engine: glue
    latency: 60s
    role: arn:aws:iam::111122223333:role/orders
    queries:
      land: {kind: land, source: orders, table: orders_landed, schema: pipelines/order.ddl}
      send:
        kind: derive
        source: orders_landed
        dead_letters: orders_refused
        sink:
          kind: jdbc
          url: jdbc:postgresql://dev-db.internal:5432/shop
          secret: arn:aws:secretsmanager:us-east-1:111122223333:secret:shop-AbCdEf
          table: public.orders
"""
PROD = 'extends: dev\naccount: "444455556666"\n'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in (
        ("environments/dev.yaml", DEV),
        ("environments/prod.yaml", PROD),
        ("pipelines/order.ddl", "order_id STRING"),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_hosts_of_the_file_are_those_that_a_resolver_is_asked_for(project: Path) -> None:
    tree = load("dev", root=project).value_locations.tree
    assert tree is not None
    assert hosts_of_urls_and_servers(tree) == ["dev-db.internal"]
    for text, hosts in {
        "b-1.example.com:9092,B-2.example.com:9092": ["b-1.example.com", "b-2.example.com"],
        "https://10.0.0.1:8081": [],
        "s3://a.bucket/prefix": [],
        "https://registry.example.com/path?x=http": ["registry.example.com"],
        "https://reader@registry.example.com:8081": ["registry.example.com"],
    }.items():
        assert hosts_of_urls_and_servers(Tree(tree.file, 1, {"url": Tree(tree.file, 1, text)})) == hosts, text


@pytest.mark.parametrize(
    ("value", "ports"),
    [
        ("https://registry.example.com:8081", [8081]),
        ("https://registry.example.com", [443]),
        ("http://registry.example.com/path:9/?a=b:7", [80]),
        ("http://10.0.0.7:8081/", [8081]),
        ("http://[fd00::1]:8081/", [8081]),
        ("https://reader@registry.example.com:8081?x=1", [8081]),
        ("jdbc:postgresql://db.shop/shop", [5432]),
        ("jdbc:postgresql://db.shop:6432/shop?currentSchema=shop", [6432]),
        ("http://one.example:1,https://two.example:2", [1, 2]),
        ("s3://bucket/prefix", []),
        ("arn:aws:s3:::bucket", []),
        (12, []),
        (None, []),
    ],
)
def test_ports_of_urls(value: object, ports: list[int]) -> None:
    assert ports_of_urls(value) == ports


@pytest.mark.parametrize("port", ["0", "65536", "99999"])
def test_no_server_has_such_a_port(project: Path, port: str) -> None:
    text = DEV.replace("dev-db.internal:5432", f"dev-db.internal:{port}")
    (project / "environments/dev.yaml").write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        load("dev", root=project)
    (problem,) = caught.value.problems
    assert (problem.key, problem.allowed) == ("jobs.orders.queries.send.sink.url", "a port from 1 to 65535")


def test_everything_of_another_account_is_an_error_at_once(project: Path) -> None:
    load("dev", root=project)
    with pytest.raises(ConfigurationError) as caught:
        load("prod", root=project)
    told = {problem.key: problem for problem in caught.value.problems}
    assert set(told) == {"jobs.orders.role", "jobs.orders.queries.send.sink.secret"}
    secret = told["jobs.orders.queries.send.sink.secret"]
    assert secret.file == "environments/dev.yaml"
    assert (
        secret.allowed
        == "a value of account 444455556666; if account 111122223333 is intended, list it in governance.other_accounts"
    )


@pytest.mark.parametrize(
    "line",
    [
        "tags: {owner: 'arn:aws:iam::111122223333:role/x'}",
        "jobs: {orders: {spark: {spark.hadoop.role: 'a arn:aws-cn:iam::111122223333:role/x'}}}",
        "jobs: {orders: {spark: {spark.hadoop.role: 'arn%3Aaws%3Aiam%3A%3A111122223333%3Arole%2Fx'}}}",
        "jobs: {orders: {spark: {spark.queue: 'https://sqs.us-east-1.amazonaws.com/111122223333/orders'}}}",
        "jobs: {orders: {spark: {spark.hadoop.hive.metastore.glue.catalogid: '111122223333'}}}",
        "tags: {'arn:aws:iam::111122223333:role/x': owner}",
        "jobs: {orders: {engine: emr, version: emr-7.13.0, image: '111122223333.dkr.ecr.us-east-1.amazonaws.com/a:1'}}",
    ],
)
def test_it_is_found_in_any_value(project: Path, line: str) -> None:
    (project / "environments/prod.yaml").write_text(f"{PROD}{line}\n")
    with pytest.raises(
        ConfigurationError, match=r"environments/prod\.yaml:3.*list it in governance.other_accounts"
    ):
        load("prod", root=project)


ELSEWHERE = {
    "streams.orders.existing_key": ("arn:{}:kms:{}:111122223333:key/1", "a key"),
    "storage.keys.logs": ("arn:{}:kms:{}:111122223333:key/1", "a key"),
    "governance.bootstrap_key": ("arn:{}:kms:{}:111122223333:key/1", "a key"),
    "governance.permissions_boundary": ("arn:{}:iam::111122223333:policy/x", None),
    "network.flow_logs_role": ("arn:{}:iam::111122223333:role/x", None),
    "jobs.orders.role": ("arn:{}:iam::111122223333:role/x", None),
    "jobs.orders.queries.send.sink.secret": (
        "arn:{}:secretsmanager:{}:111122223333:secret:x-AbCdEf",
        "a secret",
    ),
    "jobs.orders.queries.send.sink.secret_key": ("arn:{}:kms:{}:111122223333:key/1", "a key"),
    "kafka.theirs.authentication.secret": (
        "arn:{}:secretsmanager:{}:111122223333:secret:x-AbCdEf",
        "a secret",
    ),
    "kafka.theirs.arn": ("arn:{}:kafka:{}:111122223333:cluster/c/1", None),
    "tables.carriers.key": ("arn:{}:kms:{}:111122223333:key/1", None),
}
BESIDE: dict[str, dict[str, object]] = {
    "streams.orders": {"existing": "orders", "shards": 1},
    "kafka.theirs": {"kind": "external", "bootstrap_servers": "b.example:9096"},
    "kafka.theirs.authentication": {"kind": "scram-sha-512", "secret": ELSEWHERE["kafka.theirs.authentication.secret"][0].format("aws", "us-east-1")},
    "tables.carriers": {"database": "d", "table": "t", "location": "s3://bucket-b/t"},
}  # fmt: skip


def problems_with(project: Path, key: str, value: object) -> list[tuple[str, str]]:
    """Load the environment with one value more; return key and allowed values of each problem."""
    node = document = YAML(typ="safe").load(DEV)
    path = key.split(".")
    for number, step in enumerate(path[:-1], start=1):
        node = node.setdefault(step, {})
        node |= BESIDE.get(".".join(path[:number]), {})
    node[path[-1]] = value
    (project / "environments/dev.yaml").write_text(json.dumps(document))
    try:
        load("dev", root=project)
    except ConfigurationError as error:
        return [(each.key, each.allowed) for each in error.problems]
    return []


@pytest.mark.parametrize("key", ELSEWHERE)
def test_every_arn_is_of_the_environments_partition_and_region(project: Path, key: str) -> None:
    arn, noun = ELSEWHERE[key]
    assert problems_with(project, key, arn.format("aws", "us-east-1")) == []
    partition = (key, "an ARN that begins with arn:aws:, as all of us-east-1")
    assert problems_with(project, key, arn.format("aws-cn", "us-east-1")) == [partition]
    assert problems_with(project, key, arn.format("aws", "eu-west-1")) == (
        [(key, f"{noun} in us-east-1")] if noun else []
    )


def test_an_image_of_a_job_is_in_the_region(project: Path) -> None:
    text = DEV.replace("engine: glue", "engine: emr\n    image: '111122223333.dkr.ecr.{}/x:1'")
    for registry, allowed in {
        "us-east-1.amazonaws.com": [],
        "eu-west-1.amazonaws.com": ["an image in us-east-1"],
        "us-east-1.amazonaws.com.cn": ["an image in us-east-1"],
    }.items():
        (project / "environments/dev.yaml").write_text(text.replace("{}/x:1", f"{registry}/x:1"))
        try:
            problems = []
            load("dev", root=project)
        except ConfigurationError as error:
            problems = [each.allowed for each in error.problems if each.key == "jobs.orders.image"]
        assert problems == allowed, registry


def test_tags_and_spark_settings_may_name_any_region(project: Path) -> None:
    assert problems_with(project, "tags.owner", "arn:aws-cn:iam::111122223333:role/x") == []
    assert problems_with(project, "tags.key", "arn:aws:kms:eu-west-1:111122223333:key/1") == []
    spark = {"spark.hadoop.role": "arn:aws-cn:iam::111122223333:role/x"}
    assert problems_with(project, "jobs.orders.spark", spark) == []


def test_what_is_meant_is_taken_and_listed_once(project: Path) -> None:
    own = "jobs: {orders: {role: 'arn:aws:iam::444455556666:role/orders'}}\n"
    (project / "environments/prod.yaml").write_text(
        f'{PROD}governance: {{other_accounts: ["111122223333"]}}\n{own}'
    )
    done = millrace("validate", "--env", "prod", "--no-spark", cwd=project)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1:] == [
        "these accounts, hosts and secrets come from the file that it extends:",
        "  jobs.orders.queries.send.sink.url: jdbc:postgresql://dev-db.internal:5432/shop (dev.yaml)",
        "  jobs.orders.queries.send.sink.secret: arn:aws:secretsmanager:us-east-1:111122223333:secret:shop-AbCdEf (dev.yaml)",
    ]
    assert millrace("validate", "--env", "dev", "--no-spark", cwd=project).stdout.count("\n") == 1
