"""Resources of other accounts are refused unless ``governance.other_accounts`` names them; existing ones are listed."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.config import ConfigurationError, load
from millrace.config.aws.foreign_accounts_and_hosts import hosts_of_urls_and_servers
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
    }.items():
        assert hosts_of_urls_and_servers(Tree(tree.file, 1, {"url": Tree(tree.file, 1, text)})) == hosts, text


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
