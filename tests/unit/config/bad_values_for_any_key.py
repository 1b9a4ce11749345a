"""Values that are invalid for any key, and how messages show them; rows as in ``test_bad_configuration.py``."""

from tests.unit.config.bad_queries import LAND, TRANSFORM

SOURCE = "        source: clicks\n"
SCHEMA = "        table: clicks_landed\n        schema: pipelines/shop/schemas/click.ddl\n"
RATE = "    rate: {records_per_second_per_core: 5000, batch_overhead: 2s}\n"
LONG = "a" * 300
MANY = "1" * 400
MOMENT = "earliest, latest, or a time with its zone"

ROWS = {
    # what a message shows is what is written
    "an account that begins with 0": (
        'account: "111122223333"\n', "account: 012345678901 #!\n", "account", "012345678901", "text",
        'write it in quotes: "012345678901"',
    ),
    # digits of other alphabets are digits for many programs, and for no AWS service
    "an account in other digits": (
        'account: "111122223333"\n', 'account: "١١١١٢٢٢٢٣٣٣٣" #!\n', "account", "١١١١٢٢٢٢٣٣٣٣",
        "an account number of twelve digits", None,
    ),
    "a duration in other digits": (
        "    latency: 60s\n", "    latency: ٦٠s #!\n", "jobs.clicks.latency", "٦٠s", "a number with its unit", None,
    ),
    "a version that is no number": (
        '    version: "5.1"\n', "    version: 5.10 #!\n", "jobs.clicks.version", "5.10", "one of 5.1, 6.0",
        'write it in quotes: "5.10"',
    ),
    "a tag of digits": (
        "  team: web\n", "  team: 0123 #!\n", "tags.team", "0123", "text", 'write it in quotes: "0123"',
    ),
    # moments and sizes that nothing can hold
    "a moment after the last year": (
        SOURCE, SOURCE + "        start: 9999-12-31T23:59:59-10:00 #!\n", f"{LAND}.start", "9999-12-31T23:59:59-10:00",
        MOMENT, None,
    ),
    "a moment before the first year": (
        SOURCE, SOURCE + "        start: '0001-01-01T00:00:00+14:00' #!\n", f"{LAND}.start",
        "0001-01-01T00:00:00+14:00", MOMENT, None,
    ),
    "a size of four hundred digits": (
        "      record_size: 500B\n", f"      record_size: {MANY}B #!\n", "streams.clicks.traffic.record_size",
        MANY[:77] + "...", "a size of fewer digits", None,
    ),
    # names that no file can have
    "a schema's name that is too long": (
        SCHEMA, SCHEMA.replace("shop/schemas/click", LONG)[:-1] + " #!\n", f"{LAND}.schema", f"pipelines/{LONG}.ddl",
        "a file that exists", None,
    ),
    "a name too long to be laid over": (
        "project: shop\n", f"project: shop\nextends: {LONG} #!\n", "extends", LONG[:77] + "...",
        "the name of another file beside this one", None,
    ),
    "a module's name that is too long": (
        TRANSFORM, f"        transform: pipelines.{LONG}:counted #!\n", "jobs.clicks.queries.count-clicks.transform",
        f"pipelines.{LONG}:counted", f"a module that exists; there is no pipelines/{LONG}.py", None,
    ),
}  # fmt: skip

UNREADABLE = {
    "a NUL in a schema": (SCHEMA, SCHEMA.replace("pipelines/shop/schemas/click.ddl", '"click\\0.ddl" #!')),
    "a NUL in a result": (RATE, '    rate: {result: "a\\0"} #!\n'),
    "a word that is no boolean": (SOURCE, SOURCE + "        fan_out: !!bool maybe #!\n"),
    "a word that is no number": (SOURCE, SOURCE + "        records_per_batch: !!int many #!\n"),
    "a number of four hundred digits": (SOURCE, SOURCE + f"        records_per_batch: {MANY} #!\n"),
    "a number of five thousand digits": (SOURCE, SOURCE + f"        records_per_batch: {MANY * 13} #!\n"),
}
"""What cannot be read as YAML that an environment is written in: each with the line that is told."""
