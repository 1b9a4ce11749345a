"""Mistakes in names, tags and record sizes that AWS would refuse at a deployment or in a job's first batch.

Rows as those of ``test_bad_configuration.py``.
"""

from tests.unit.config.bad_queries import LETTERS, SINK

TEAM = "  team: web\n"
ORDERS_TRAFFIC = "    traffic: {records_per_second: 100, record_size: 1KiB}\n"
DERIVE = "jobs.clicks.queries.count-clicks"
CHARACTERS = "digits, spaces and _ . : / = + - @"


def tags(text: str) -> str:
    return TEAM + f"  {text} #!\n"


ROWS = {
    # prefix of all names
    "a project whose parameters Systems Manager refuses": (
        "project: shop\n", "project: aws-shop #!\n", "project", "aws-shop", "not begin with aws or ssm", None,
    ),
    "a prefix whose parameters Systems Manager refuses": (
        TEAM, TEAM + "governance:\n  name_prefix: ssmith #!\n", "governance.name_prefix", "ssmith",
        "not begin with aws or ssm", None,
    ),
    "a project whose buckets S3 refuses": (
        "project: shop\n", "project: sthree #!\n", "project", "sthree", "not begin with sthree-", None,
    ),
    "a prefix whose buckets S3 refuses": (
        TEAM, TEAM + "governance:\n  name_prefix: amzn-s3-demo #!\n", "governance.name_prefix", "amzn-s3-demo",
        "not begin with amzn-s3-demo-", None,
    ),
    "an alias of an access point in the place of a bucket": (
        TEAM, TEAM + "storage:\n  buckets:\n    lake: lake-x7-s3alias #!\n", "storage.buckets.lake", "lake-x7-s3alias",
        "the name of a bucket", None,
    ),
    "two periods in the name of a bucket": (
        TEAM, TEAM + "storage:\n  buckets:\n    lake: a..lake #!\n", "storage.buckets.lake", "a..lake",
        "the name of a bucket", None,
    ),
    # tags
    "a tag's key that IAM refuses": (
        TEAM, tags('"bad|key": x'), "tags.bad|key", "the key bad|key", CHARACTERS, None,
    ),
    "a tag's value that IAM refuses": (TEAM, tags('owner: "a<b>"'), "tags.owner", "a<b>", CHARACTERS, None),
    "a tag's value with a comma": (TEAM, tags('owner: "a, b"'), "tags.owner", "a, b", CHARACTERS, None),
    "letters that EMR refuses in a tag": (
        TEAM, tags("owner: Zoë"), "tags.owner", "Zoë", "English letters, digits", None,
    ),
    "tags that differ by capitals": (
        TEAM, tags("Team: x"), "tags.Team", "the key Team", "a key that differs from team in more than upper and lower case", None,
    ),
    "a tag of ours": (
        TEAM, tags("'millrace:project': x"), "tags.millrace:project", "the key millrace:project",
        "a key that differs from millrace:project", None,
    ),
    "more tags than a resource takes": (
        TEAM, TEAM + "".join(f"  tag-{n}: x\n" for n in range(47)), "tags", "48 tags",
        "up to 47: a resource has 50 with our own", None,
    ),
    # sizes of records
    "a message that the topic of a sink does not take": (
        SINK, "        sink: {kind: kafka, topic: orders, max_record_size: 1MiB} #!\n" + LETTERS, f"{DERIVE}.sink.max_record_size", "1048576B",
        "at most 1023KiB, the largest message of a topic that is made here", None,
    ),
    "messages that a topic of ours does not take": (
        ORDERS_TRAFFIC, "    traffic: {records_per_second: 1, record_size: 5MiB} #!\n",
        "streams.orders.traffic.record_size", "5242880B", "at most 1023KiB", None,
    ),
}  # fmt: skip
