"""Content of HTML pages: names, tables and links, escaped."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from millrace.cli import app
from millrace.cli.plan.plan_and_validate import simulated_plan_with_warnings
from millrace.cli.plan.report.plan_document import plan_document
from millrace.cli.plan.report.plan_risks import SimulatedPlan
from millrace.cli.plan.report.plan_verdict import plan_verdict
from millrace.cli.shared.html_pages import POINTS, SCRIPTS, html_page, page_curve
from millrace.config import environment_names, load, sinks, sources
from millrace.sizing import plan, total_cost
from millrace.sizing.readable_numbers import count, dollars, duration_text, percent
from tests.page_without_browser import drawn
from tests.unit.cli.test_command_output import ROOT
from tests.unit.config.test_sink_contract import examples

NASTY = "<img src=x onerror=\"alert('1')\"></script>&{{SCRIPT}}"
FOLDER = ROOT / "millrace" / "cli" / "shared" / "page"


def report(*curves: dict[str, Any], text: str = "x", title: str = "page") -> str:
    table = {"head": [text, text], "rows": [[text, text]], "caption": text}
    return html_page("report", title, {"texts": [text], "tables": [table], "curves": curves})


def test_names_out_of_a_log_are_words_and_no_markup():
    made = page_curve(NASTY, NASTY, [0.0, 1.0], {NASTY: [1.0, 3.0]}, limits={NASTY: 2.0})
    page = report(made, text=NASTY, title=NASTY)
    assert "<img" not in page
    assert page.count("</script>") == 2
    assert page.count("{{SCRIPT}}") >= 2, "what looks like a place of the template is a word of the document"
    shown = drawn(page)
    assert "<img" not in shown
    assert unescape(shown).count(NASTY) > 8
    data = page.split('id="data">')[1].split("</script>")[0]
    assert json.loads(data)["texts"] == [NASTY]


def test_no_script_turns_a_text_into_markup_or_a_program():
    for name in SCRIPTS:
        text = (FOLDER / name).read_text(encoding="utf-8")
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|Function\(|setTimeout|srcdoc|fetch\(",
            text,
        ), name


def test_a_page_runs_its_own_script_only_and_fetches_nothing():
    page = report(page_curve("one", "records", [0.0], {"a": [1.0]}))
    [policy] = re.findall(r'Content-Security-Policy" content="([^"]+)"', page)
    script = page.split("<script>")[1].split("</script>")[0]
    hashed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{hashed}'"
    assert not re.search(r"\b(src|srcset)=|url\(|@import|\bimport\(", page)
    assert set(re.findall(r"https?:[^\"]+", page)) == {"http://www.w3.org/2000/svg"}


def test_a_chart_says_what_it_shows():
    shown = drawn(report(page_curve("Who waits?", "records", range(600), {"a": range(600)})))
    assert 'aria-label="Who waits? a 0 to 599"' in shown
    assert "Who waits? 24 of 600 points" in shown
    assert shown.count("<tr>") == 2 + 1 + 24


def test_a_series_may_have_the_name_of_a_part_of_every_object():
    names = ("constructor", "__proto__", "toString")
    made = page_curve("Why?", "s", [0.0, 1.0], {name: [1.0, 3.0] for name in names}, limits={"toString": 2.0})
    shown = drawn(report(made), "document.querySelector().append(draw(data.curves[0], 600));")
    assert "NaN" not in shown
    assert shown.count('class="limit ') == 1
    assert shown.count('class="line ') == 3


def test_a_long_curve_keeps_its_peaks_and_a_value_that_is_none_is_left_out():
    values = [0.0] * 100_000
    values[77_777] = 9.0
    values[5] = float("nan")
    [points] = page_curve("", "", range(100_000), {"a": values})["series"].values()
    assert len(points) <= POINTS
    assert [77_777.0, 9.0] in points
    assert "null" not in json.dumps(points)
    bars = page_curve("", "", range(5000), {"a": values[:5000], "b": values[:5000]}, kind="bars")["series"]
    assert len(bars["b"]) <= POINTS // 2


@pytest.mark.parametrize(
    ("ours", "script"),
    [
        (percent, "percent"),
        (duration_text, "duration"),
        (dollars, "dollars"),
        (lambda number: count(round(number), "query"), "(each => count(Math.round(each), 'query'))"),
    ],
)
def test_numbers_are_written_as_in_a_terminal(ours, script):
    values = [
        0.0,
        0.0004,
        0.0091,
        0.25,
        0.3412,
        0.9951,
        1.0,
        1.21,
        4.26,
        9.96,
        12.4,
        59.7,
        99.999,
        200.0,
        3599.0,
        7261.0,
        90061.0,
        1e6,
    ]
    told = drawn(
        report(),
        f"document.querySelector().replaceChildren(JSON.stringify({values}.map(each => {script}(each))));",
    )
    shown = json.loads(unescape(told.removeprefix("<main>").removesuffix("</main>")))
    pairs = [
        (value, word) for value, word in zip(values, shown, strict=True) if script != "percent" or value <= 2
    ]
    assert [word for _, word in pairs] == [ours(value) for value, _ in pairs]


@pytest.fixture(scope="module", params=environment_names(ROOT))
def planned(request) -> tuple[SimulatedPlan, dict[str, Any], str]:
    environment = load(request.param, root=ROOT)
    result = simulated_plan_with_warnings(environment, plan(environment))
    document = plan_document(result, plan_verdict(result))
    return result, document, drawn(html_page("plan", "plan", document))


def test_the_verdict_comes_first_and_says_what_the_plan_costs(planned):
    result, _, page = planned
    assert re.match(r'<main><h1>[^<]+</h1><section class="verdict ', page)
    verdict = page.split("</section>")[0]
    assert f"{dollars(total_cost(result.plan).value)} a month</span>" in verdict
    assert "<dt>SLA</dt>" in verdict
    assert 0 < verdict.split("</ol>")[0].count("<li>") <= 3
    assert "<dt>Next</dt><dd><code>millrace " in verdict
    assert "--json" not in page


def test_the_flow_has_each_stream_job_and_table_once(planned):
    result, document, page = planned
    environment = result.environment
    tables = {
        (place[-1], table)
        for job in environment.jobs.values()
        for query in job.queries.values()
        for place, table in query.created_tables_by_place.items()
    }
    expected = [f"stream {each}" for each in environment.streams] + [
        f"job {each}" for each in environment.jobs
    ]
    expected += [f"{'letters' if place == 'dead_letters' else 'table'} {table}" for place, table in tables]
    assert sorted(re.findall(r'data-box="([^"]+)"', page)) == sorted(expected)
    keys = {box["key"] for box in document["flow"]["boxes"]}
    assert all({each["begin"], each["end"]} <= keys for each in document["flow"]["arrows"])


def test_the_flow_says_which_table_comes_from_which_and_no_count_has_the_rate_of_its_input(planned):
    result, document, _ = planned
    boxes = {box["key"]: box for box in document["flow"]["boxes"]}
    arrows = {(each["begin"], each["end"]) for each in document["flow"]["arrows"]}
    for name, job in result.environment.jobs.items():
        landed = {query.table for query in job.queries.values() if query.kind in ("land", "route")}
        for query in job.queries.values():
            if query.kind != "derive" or query.sink.catalog_table is None:
                continue
            target = f"table {query.sink.catalog_table}"
            begin = f"table {query.source}" if query.source in landed else f"job {name}"
            assert (begin, target) in arrows
            assert any(line.startswith("from ") and query.source in line for line in boxes[target]["lines"])
            assert not any(line.startswith("peak ") for line in boxes[target]["lines"])


def test_the_tree_adds_up_and_a_stream_that_is_not_ours_has_no_price(planned):
    result, document, page = planned
    tree = page.split('<div class="tree">')[1].split("</figure>")[0]
    assert f">{dollars(total_cost(result.plan).value, assumed='>~$' in tree.split('</summary>')[0])}<" in tree
    others = sum(not each["ours"] for each in document["streams"].values())
    assert tree.count(">not ours<") == others
    assert ">$0.00<" not in tree
    lines = [line for cost in result.plan.cost_items_by_key.values() for line in cost if line.usd]
    assert tree.count('class="why"') == len(lines)


def test_a_branch_of_a_tenth_of_the_cost_is_open(planned):
    result, _, page = planned
    tree = page.split('<div class="tree">')[1].split("</figure>")[0]
    for name in result.plan.jobs:
        share = result.monthly_usd_of(f"jobs.{name}") / (total_cost(result.plan).value or 1)
        before = tree.split(f'<span class="name">{name}</span>')[0].rsplit("<details", 1)[1]
        assert before.startswith(" open") == (share >= 0.1)


def test_each_picture_has_a_question_and_its_text(planned):
    _, _, page = planned
    pictures = re.findall(r'<figure class="\w+" aria-label="([^"]+)"><figcaption><h2>([^<]+)</h2>', page)
    assert len(pictures) >= 4
    for words, question in pictures:
        assert question.endswith("?")
        assert words.startswith(f"{question} ")
        assert len(words) > len(question) + 10
    assert page.count("<figure") == len(pictures)
    assert not re.search(r"\b1 (shards|partitions|workers|queries|jobs|streams|clusters|cores)\b", page)


def limits(*shares: float) -> str:
    """A page's bars of queries with these shares."""
    rows = [{"name": f"b{share}", "share": share, "words": "x", "severity": None} for share in shares]
    for row in rows:
        row["severity"] = "breach" if row["share"] > 1 else "warning" if row["share"] > 0.9 else None
    return drawn(
        report(), f"document.querySelector().replaceChildren(bars('Fit?', 'query', {json.dumps(rows)}));"
    )


def test_a_limit_that_is_broken_is_marked_by_a_word_and_a_shape():
    late, full, calm = limits(0.5, 0.95, 1.2).split("<li")[1:]
    assert 'class="breach"' in late
    assert "✖</span> breach</span> 120%" in late
    assert "▲</span> warning</span> 95%" in full
    assert "mark" not in calm


def test_many_bars_and_flows_are_behind_a_summary_and_none_is_lost():
    shown, folded = limits(*(n / 100 for n in range(1, 51))).split("<details>")
    assert shown.count("<li") == 12
    assert folded.count("<li") == 38
    assert "38 queries with more room" in folded
    box = {"kind": "job", "lines": [], "link": None, "severity": None, "trouble": ""}
    boxes = [box | {"key": f"job j{n}", "name": f"j{n}", "usd": n} for n in range(50)]
    boxes[0] |= {"severity": "breach", "trouble": "late"}
    flows = json.dumps({"boxes": boxes, "arrows": []})
    picture = drawn(report(), f"document.querySelector().replaceChildren(flow({flows})[0]);")
    assert picture.split("<details>")[0].count("data-box=") == 6
    assert picture.count("data-box=") == 50
    assert "44 more flows: 44 jobs" in picture
    first = picture.split("data-box=")[1]
    assert first.startswith('"job j0"'), "what is late is not folded away, however little it costs"


def test_a_circle_of_boxes_is_drawn():
    boxes = [
        {
            "key": key,
            "name": key,
            "kind": "job",
            "lines": [],
            "usd": 0,
            "link": None,
            "severity": None,
            "trouble": "",
        }
        for key in "abc"
    ]
    arrows = [{"begin": begin, "end": end, "label": ""} for begin, end in ("ab", "bc", "ca", "aa")]
    flows = json.dumps({"boxes": boxes, "arrows": arrows})
    picture = drawn(report(), f"document.querySelector().replaceChildren(flow({flows})[0]);")
    assert picture.count("data-box=") == 3


def test_the_page_of_a_comparison_draws_what_is_printed_as_json(tmp_path: Path) -> None:
    file = tmp_path / "ways.html"
    done = CliRunner().invoke(app, ["compare", "--env", "minimal", "--json", "--html", str(file)])
    assert done.exit_code == 0, done.output
    ways = json.loads(done.stdout)
    shown = re.sub('<span class="whole">(.*?)</span>', r"\1", unescape(drawn(file.read_text())))
    assert len(ways) > 5
    for each in ways:
        for text in (each["name"], each["price"], each["lacks"], *each["beyond"]):
            assert text in shown
    assert shown.count("unknown") >= sum(each["usd"] is None for each in ways)


EACH_SOURCE = {
    "kinesis": {"kind": "kinesis"},
    "kafka": {"kind": "kafka", "cluster": "main", "existing": True, "partitions": 3},
}
"""A stream of each kind."""


@pytest.mark.parametrize("kind", sinks.KINDS)
def test_each_form_of_a_plan_shows_each_kind_of_source_and_sink(tmp_path: Path, kind: str) -> None:
    assert EACH_SOURCE.keys() == sources.KINDS.keys(), "a new kind of source needs a stream here"
    streams = {f"{each}-in": stream for each, stream in EACH_SOURCE.items()}
    streams |= {"alerts": EACH_SOURCE["kinesis"], "totals": EACH_SOURCE["kafka"]}  # of the sinks' examples
    traffic = {"records_per_second": 100, "record_size": "1KiB", "basis": "measured"}
    common = {"schema": "pipelines/clicks/schemas/click.ddl"}
    queries: dict[str, Any] = {
        f"land-{each}": {"kind": "land", "source": f"{each}-in", "table": f"{each}_landed", **common}
        for each in EACH_SOURCE
    }
    sink = examples(kind, required=True)
    queries["send"] = {"kind": "direct", "source": "kafka-in", "sink": sink, "dead_letters": "late", **common}
    rate = {"records_per_second_per_core": 5000, "batch_overhead": "2s", "basis": "measured"}
    file, page = tmp_path / "each.yaml", tmp_path / "plan.html"
    environment = {
        "project": "shop",
        "account": "111122223333",
        "kafka": {"main": {"kind": "external", "bootstrap_servers": "broker.example.com:9092"}},
        "streams": {name: {**stream, "traffic": traffic} for name, stream in streams.items()},
        "jobs": {"all": {"engine": "glue", "latency": "5m", "rate": rate, "queries": queries}},
    }
    file.write_text(json.dumps(environment))
    shown = [
        CliRunner().invoke(app, ["plan", "--env", str(file), *form])
        for form in ((), ("--json",), ("--html", str(page)))
    ]
    assert [each.exit_code for each in shown] == [0, 0, 0], [(each.exception, each.output) for each in shown]
    target = sink[sinks.KINDS[kind].named_by]
    boxes = json.loads(shown[1].stdout)["flow"]["boxes"]
    box = next(each for each in boxes if each["name"].endswith(target))
    assert box["lines"][0] in ("Iceberg table", kind) or box["kind"] == "stream"
    assert target in drawn(page.read_text(encoding="utf-8"))
