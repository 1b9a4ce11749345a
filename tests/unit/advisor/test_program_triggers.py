"""Triggers of a program: each form that Spark takes, of several queries, and of branches."""

from __future__ import annotations

import pytest

from millrace.advisor.programs.library_functions import LaunchArguments
from tests.unit.advisor.interval_texts_and_milliseconds import INTERVALS
from tests.unit.advisor.settings_of_program import settings_of_program
from tests.unit.advisor.test_program_reader import KAFKA, imported

INSTEAD = "it is taken from the event log, or the plan computes it"


def program(trigger: str, limit: str = "30000") -> str:
    return (
        f'{KAFKA}.option("subscribe", "orders").option("maxOffsetsPerTrigger", {limit})'
        f".load().writeStream.trigger(processingTime={trigger}).start()"
    )


@pytest.mark.parametrize(("text", "milliseconds"), INTERVALS.items())
def test_a_trigger_is_read_as_spark_reads_it(text: str, milliseconds: int | None) -> None:
    said = settings_of_program(program(repr(text)))
    assert said.trigger == (milliseconds / 1000 if milliseconds else None)
    assert bool(said.notes) == (milliseconds in (None, 0))


def test_what_cannot_be_read_is_told() -> None:
    def notes(*given: str) -> tuple[str, ...]:
        return settings_of_program(
            f"args = getResolvedOptions(sys.argv, ['window'])\n{program(*given)}",
            LaunchArguments(("--window", "1 minute")),
        ).notes

    assert notes("'100 ms'") == (f"its trigger 100 ms is none that Spark takes: {INSTEAD}",)
    assert notes("'0 seconds'") == (
        f"with its trigger 0 seconds a batch follows the other at once: {INSTEAD}",
    )
    assert notes("window()", "most()") == (
        f"its maxOffsetsPerTrigger is most() (line 2): {INSTEAD}",
        f"line 2: its trigger is window(): {INSTEAD}",
    )
    assert notes("args['window']", "'many'") == (f"its maxOffsetsPerTrigger many is no number: {INSTEAD}",)
    assert notes("args.get('window', '2 minutes')") == ()


@pytest.mark.parametrize(
    ("given", "written", "latency"),
    [
        ("1 DAY", "1d", "2d"),
        ("2 weeks", "14d", "28d"),
        ("100 seconds", "100s", "200s"),
        ("30 seconds", "30s", None),
        ("250 milliseconds", "250ms", None),
    ],
)
def test_a_trigger_is_written_as_the_file_takes_it_with_an_sla_that_it_can_keep(
    given: str, written: str, latency: str | None
) -> None:
    said = settings_of_program(program(repr(given)))
    made = imported(said)
    [job] = made["jobs"].values()
    [query] = job["queries"].values()
    assert (query["trigger"], job.get("latency")) == (written, latency)


@pytest.mark.parametrize("trigger", ["once", "availableNow"])
def test_a_run_that_ends_is_not_taken_for_one_that_goes_on(trigger: str) -> None:
    said = settings_of_program(
        f"{KAFKA}.option('subscribe', 'orders').load().writeStream.trigger({trigger}=True).start()"
    )
    assert (said.trigger, said.ends) == (None, True)
    [note] = said.notes
    assert note.startswith(f"line 1: with its trigger {trigger.lower()} a run ends")


def test_several_queries_on_one_stream_are_told_with_their_triggers() -> None:
    text = f"df = {KAFKA}.option('subscribe', 'orders').load()\n" + "\n".join(
        f"df.writeStream.trigger(processingTime='{n} seconds').start()" for n in (30, 5)
    )
    said = settings_of_program(text)
    assert said.trigger == 5.0
    assert said.notes == (
        "what writes it (lines 2, 3) is a derive query of a transform to be finished, and an Iceberg table until you name its sink",
        "its triggers are 30 seconds (line 2), 5 seconds (line 3): the shortest is taken",
    )


ONCE = "with its trigger availablenow a run ends when it has read what was there"

AT_ONCE = f"without a trigger a batch follows the other at once: {INSTEAD}"

DERIVED = "what writes it (lines 3, 4) is a derive query of a transform to be finished, and an Iceberg table until you name its sink"

PRINTED = "line 4: what it prints, and keeps nowhere, is left out"


@pytest.mark.parametrize(
    ("writers", "seconds", "ends", "notes"),
    [
        (["trigger(processingTime='1 hour').format('delta')"], 3600.0, False, []),
        (["format('delta')", "trigger(processingTime='1 hour').format('console')"], None, False,
         [PRINTED, f"line 3: {AT_ONCE}"]),
        (["format('delta')", "trigger(once=True).format('console')"], None, False, [PRINTED, f"line 3: {AT_ONCE}"]),
        (["trigger(availableNow=True)", "trigger(processingTime='1 hour').format('memory')"], None, True,
         [PRINTED, f"line 3: {ONCE}"]),
        (["trigger(processingTime='1 hour').format('console')"], 3600.0, False, ["line 3: what it prints"]),
        (["", "trigger(processingTime='1 hour')"], None, False,
         [DERIVED, "its triggers are none (line 3), 1 hour (line 4): the shortest is taken", f"line 3: {AT_ONCE}"]),
        (["", "trigger(once=True)"], None, False,
         [DERIVED, "its triggers are none (line 3), once (line 4): the shortest is taken", f"line 3: {AT_ONCE}"]),
        (["trigger(once=True)", "trigger(availableNow=True)"], None, True,
         [DERIVED, "its triggers are once (line 3), availablenow (line 4): the shortest", "line 3: with", f"line 4: {ONCE}"]),
        (["trigger(availableNow=several())"], None, False, [f"line 3: its trigger is several(): {INSTEAD}"]),
        (["trigger(processingTime=several() or '20 seconds')"], 20.0, False,
         ["its triggers are several() (line 3), 20 seconds (line 3): the shortest is taken"]),
        (["trigger(realTime='5 minutes')"], None, False, ["line 3: with its trigger realtime it runs without micro"]),
        (["trigger(once=True).trigger(processingTime='5 seconds')"], 5.0, False, []),
    ],
)  # fmt: skip
def test_the_trigger_is_the_shortest_of_the_queries_that_keep_rows(
    writers: list[str], seconds: float | None, ends: bool, notes: list[str]
) -> None:
    read = f"\ndf = {KAFKA}.option('subscribe', 'orders').load()\n"
    said = settings_of_program(
        read + "\n".join(f"df.writeStream{each and '.'}{each}.start()" for each in writers)
    )
    assert (said.trigger, said.ends) == (seconds, ends)
    told = [each for each in said.notes if ": delta: " not in each]
    assert len(told) == len(notes), said.notes
    assert all(each.startswith(start) for each, start in zip(told, notes, strict=True)), said.notes


@pytest.mark.parametrize(
    ("branches", "seconds", "notes"),
    [
        (("availableNow=True", "processingTime='5 seconds'"), 5.0,
         ["its triggers are availablenow (line 4), 5 seconds (line 6): the shortest is taken"]),
        (("processingTime='1 hour'", None), None,
         ["its triggers are 1 hour (line 4), none (line 7): the shortest is taken", f"line 7: {AT_ONCE}"]),
        (("availableNow=True", "once=True"), None,
         ["its triggers are availablenow (line 4), once (line 6): the shortest is taken", f"line 4: {ONCE}", "line 6: with"]),
    ],
)  # fmt: skip
def test_a_trigger_of_a_branch_is_one_of_several(
    branches: tuple[str, str | None], seconds: float | None, notes: list[str]
) -> None:
    one, other = (f"w = w.trigger({each})" if each else "pass" for each in branches)
    text = f"df = {KAFKA}.option('subscribe', 'orders').load()\nw = df.writeStream\nif mode():\n  {one}\nelse:\n  {other}\nw.start()"
    said = settings_of_program(text)
    assert (said.trigger, said.ends) == (seconds, "once" in str(branches))
    assert len(said.notes) == len(notes), said.notes
    assert all(each.startswith(start) for each, start in zip(said.notes, notes, strict=True)), said.notes
