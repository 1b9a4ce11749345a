"""What a page says without a browser: names, tables and links of whatever it is given, and nothing else."""

from __future__ import annotations

import json
import re

from millrace.cli.shared.charts import band, lines
from millrace.cli.shared.pages import Link, Page, number

NASTY = "<img src=x onerror=\"alert('1')\"></script>&"


def parts(page: Page) -> tuple[str, str]:
    before, program = page.html().split('<script type="module">', 1)
    return before, program


def test_names_out_of_a_log_are_words_and_no_markup():
    page = Page(NASTY)
    page.heading(NASTY)
    page.text(NASTY)
    page.table(["", NASTY], [[Link(NASTY, NASTY), NASTY]], NASTY, ids=[NASTY])
    page.links(NASTY, [Link(NASTY, NASTY)])
    page.chart(lines(NASTY, {NASTY: [(0.0, 1.0), (1.0, 3.0)]}, rules={NASTY: 2.0}), NASTY)
    before, program = parts(page)
    assert "<img" not in before
    assert 'onerror="alert' not in program
    assert program.count("</script>") == 1
    charts = before.split('<script type="application/json" id="specs">')[1]
    [spec] = json.loads(charts.removesuffix("</script>"))
    assert NASTY in json.dumps(spec, ensure_ascii=False).replace('\\"', '"')


def test_a_chart_says_what_it_shows():
    page = Page("page")
    page.chart(lines("records", {"a": [(n / 60, float(n)) for n in range(600)]}, x="minutes"), "waiting")
    page.chart(band("seconds", [("2", 1.5, 1.25, 2.0, "land")], x="cores"), "duration by cores")
    before, _ = parts(page)
    assert 'aria-label="waiting: a 0 to 599"' in before
    assert "<caption>waiting, records, 24 of 600 points</caption>" in before
    assert before.count("<tr>") == 1 + 24 + 2 * 2
    assert '<th scope="row">land</th><td>2</td><td>1.5</td>' in before
    assert '<th scope="row">land</th><td>2</td><td>1.25</td><td>2</td>' in before


def test_a_page_may_fetch_nothing():
    page = Page("page")
    page.chart(lines("records", {"a": [(0.0, 1.0)]}), "one")
    before, _ = parts(page)
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', before)
    assert policy
    assert policy[1].startswith("default-src 'none';")
    said, _, specs = before.partition("<script")
    assert specs
    assert not re.search(r"https?:", said)


def test_figures_keep_three_digits_and_all_of_large_ones():
    assert [number(each) for each in (0.12345, 12.345, 123456.7, 0, "x", True)] == [
        "0.123",
        "12.3",
        "123,457",
        "0",
        "x",
        "True",
    ]
