"""Names that a deployment and whoever looks for it must agree on."""

from pathlib import Path

from millrace.config import Names, load

ROOT = Path(__file__).parents[3]


def test_names_follow_project_environment_and_account() -> None:
    names = Names(load("prod", root=ROOT), "444455556666")
    assert names.bucket("lake") == "flights-prod-lake-444455556666-us-east-1"
    assert names.database == "flights_prod"
    assert names.table("departures_landed") == "flights_prod.departures_landed"
    assert names.stream("departures") == "flights-prod-departures"
    assert names.stream("clicks") == "shop-clickstream", "somebody else's keeps its name"
    assert names.stream("bookings") == "bookings", "a topic is named in its cluster"
    assert names.checkpoints("ground") == "s3://flights-prod-checkpoints-444455556666-us-east-1/ground"
