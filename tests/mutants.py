"""Mutation tests of critical code: change one line, run its tests, and list undetected changes.

``make mutants``, or ``make mutants AREA="fence lease" EACH=10``. Cosmic Ray finds where its operators (another comparison,
number, exception, ...) apply; of each area so many are drawn, by a seed. Tests run in a clone of HEAD below ``.millrace``, so
that the checkout at hand stays as it is. The status is 1 where a mutant survived that is not in :data:`EQUIVALENT`.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import os
import random
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from cosmic_ray.commands.init import _all_work_items as all_mutants
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator
from cosmic_ray.work_item import MutationSpec

ROOT = Path(__file__).parents[1]
HOME = ROOT / ".millrace" / "mutants"
WITHOUT = re.compile(r"Remove|Bit|Shift|Pow|Mod$|_Is(Not)?$")
"""Operators that are left out: a type's ``|``, a class without its ``@dataclass``, and what mostly ends in a TypeError."""


@dataclass(frozen=True)
class Area:
    """Code in which a mistake loses, doubles or exposes something, and what of ``make test`` guards it."""

    code: tuple[str, ...]
    tests: tuple[str, ...]


AREAS = {
    "identity": Area(
        ("etl/sources/recreated_source_check.py", "etl/record/envelope.py"),
        (
            "unit/docs/test_doctest_examples.py",
            "unit/etl/test_recreated_source_check.py",
            "spark/queries/test_land.py",
            "spark/queries/test_source_read_once.py",
            "spark/sources/test_kinesis_connector_guards.py",
            "spark/sinks/test_latest_by.py",
        ),
    ),
    "fence": Area(
        ("etl/job/kill_when_lease_lost.py", "etl/commits/commit_batch_once.py"),
        (
            "unit/etl/test_lease_fence.py",
            "spark/sinks/test_two_writers.py",
            "spark/job/test_damaged_stream_end_mark.py",
            "spark/queries/test_land.py",
        ),
    ),
    "counts": Area(
        ("etl/queries/land.py", "etl/queries/derive.py", "etl/queries/direct.py"),
        (
            "spark/queries/test_land.py",
            "spark/queries/test_derive.py",
            "spark/queries/test_enrichment.py",
            "spark/queries/test_direct.py",
            "spark/queries/test_exactly_once.py",
        ),
    ),
    "offsets": Area(
        (
            "etl/sources/batch_offsets.py",
            "etl/sources/kafka/range_reader.py",
            "etl/sources/kinesis/missed_records_guard.py",
        ),
        (
            *(
                "unit/etl/test_source_options.py",
                "unit/etl/test_core_reads_routes_of_infra.py",
                "unit/etl/test_kinesis_requests.py",
            ),
            *(
                "unit/etl/test_read_around_time_overflow.py",
                "unit/etl/test_merge_offset_ranges.py",
                "unit/etl/test_duplicate_look_up_arrivals.py",
                "unit/etl/test_kafka_option_table.py",
            ),
            *(
                "spark/queries/test_land.py",
                "spark/sources/test_kinesis_connector_guards.py",
                "spark/sources/test_kinesis_trimmed.py",
            ),
            "spark/sources/test_kafka_time_overflow.py",
        ),
    ),
    "lease": Area(
        ("etl/job/lease.py",),
        ("unit/etl/test_lease.py", "spark/job/test_supervise_lease.py", "spark/job/test_supervise.py"),
    ),
    "dead-letters": Area(
        (
            "etl/sinks/refused_rows_dead_letters.py",
            "etl/formats/decoding/decoder_output_and_checks.py",
            "etl/formats/decoding/redact.py",
        ),
        (
            "spark/formats/test_decode_json.py",
            "spark/repair/test_replay_refused_rows.py",
            "spark/formats/test_redact.py",
            "spark/queries/test_land.py",
            "spark/sources/test_bad_input.py",
            "spark/queries/test_routed_direct.py",
            "spark/formats/test_decode_csv_avro_protobuf.py",
        ),
    ),
    "accounts": Area(
        ("etl/record/batch_accounts.py",),
        (
            "spark/queries/test_land.py",
            "spark/queries/test_derive.py",
            "spark/queries/test_enrichment.py",
            "spark/queries/test_direct.py",
            "spark/queries/test_routes.py",
        ),
    ),
    "retention": Area(
        ("etl/maintenance/table_maintenance.py", "etl/job/maintenance_schedule.py"),
        (
            "unit/etl/test_maintenance_schedule.py",
            "spark/repair/test_dead_letter_retention.py",
            "spark/repair/test_table_maintenance.py",
            "spark/queries/test_airline_operations.py",
        ),
    ),
    "permissions": Area(
        (
            *(
                "infra/constructs/job_role.py",
                "infra/permissions/job_operation_grants.py",
                "infra/permissions/command_data_access_grants.py",
                "infra/permissions/source_permissions.py",
            ),
            *(
                "infra/permissions/permissions_by_command.py",
                "infra/environment_permission_scope.py",
                "infra/permissions/job_permissions.py",
            ),
        ),
        (
            *(
                "template/test_security.py",
                "template/test_job_assets.py",
                "template/test_iam_statement_resources.py",
            ),
            *("template/test_kafka_login.py", "template/test_golden.py", "unit/cli/test_policies.py"),
        ),
    ),
    "limits": Area(
        (
            "millrace/sizing/queries/sizing_formulas.py",
            "millrace/sizing/queries/demand.py",
            "millrace/sizing/shards_and_partitions.py",
        ),
        ("unit/sizing",),
    ),
}

EQUIVALENT = {
    "+            if free or age > LIVE_SECONDS + 1 or _monotonic_seconds() - looked >= LIVE_SECONDS:": "a clock that is never equal",
    "+        return figures_of_each_observer(self)[ -1]": "a list of one",
    "+@dataclass(frozen=False)": "whoever changes it is refused by mypy",
    '+        "version": 2,': "of a lease's record, for releases to come",
    "+    def __init__(self, term: str, message: str, seconds: float = 1.0) -> None:": "who leaves it out is not asked",
}
"""Changed lines that mean the same, or what nobody can see, each with the reason."""


@dataclass(frozen=True)
class Mutant:
    """One change.

    Attributes
    ----------
    file
        Below the root.
    source
        All of the file with the change in it.
    lines
        The lines that differ, as a difference shows them.
    """

    file: str
    source: str
    lines: tuple[str, ...]

    def runs(self) -> bool:
        """Whether it is Python: an operator takes the ``*`` of a signature for one of a product."""
        try:
            ast.parse(self.source)
        except SyntaxError:
            return False
        return True


def say(*lines: str) -> None:
    """Print lines at once: a run takes long."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def clone(name: str) -> Path:
    """Return a fresh clone of HEAD with the environments of this checkout."""
    home = HOME / name
    shutil.rmtree(home, ignore_errors=True)
    subprocess.run(("git", "clone", "--quiet", "--shared", ROOT, home), check=True)
    for shared in (".venv", ".millrace", "node_modules"):
        (home / shared).symlink_to(ROOT / shared)
    return home


def drawn(area: Area, each: int, seed: str) -> list[Mutant]:
    """Choose mutants of an area: those of operators that change what runs, not a type."""
    files = [ROOT / file for file in area.code]
    match = [
        item.mutations[0]
        for item in all_mutants(files, {})
        if not WITHOUT.search(item.mutations[0].operator_name)
    ]
    random.Random(seed).shuffle(match)
    return list(islice(filter(Mutant.runs, map(mutated, match)), each))


def mutated(spec: MutationSpec) -> Mutant:
    """Apply an operator to the text of its module."""
    before = Path(spec.module_path).read_text()
    after = mutate_code(before, get_operator(spec.operator_name)(**spec.operator_args), spec.occurrence)
    difference = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0)
    lines = tuple(line for line in list(difference)[2:] if not line.startswith("@@"))
    return Mutant(str(Path(spec.module_path).relative_to(ROOT)), after, lines)


def notices(home: Path, tests: tuple[str, ...], seconds: float | None) -> bool:
    """Whether a test fails, or does not end within the time."""
    environment = {
        **os.environ,
        "MILLRACE_SANDBOX": str(home / "sandbox"),
        "SLOW": "none",
        "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m",
    }
    command = [home / ".venv/bin/python", "-m", "pytest", "-q", "-x", *(f"tests/{test}" for test in tests)]
    with (home.parent / f"{home.name}.log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=home, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            return process.wait(seconds) != 0
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 15)
            process.wait()
            return True


def survivors(name: str, each: int, seed: int) -> list[Mutant]:
    """Run the tests of an area over its mutants and print a line for each."""
    area, home = AREAS[name], clone(name)
    started = time.monotonic()
    if notices(home, area.tests, None):
        sys.exit(f"{name}: its tests fail without a change; see {home.parent / home.name}.log")
    unchanged = time.monotonic() - started
    mutants = []
    for mutant in drawn(area, each, f"{name} {seed}"):
        file = home / mutant.file
        before = file.read_text()
        file.write_text(mutant.source)
        noticed = notices(home, area.tests, 60 + 3 * unchanged)
        file.write_text(before)
        equivalent = next((EQUIVALENT[line] for line in mutant.lines if line in EQUIVALENT), None)
        said = "killed" if noticed else "survived" if equivalent is None else f"equivalent: {equivalent}"
        say(f"{name}: {mutant.file}: {said}", *(f"    {line}" for line in mutant.lines))
        if not noticed and equivalent is None:
            mutants.append(mutant)
    return mutants


def main(arguments: list[str]) -> int:
    """Run the areas in turn and count."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("areas", nargs="*", metavar="AREA", help=", ".join(AREAS))
    parser.add_argument("--each", type=int, default=5, help="mutants of an area")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args(arguments)
    unknown = set(asked.areas) - set(AREAS)
    if unknown:
        parser.error(f"no such area: {', '.join(sorted(unknown))}; there are {', '.join(AREAS)}")
    left = {name: survivors(name, asked.each, asked.seed) for name in asked.areas or AREAS}
    say(*(f"{name}: {len(result)} of {asked.each} survived" for name, result in left.items()))
    return int(any(left.values()))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
