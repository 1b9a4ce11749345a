"""``millrace simulate``: traffic in, ages and dollars out, and every mistake in one message."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from tests.page_without_browser import drawn
from tests.unit.cli.test_command_output import ROOT, millrace

SPIKY = "docs/examples/spiky.yaml"


def simulated(*arguments: str) -> dict[str, dict[str, object]]:
    done = millrace("simulate", "--env", SPIKY, "--job", "on-glue", "--json", *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["jobs"]["on-glue"]


def query(*arguments: str) -> dict[str, object]:
    return simulated(*arguments)["queries"]["land-glue"]  # type: ignore[index, return-value]


def test_without_a_trace_every_stream_has_its_peak() -> None:
    result = query("--for", "1h", "--fixed")
    assert result["arrived"] == pytest.approx(10_000 * 3600)
    assert result["within_sla"] == pytest.approx(1.0)
    assert result["age"]["max"] <= result["sla"]  # type: ignore[index]
    assert result["committed"] + result["waiting"] == pytest.approx(result["arrived"])  # type: ignore[operator]


def test_a_month_of_a_few_seconds_is_one_of_hours() -> None:
    """A minute is billed at least: of five seconds a month had twelve times the machines."""
    short, long = (simulated("--for", seconds, "--fixed")["usd_month"] for seconds in ("5s", "2h"))
    assert short == pytest.approx(long)


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_a_trace_is_what_arrives(tmp_path: Path, suffix: str) -> None:
    rows = [("2026-01-31T00:00:00Z", 100), ("2026-01-31T00:10:00Z", 4000), ("2026-01-31T00:20:00Z", 0)]
    file = tmp_path / f"friday.{suffix}"
    if suffix == "csv":
        lines = ["time,records_per_second", *(f"{time},{rate}" for time, rate in rows)]
    else:
        lines = [
            json.dumps({"time": time, "records_per_second": rate, "stream": "events"}) for time, rate in rows
        ]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8-sig")
    result = simulated("--trace", str(file))
    assert result["seconds"] == 1800
    assert result["queries"]["land-glue"]["arrived"] == pytest.approx(600 * 4100)  # type: ignore[index]


@pytest.mark.parametrize("unit", [1e3, 1e6, 1e9])
@pytest.mark.parametrize("suffix", ["csv", "CSV"])
def test_moments_may_be_in_parts_of_a_second_since_1970(tmp_path: Path, unit: float, suffix: str) -> None:
    file = tmp_path / f"exported.{suffix}"
    times = [1769760000, 1769760600, 1769761200]
    file.write_text("\n".join(["time,records_per_second", *(f"{time * int(unit)},100" for time in times)]))
    assert simulated("--trace", str(file))["seconds"] == 1800


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("t.csv", "time,records_per_second\n0,5\n", "one row"),
        ("t.csv", "time,records_per_second,stream\n0,5,departures\n", "only one row of stream departures"),
        (
            "t.csv",
            "time,records_per_second\n0,5\n0,6\n",
            ":3: time is 0; allowed: a time after that of the row before",
        ),
        ("t.csv", "time,records_per_second\n0,5\n1,-6\n", ":3: records_per_second is -6"),
        ("t.csv", "time,records_per_second\nnoon,5\n", ":2: time is noon"),
        ("t.csv", "time,rate\n0,5\n", "rate is an unknown column"),
        ("t.csv", "", "no rows"),
        ("t.jsonl", "{\n", ":1: {"),
        ("t.jsonl", '{"time": 0, "records_per_second": NaN}\n', "records_per_second is nan"),
        ("t.txt", "x", "ends in .txt"),
        (
            "t.csv",
            "time,records_per_second\n0,5\n1769760000000,5\n",
            ":3: time is 1769760000000 (milliseconds",
        ),
        ("t.csv", "time,records_per_second\n0,5\n2026-01-30T08:00:00Z,5\n", "(a moment); allowed: seconds"),
        ("t.csv", "time,records_per_second\n20260130,5\n20260131,5\n", ":2: time is 20260130; allowed:"),
        ("t.csv", "time,records_per_second\n0,5\n1e10,5\n", "with 231,481 days 11 h; allowed: at most"),
        ("t.csv", "time,records_per_second\n0,1e300\n60,1\n", "allowed: a number from 0 to 100,000,000"),
        ("t.csv", "time,records_per_second,time\n0,5,0\n1,5,1\n", ":1: time is there twice"),
        ("t.csv", "\ntime,records_per_second\n0,5\n1,5\n", ":1: an empty line; allowed: CSV with a header"),
        ("t.jsonl", '{"time": 0, "time": 1, "records_per_second": 1}\n', ":1: time is there twice"),
        ("t.jsonl", "[" * 100_000, "allowed: one JSON object per line"),
        ("t.jsonl", '{"time": 0, "records_per_second": 1%s}\n' % ("0" * 4000), "is 1000"),
        (
            "t.csv",
            "time,records_per_second,stream\n0,5,moon\n1,5,moon\n",
            "stream is moon; allowed: one of events",
        ),
    ],
)
def test_a_trace_that_is_none(tmp_path: Path, name: str, text: str, told: str) -> None:
    (tmp_path / name).write_text(text)
    done = millrace("simulate", "--env", SPIKY, "--trace", str(tmp_path / name))
    assert done.returncode == 2
    assert told in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--job", "on-glu"), "did you mean on-glue?"),
        (("--spikes", "10000,100"), "two rates in records per second, the lower one first"),
        (("--spikes", "1,1e9"), "at most 100,000,000"),
        (("--for", "1000000d"), "--for is 1000000d; allowed: at most"),
        (("--spikes", "many"), "such as 100,10000"),
        (("--for", "3"), "a number with its unit"),
        (("--outage", "2h"), "TIME:VALUE"),
        (("--reshard", "2h:none"), "a number of partitions"),
        (
            ("--for", "1h", "--outage", "30m:1m", "--outage", "1h:1m"),
            "is 1h:1m; allowed: a time before the end of the simulation at 1:00:00",
        ),
        (("--for", "1h", "--reshard", "2h:8"), "--reshard is 2h:8; allowed: a time before the end"),
        (
            ("--spikes", "1,2", "--every", "1ms", "--for", "24h"),
            "--every is 0.001s; allowed: at least 0.864s",
        ),
        (("--trace", "nowhere.csv"), "cannot be read"),
        (("--for", "10m", "--html", "/nowhere/page.html"), "a file that you have permission to write"),
    ],
)
def test_wrong_arguments(arguments: tuple[str, ...], told: str) -> None:
    done = millrace("simulate", "--env", SPIKY, *arguments)
    assert done.returncode == 2
    assert told in done.stderr


@pytest.mark.parametrize(
    ("length", "outage", "state", "share"),
    [("10s", "5s:1h", "unknown", None), ("5m", "5s:1h", "missed", 0.0)],
)
def test_an_sla_is_not_kept_where_no_batch_ended(
    length: str, outage: str, state: str, share: float | None
) -> None:
    done = millrace("simulate", "--env", SPIKY, "--for", length, "--outage", outage, "--json")
    document = json.loads(done.stdout)
    assert (document["verdict"]["sla"]["state"], document["verdict"]["sla"]["share"]) == (state, share)
    judged = document["jobs"]["on-glue"]["queries"]["land-glue"]
    assert (judged["within_sla"], judged["kept"]) == (share, None if share is None else False)


def test_an_sla_is_unknown_without_records(tmp_path: Path) -> None:
    file = tmp_path / "quiet.csv"
    file.write_text("time,records_per_second\n0,0\n3600,0\n")
    done = millrace("simulate", "--env", SPIKY, "--trace", str(file))
    assert "SLA    UNKNOWN: no record of land-glue arrived" in done.stdout


def test_one_executor_is_no_job_that_runs_all_of_its_executors() -> None:
    """In an outage its number is 0, but nothing scales, and holding all executors changes nothing."""
    done = millrace("simulate", "--env", "minimal", "--for", "3h", "--outage", "1h:15m", "--json")
    verdict = json.loads(done.stdout)["verdict"]
    assert [each["kind"] for each in verdict["risks"]] == ["late", "assumed-rates"]
    assert "--explain" in verdict["next"]["command"]


def test_a_trace_says_how_long_each_stream_is_simulated(tmp_path: Path) -> None:
    file = tmp_path / "uneven.csv"
    rows = [(0, 100, "departures"), (3600, 100, "departures"), (0, 50, "flights"), (600, 50, "flights")]
    file.write_text("\n".join(["time,records_per_second,stream", *(",".join(map(str, row)) for row in rows)]))
    done = millrace("simulate", "--env", "dev", "--trace", str(file))
    assert "2 h simulated of departures; 20 min simulated of flights" in done.stdout
    assert done.stderr == f"{file} ends for flights after 20 min of 2 h\n"


def test_a_factor_of_the_traffic_is_checked_like_the_traffic() -> None:
    done = millrace("plan", "--env", "minimal", "--traffic", "1e6")
    assert done.returncode == 2
    assert "--traffic is 1e+06; allowed: at most 125000, with which clicks has 100,000,000" in done.stderr


def test_all_wrong_arguments_are_told_at_once() -> None:
    wrong = {"--for": "0s", "--every": "x", "--spikes": "9,1", "--job": "on-glu"}
    arguments = [*(word for pair in wrong.items() for word in pair), "--outage", "2h", "--outage", "3h:y"]
    done = millrace("simulate", "--env", SPIKY, *arguments)
    assert done.returncode == 2
    for option, value in {**wrong, "--outage": "2h"}.items():
        assert f"{option} is {value};" in done.stderr
    assert "--outage is y;" in done.stderr


def test_a_command_that_fails_leaves_no_empty_page(tmp_path: Path) -> None:
    page, kept = tmp_path / "new.html", tmp_path / "kept.html"
    kept.write_text("an earlier page")
    for each in (page, kept):
        assert millrace("simulate", "--env", SPIKY, "--for", "3", "--html", str(each)).returncode == 2
    assert not page.exists()
    assert kept.read_text() == "an earlier page"


def test_all_wrong_lines_of_a_trace_are_told_at_once(tmp_path: Path) -> None:
    file = tmp_path / "mixed.csv"
    file.write_text(
        "time,records_per_second,stream\n0,100,events\n3600,nan,events\n7200,-5,events\nx,y,events\n"
    )
    done = millrace("simulate", "--env", SPIKY, "--trace", str(file))
    assert done.returncode == 2
    assert re.findall(r":(\d): (\w+) is (\S+);", done.stderr) == [
        ("3", "records_per_second", "nan"),
        ("4", "records_per_second", "-5"),
        ("5", "records_per_second", "y"),
        ("5", "time", "x"),
    ]
    file.write_text("time,records_per_second\n" + "x,1\n" * 1000)
    many = millrace("simulate", "--env", SPIKY, "--trace", str(file))
    assert many.stderr.count("time is x") == 20


def test_chance_is_the_seeds() -> None:
    one, again, other = (query("--for", "30m", "--poisson", "--seed", seed) for seed in ("7", "7", "8"))
    assert one == again
    assert one["arrived"] != other["arrived"]


def test_an_outage_and_a_reshard_show() -> None:
    calm = query("--for", "2h", "--fixed")
    result = query("--for", "2h", "--fixed", "--outage", "30m:5m", "--reshard", "10m:24")
    assert result["age"]["max"] > calm["age"]["max"] + 300  # type: ignore[index, operator]


@pytest.mark.parametrize("end", ["35m", "2h"])
def test_most_that_waited_is_what_waited_at_the_worst(end: str) -> None:
    """Also where the end, or the end of a batch, is the worst, and no batch starts after it."""
    result = query("--for", end, "--fixed", "--outage", "30m:1h")
    batches = result["batches"]
    done, most = 0.0, result["waiting"]
    for ended, records in zip(batches["end"], batches["records"], strict=True):
        most = max(most, 10_000 * ended - done)
        done += records
    assert result["most_waiting"] == pytest.approx(most)
    assert result["most_waiting"] >= max(result["waiting"], *batches["waiting"])
    if end == "35m":
        assert result["most_waiting"] == result["waiting"] >= 10_000 * 300


def test_the_page_needs_no_network(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    done = millrace("simulate", "--env", SPIKY, "--for", "30m", "--html", str(file))
    assert done.returncode == 0, done.stderr
    page = file.read_text()
    assert not re.search(r"<(script|link|img|iframe)[^>]+(src|href)=", page), "nothing is fetched"
    shown = drawn(page)
    assert "Job on-glue" in shown
    assert shown.count('class="chart"') == 10


def test_the_documents_table_is_what_is_printed() -> None:
    text = (ROOT / "docs/simulation.md").read_text()
    checked = 0
    for block in re.findall(r"^```console\n(.*?)^```", text, re.M | re.S):
        command, *lines = block.splitlines()
        if not command.startswith("$ millrace simulate") or lines[0].startswith("$ "):
            continue
        done = millrace(*shlex.split(command[2:])[1:])
        printed = {line.rstrip() for line in done.stdout.splitlines()}
        assert [line for line in lines if line.rstrip() not in printed] == []
        checked += 1
    assert checked >= 2
