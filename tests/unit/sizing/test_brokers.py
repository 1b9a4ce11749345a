"""Brokers of a plan: number, type, volumes, quotas and versions."""

import contextlib
import math

import pytest
import yaml

from millrace.config.document.problems import ConfigurationError
from millrace.sizing import plan, total_cost
from millrace.sizing.cost_saving_moves import find_moves
from millrace.sizing.plan_model import ClusterPlan
from millrace.sizing.prices_and_limits import service_limits
from tests.unit.sizing.conftest import Loader

KAFKA = """\
project: advice
account: "111122223333"
network: {{availability_zones: 3}}
kafka:
  main: {{kind: msk, {cluster}}}
streams:
  clicks:
    kind: kafka
    cluster: main
    retention: {retention}
    traffic: {{records_per_second: {rate}, record_size: 1KiB, basis: measured}}
jobs:
  clicks:
    engine: emr
    worker: {{vcpu: 8, memory: 32GiB, disk: 50GiB}}
    rate: {{records_per_second_per_core: 5000, basis: measured}}
    queries:
      land: {{kind: land, source: clicks, table: landed, schema: pipelines/clicks/schemas/click.ddl}}
"""


@pytest.mark.parametrize(
    ("cluster", "rate", "brokers", "kind"),
    [
        ("tier: standard", 1024, 3, "kafka.m7g.large"),
        ("tier: standard", 1024 * 40, 9, "kafka.m7g.large"),
        ("tier: express", 1024 * 40, 3, "express.m7g.large"),
        ("tier: express", 1024 * 60, 3, "express.m7g.xlarge"),
        ("tier: express, broker_type: express.m7g.xlarge", 1024, 3, "express.m7g.xlarge"),
        ("broker_type: express.m7g.xlarge", 1024, 3, "express.m7g.xlarge"),
        ("broker_type: kafka.m7g.xlarge", 1024, 3, "kafka.m7g.xlarge"),
    ],
)
def test_brokers_by_throughput(from_text: Loader, cluster: str, rate: int, brokers: int, kind: str) -> None:
    found = plan(from_text(KAFKA.format(cluster=cluster, retention="1d", rate=rate))).clusters["main"]
    assert found.brokers is not None
    assert found.broker_type is not None
    assert (found.brokers.value, found.broker_type.value) == (brokers, kind)
    assert brokers * service_limits().brokers[kind].producer_mib_per_second(1) >= rate / 1024


EGRESS = {
    "large": 31.2,
    "xlarge": 62.5,
    "2xlarge": 125,
    "4xlarge": 249.8,
    "8xlarge": 500,
    "12xlarge": 750,
    "16xlarge": 1000,
}
"""MB/s out of an Express broker (MSK developer guide, "Best practices for Express brokers")."""


@pytest.mark.parametrize("readers", [1, 3, 5, 12])
def test_express_brokers_give_out_what_all_readers_take(from_text: Loader, readers: int) -> None:
    document = yaml.safe_load(KAFKA.format(cluster="tier: express", retention="1d", rate=40 * 1024))
    job = document["jobs"].pop("clicks")
    document["jobs"] = {
        f"clicks-{n}": job | {"queries": {f"land-{n}": job["queries"]["land"] | {"table": f"landed_{n}"}}}
        for n in range(readers)
    }
    found = plan(from_text(yaml.safe_dump(document, sort_keys=False))).clusters["main"]
    assert found.brokers is not None
    assert found.broker_type is not None
    kind = found.broker_type.value.rpartition(".")[2]
    assert readers * 40 <= found.brokers.value * EGRESS[kind]
    assert ("MiB/s out" in found.brokers.why) == (readers > 1)


@pytest.mark.parametrize(
    ("kind", "provisioned", "default"),
    [
        ("large", 6.1, 6.1), ("xlarge", 12.0, 12.0), ("2xlarge", 24.0, 24.0), ("4xlarge", 48.1, 19.2),
        ("8xlarge", 76.9, 19.2), ("12xlarge", 76.9, 19.2), ("16xlarge", 76.9, 19.2),
    ],
)  # fmt: skip
def test_a_standard_broker_takes_what_the_formula_of_aws_gives(
    kind: str, provisioned: float, default: float
) -> None:
    broker = service_limits().brokers[f"kafka.m7g.{kind}"]
    assert broker.producer_mib_per_second(1, broker.volume) == pytest.approx(provisioned, abs=0.05)
    assert broker.producer_mib_per_second(1) == pytest.approx(default, abs=0.05)
    # Many readers make the network the limit: 5.7 and 1.5 for each, halved.
    assert broker.producer_mib_per_second(1000, broker.volume) == pytest.approx(broker.network / 1505.7 / 2)


def test_volumes_get_the_throughput_that_the_plan_counts_on(from_text: Loader) -> None:
    cluster = "tier: standard, broker_type: kafka.m7g.8xlarge"
    found = plan(from_text(KAFKA.format(cluster=cluster, retention="6h", rate=1024 * 200))).clusters["main"]
    assert found.brokers is not None
    assert found.brokers.value == 3
    # Twice what AWS' formula gives, times the bytes of a byte: 200 MiB/s over three brokers.
    assert found.volume_mib == math.ceil(200 / 3 * 2 * 6.5)
    cost = {line.name: line.usd for line in found.cost}
    assert cost["volume throughput"] == pytest.approx(3 * found.volume_mib * 0.08)
    small = plan(from_text(KAFKA.format(cluster=cluster, retention="6h", rate=1024 * 50))).clusters["main"]
    assert small.volume_mib is None


@pytest.mark.parametrize(
    ("rate", "peak", "brokers", "kind", "storage_gib"),
    [
        # Twelve would do, of 15,000 GiB; in the next case nine of type large.
        (69_200, 2, 15, "kafka.m7g.xlarge", 10_000),
        (44_719, 1, 6, "kafka.m7g.xlarge", 16_384),
        (1024, 1, 3, "kafka.m7g.large", 800),
    ],
)
def test_brokers_are_chosen_with_the_price_of_their_volumes(
    from_text: Loader, rate: int, peak: int, brokers: int, kind: str, storage_gib: int
) -> None:
    def cluster(pins: str) -> ClusterPlan:
        text = KAFKA.format(cluster=f"tier: standard{pins}", retention="7d", rate=rate)
        return plan(from_text(text.replace("1KiB,", f"1KiB, peak_factor: {peak},"))).clusters["main"]

    found = cluster("")
    usd = sum(line.usd for line in found.cost)
    for other in ("large", "xlarge", "2xlarge"):
        for number in range(3, 19, 3):
            with contextlib.suppress(ConfigurationError):
                pinned = cluster(f", broker_type: kafka.m7g.{other}, brokers: {number}")
                assert sum(line.usd for line in pinned.cost) >= usd - 1e-6
    assert found.brokers is not None
    assert found.broker_type is not None
    assert found.storage_gib_per_broker is not None
    sizes = (found.brokers.value, found.broker_type.value, found.storage_gib_per_broker.value)
    assert sizes == (brokers, kind, storage_gib)


def test_more_brokers_than_a_quota_are_a_warning(from_text: Loader) -> None:
    cluster = "tier: standard, broker_type: kafka.m7g.large"
    found = plan(from_text(KAFKA.format(cluster=cluster, retention="1d", rate=1024 * 560)))
    words = [each for each in found.warnings if "until AWS raises the quota" in each]
    assert ["60 at most" in words[0], "90 at most" in words[1]] == [True, True]
    few = plan(from_text(KAFKA.format(cluster="tier: standard", retention="1d", rate=1024 * 560)))
    assert few.clusters["main"].brokers is not None
    assert few.clusters["main"].brokers.value <= 60, "the search stays within it where it can"


def test_serverless_has_no_brokers_but_a_price(from_text: Loader) -> None:
    found = plan(
        from_text(
            KAFKA.format(
                cluster="tier: serverless", retention="1d\n    existing: true\n    partitions: 4", rate=100
            )
        )
    ).clusters["main"]
    assert (found.brokers, found.broker_type, found.storage_gib_per_broker) == (None, None, None)
    assert sum(item.usd for item in found.cost) > 730 * 0.75


SMALL = """\
jobs:
  small:
    engine: emr
    queries:
"""


def test_readers_of_a_small_topic_read_nothing_of_a_large_one(from_text: Loader) -> None:
    """10 records/s with three readers and 10,000 with one are 10,030 KiB/s out, which a cluster carries like 10,010 with one."""
    schema = "pipelines/clicks/schemas/click.ddl"
    traffic = "{records_per_second: 10, record_size: 1KiB, basis: measured}"
    existing = "    existing: true\n    partitions: 3\n"

    def cost(tier: str, rate: int, readers: int) -> dict[str, float]:
        yaml = KAFKA.format(cluster=f"tier: {tier}", retention="1h", rate=rate)
        other = f"  small:\n    kind: kafka\n    cluster: main\n    traffic: {traffic}\n"
        yaml = yaml.replace("jobs:\n", other + SMALL)
        for number in range(readers):
            land = f"{{kind: land, source: small, table: small_{number}, schema: {schema}}}"
            yaml = yaml.replace("    queries:\n", f"    queries:\n      land-{number}: {land}\n", 1)
        if tier == "serverless":
            yaml = yaml.replace("    cluster: main\n", f"    cluster: main\n{existing}")
        return {line.name: line.usd for line in plan(from_text(yaml)).clusters["main"].cost}

    out = (10_000 + 3 * 10) * 1024 * 2_628_000 / 1e9
    assert cost("serverless", 10_000, 3)["data out"] == pytest.approx(out * 0.05)
    assert cost("standard", 200_000, 6) == cost("standard", 200_000, 1)


@pytest.mark.parametrize("zones", [2, 3])
def test_a_serverless_cluster_costs_the_same_in_any_network(from_text: Loader, zones: int) -> None:
    """100 records/s of 1 KiB for a day are 8.24 GiB, which AWS replicates whichever the subnets are."""
    retention = "1d\n    existing: true\n    partitions: 4"
    yaml = KAFKA.format(cluster="tier: serverless", retention=retention, rate=100)
    found = plan(from_text(yaml.replace("zones: 3", f"zones: {zones}"))).clusters["main"]
    usd = {line.name: line.usd for line in found.cost}
    assert usd["storage"] == pytest.approx(100 * 86_400 / 1024**2 * 0.10)


def test_a_kafka_version_that_nobody_confirmed_for_express_is_noted(from_text: Loader) -> None:
    def warnings(version: str) -> tuple[str, ...]:
        tier = f"tier: express, version: {version}"
        found = plan(from_text(KAFKA.format(cluster=tier, retention="1d", rate=500))).warnings
        return tuple(each for each in found if each.startswith("kafka."))

    assert warnings("3.9.x.kraft") == ()
    (told,) = warnings("4.1.x.kraft")
    assert "nobody has confirmed that express brokers take 4.1.x.kraft" in told


@pytest.mark.parametrize("rate", [1024 * 24, 1024 * 30, 1024 * 33, 1024 * 57])
def test_of_clusters_that_cost_the_same_the_one_with_reserve_is_taken(from_text: Loader, rate: int) -> None:
    """Half as large brokers cost half, and one of them that is patched is a smaller part of the cluster."""
    yaml = KAFKA.format(cluster="tier: standard", retention="1d", rate=rate)
    free = plan(from_text(yaml)).clusters["main"]

    def usd(cluster: ClusterPlan) -> float:
        return sum(line.usd for line in cluster.cost)

    def has_reserve(cluster: ClusterPlan) -> bool:
        assert cluster.brokers is not None
        assert cluster.broker_type is not None
        takes = (
            service_limits().brokers[cluster.broker_type.value].producer_mib_per_second(1, cluster.volume_mib)
        )
        return (cluster.brokers.value - 1) * takes >= rate / 1024

    alike = []
    for kind in ("large", "xlarge", "2xlarge"):
        for brokers in range(3, 40, 3):
            pins = f"broker_type: kafka.m7g.{kind}, brokers: {brokers}"
            with contextlib.suppress(ConfigurationError):
                cluster = plan(
                    from_text(KAFKA.format(cluster=pins, retention="1d", rate=rate)), simulated=False
                ).clusters["main"]
                if usd(cluster) <= usd(free) * 1.005:
                    alike.append(cluster)
    assert has_reserve(free) == any(map(has_reserve, alike))


def test_volumes_of_exactly_what_they_hold_are_a_move(from_text: Loader) -> None:
    """Volumes come in coarse steps: 1,200 GiB where 1,055 are needed."""
    yaml = KAFKA.format(cluster="tier: standard", retention="1d", rate=1024 * 10)
    environment = from_text(yaml)
    found = plan(environment)
    moves = find_moves(environment, found, lambda *_: True)
    [move] = [each for each in moves if each.key == "kafka.main.storage"]
    steps = found.clusters["main"].storage_gib_per_broker
    assert steps is not None
    assert int(move.new.removesuffix("GiB")) < steps.value
    exact = KAFKA.format(cluster=f"tier: standard, storage: {move.new}", retention="1d", rate=1024 * 10)
    assert total_cost(plan(from_text(exact))).value == pytest.approx(move.usd)
    assert move.saved == pytest.approx(3 * (1200 - 1055) * 0.10)
