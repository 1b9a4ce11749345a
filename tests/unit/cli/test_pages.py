"""What a page says without a browser: names, tables and links of whatever it is given, and nothing else."""

from __future__ import annotations

import itertools
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as some

from millrace.cli.plan.plan import check_plan
from millrace.cli.plan.report.flow import flow
from millrace.cli.plan.report.plan_page import costs, plan_page
from millrace.cli.plan.report.plan_verdict import CheckedPlan, plan_verdict
from millrace.cli.shared.bars import SHOWN, Bar, Branch, bars
from millrace.cli.shared.charts import interval_chart, line_chart
from millrace.cli.shared.flow_picture import OPEN, Arrow, Box, flow_picture
from millrace.cli.shared.html_pages import Link, Page, format_number
from millrace.config import environments, load
from millrace.sizing import plan, total
from millrace.sizing.text_format import dollars
from tests.unit.cli.test_commands import ROOT

NASTY = "<img src=x onerror=\"alert('1')\"></script>&"


def parts(page: Page) -> tuple[str, str]:
    before, program = page.html().split('<script type="module">', 1)
    return before, program


def test_names_out_of_a_log_are_words_and_no_markup():
    page = Page(NASTY)
    page.add_heading(NASTY)
    page.text(NASTY)
    page.table(["", NASTY], [[Link(NASTY, NASTY), NASTY]], NASTY, ids=[NASTY])
    page.links(NASTY, [Link(NASTY, NASTY)])
    page.chart(line_chart(NASTY, {NASTY: [(0.0, 1.0), (1.0, 3.0)]}, rules={NASTY: 2.0}), NASTY)
    before, program = parts(page)
    assert "<img" not in before
    assert 'onerror="alert' not in program
    assert program.count("</script>") == 1
    charts = before.split('<script type="application/json" id="specs">')[1]
    [spec] = json.loads(charts.removesuffix("</script>"))
    assert NASTY in json.dumps(spec, ensure_ascii=False).replace('\\"', '"')


def test_a_chart_says_what_it_shows():
    page = Page("page")
    page.chart(line_chart("records", {"a": [(n / 60, float(n)) for n in range(600)]}, x="minutes"), "waiting")
    page.chart(interval_chart("seconds", [("2", 1.5, 1.25, 2.0, "land")], x="cores"), "duration by cores")
    before, _ = parts(page)
    assert 'aria-label="waiting: a 0 to 599"' in before
    assert "<caption>waiting, records, 24 of 600 points</caption>" in before
    assert before.count("<tr>") == 1 + 24 + 2 * 2
    assert '<th scope="row">land</th><td>2</td><td>1.5</td>' in before
    assert '<th scope="row">land</th><td>2</td><td>1.25</td><td>2</td>' in before


def test_a_page_may_fetch_nothing():
    page = Page("page")
    page.chart(line_chart("records", {"a": [(0.0, 1.0)]}), "one")
    before, _ = parts(page)
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', before)
    assert policy
    assert policy[1].startswith("default-src 'none';")
    said, _, specs = before.partition("<script")
    assert specs
    assert not re.search(r"https?:", said)


def test_figures_keep_three_digits_and_all_of_large_ones():
    assert [format_number(each) for each in (0.12345, 12.345, 123456.7, 0, "x", True)] == [
        "0.123",
        "12.3",
        "123,457",
        "0",
        "x",
        "True",
    ]


@pytest.fixture(scope="module", params=environments(ROOT))
def planned(request) -> tuple[CheckedPlan, str]:
    environment = load(request.param, root=ROOT)
    found = check_plan(environment, plan(environment))
    return found, plan_page(found, plan_verdict(found)).html()


def test_the_verdict_comes_first_and_says_what_the_plan_costs(planned):
    found, page = planned
    main = page.split("<main>")[1]
    assert re.match(r'<h1>[^<]+</h1><section class="verdict ', main)
    verdict = main.split("</section>")[0]
    assert f"{dollars(total(found.plan).value)} a month</span>" in verdict
    assert "<dt>SLA</dt>" in verdict
    assert 0 < verdict.split("</ol>")[0].count("<li>") <= 3
    assert "<dt>Next</dt><dd><code>millrace " in verdict


def test_the_flow_has_each_stream_job_and_table_once(planned):
    found, page = planned
    environment = found.environment
    tables = {
        (place[-1], table)
        for job in environment.jobs.values()
        for query in job.queries.values()
        for place, table in query.writes.items()
    }
    expected = [f"stream {each}" for each in environment.streams] + [
        f"job {each}" for each in environment.jobs
    ]
    expected += [f"{'letters' if place == 'dead_letters' else 'table'} {table}" for place, table in tables]
    assert sorted(re.findall(r'data-box="([^"]+)"', page)) == sorted(expected)
    boxes, arrows = flow(found, plan_verdict(found).risks)
    keys = [box.key for box in boxes]
    assert all(each.begin in keys and each.end in keys for each in arrows)
    drawn = re.findall(r'<svg class="(across|down)"[^>]*>(.*?)</svg>', page)
    for way in ("across", "down"):
        assert sum(paths.count("<path") for kind, paths in drawn if kind == way) == len(arrows)


def test_the_tree_adds_up_to_the_total(planned):
    found, page = planned

    def leaves(branch: Branch) -> float:
        return sum(map(leaves, branch.children)) if branch.children else branch.usd

    def agrees(branch: Branch) -> None:
        if branch.children:
            assert branch.usd == pytest.approx(sum(each.usd for each in branch.children))
        for each in branch.children:
            agrees(each)

    tree = costs(found.plan)
    agrees(tree)
    assert leaves(tree) == pytest.approx(total(found.plan).value)
    assert page.count('<span class="row">') > sum(1 for _ in found.items())


def test_each_picture_has_a_question_and_its_text(planned):
    _, page = planned
    pictures = re.findall(r'<figure class="\w+" aria-label="([^"]+)"><figcaption><h2>([^<]+)</h2>', page)
    assert len(pictures) >= 4
    for words, question in pictures:
        assert question.endswith("?")
        assert words.startswith(f"{question} ")
        assert len(words) > len(question) + 10
    assert page.count("<figure") == len(pictures)
    assert "<summary>What flows where at the peak? As a table</summary>" in page


def test_a_planned_page_runs_no_program_and_fetches_nothing(planned):
    _, page = planned
    assert "<script" not in page
    assert "default-src 'none'; style-src 'unsafe-inline'" in page
    assert not re.search(r"https?:|\b(src|srcset)=|url\(|@import", page)
    assert not re.search(r"\b1 (shards|partitions|workers|queries|jobs|streams|clusters|cores)\b", page)


def test_a_bound_that_is_broken_is_marked_by_a_word_and_a_shape():
    drawn = bars([Bar("calm", 0.5, "x"), Bar("full", 0.95, "x"), Bar("late", 1.2, "x")], "query")
    late, full, calm = drawn.split("<li")[1:]
    assert 'class="breach"' in late
    assert "✖</span> breach</span> 120%" in late
    assert "▲</span> warning</span> 95%" in full
    assert "mark" not in calm


def test_many_bars_branches_and_flows_are_behind_a_summary_and_none_is_lost():
    many = [Bar(f"b{n}", n / 100, "x") for n in range(50)]
    drawn = bars(many, "query")
    shown, folded = drawn.split("<details>")
    assert shown.count("<li") == SHOWN
    assert folded.count("<li") == 50 - SHOWN
    assert f"{50 - SHOWN} queries with more room" in folded
    branch = Branch.of("jobs", [Branch(f"j{n}", float(n)) for n in range(50)], "job")
    assert [each.usd for each in branch.children[:SHOWN]] == [float(n) for n in range(49, 49 - SHOWN, -1)]
    assert branch.usd == sum(range(50))
    boxes = [Box(f"job j{n}", "job", f"j{n}", usd=float(n)) for n in range(50)]
    picture = flow_picture(boxes, [])
    assert picture.split("<details>")[0].count("data-box=") == OPEN
    assert picture.count("data-box=") == 50
    assert f"{50 - OPEN} more flows: {50 - OPEN} jobs" in picture
    late = [*boxes[1:], Box("job j0", "job", "j0", severity="breach", trouble="late")]
    first = flow_picture(late, []).split("data-box=")[1]
    assert first.startswith('"job j0"'), "what is late is not folded away, however little it costs"
    assert 'class="box job breach"' in flow_picture(late, [])


@given(some.lists(some.tuples(some.integers(0, 7), some.integers(0, 7)), max_size=20, unique=True))
def test_whatever_flows_no_box_lies_on_another(pairs):
    """Circles among them."""
    boxes = [Box(f"job {n}", "job", "a name " * (n + 1), ("a line " * n,)) for n in range(8)]
    drawn = flow_picture(boxes, [Arrow(f"job {a}", f"job {b}", "x") for a, b in pairs if a != b])
    for graph in drawn.split('<div class="graph"')[1:]:
        places = [
            tuple(map(int, each))
            for each in re.findall(r"--x:(\d+)px;--y:(\d+)px;--nx:(\d+)px;--ny:(\d+)px;--b:(\d+)px", graph)
        ]
        for column in {x for x, *_ in places}:
            across = sorted((y, y + tall) for x, y, _, _, tall in places if x == column)
            assert all(above[1] <= below[0] for above, below in itertools.pairwise(across))
        down = sorted((y, y + tall) for _, _, _, y, tall in places)
        assert all(above[1] <= below[0] for above, below in itertools.pairwise(down))


def test_records_that_are_late_have_a_shape_and_a_word_in_a_chart():
    points = {"land": [(0.0, 10.0), (1.0, 70.0)]}
    spec = line_chart("s", points, rules={"land": 60.0}).to_dict()
    late = spec["layer"][-1]
    assert late["mark"]["shape"] == "triangle-up"
    rows = late["data"].get("values") or spec["datasets"][late["data"]["name"]]
    assert [(row["value"], row["late"]) for row in rows] == [(70.0, "beyond the bound of land")]
    assert len(line_chart("s", points, rules={"land": 80.0}).to_dict()["layer"]) == 2
