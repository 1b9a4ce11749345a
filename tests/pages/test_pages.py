"""Every HTML page renders in a browser, loads nothing from a network, and works by keyboard and screen reader."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Route

from millrace.advisor.advise import advise
from millrace.advisor.forecasts.what_if import parse_what_if_changes, twin_of_application
from millrace.benchmark.result import fit_all_queries
from millrace.cli.plan.bench.report import benchmark_page as benchmark_page
from millrace.cli.plan.plan_and_validate import simulated_plan_with_warnings
from millrace.cli.plan.report.plan_document import plan_document
from millrace.cli.plan.report.plan_verdict import plan_verdict
from millrace.cli.plan.report.simulate_page import simulation_page
from millrace.cli.plan.report.simulate_verdict import simulation_verdict
from millrace.cli.plan.simulate import simulation_document as simulation_json
from millrace.cli.shared.html_pages import html_page, write_page
from millrace.cli.shared.verdict import verdict_document as verdict_json
from millrace.cli.watch.advise import advice_document as advice_json
from millrace.cli.watch.advise_page import advice_page
from millrace.cli.watch.advise_verdict import advice_verdict
from millrace.config import load
from millrace.sizing import plan
from millrace.sizing.alternatives.other_engines_and_services import alternatives
from millrace.sizing.simulation import Arrivals, simulate
from millrace.sizing.simulation.plan_scenario import scenario_of_job, streams_of_job
from tests.pages import browser
from tests.unit.advisor.event_logs_with_known_costs import Truth, history
from tests.unit.benchmark.synthetic_measurements import session

ROOT = Path(__file__).parents[2]
NARROW, WIDE = {"width": 400, "height": 800}, {"width": 1200, "height": 900}
READABLE = 4.5
"""Contrast of text (WCAG 2.2, 1.4.3)."""


@dataclass
class Opened:
    """A page in the browser, and what it did to get there."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


def advice(file: Path) -> None:
    """Of a query whose limit is too low, with a hot partition, beside one that is well."""
    short = Truth(
        swing=0.4, seed=1, name="short", limit=3000, rate=900.0, trigger=4.0, seconds=240.0, hot=0.5
    )
    result = advise(history([short, replace(short, name="well", limit=None, rate=500.0, hot=0.0, seed=2)]))
    assert result.findings
    twin = twin_of_application(result.history, 0.44)
    asked = [
        twin.forecast_what_if(parse_what_if_changes(text, ["short"]), draws=3)
        for text in ("cores=4", "limit=6000")
    ]
    document = advice_json(result) | {"verdict": verdict_json(advice_verdict(result))}
    write_page(file, advice_page(document, result.history, twin, asked))


def simulated(file: Path) -> None:
    environment = load(str(ROOT / "docs" / "examples" / "spiky.yaml"), ROOT)
    sized = plan(environment)
    arrivals = {
        name: Arrivals.spikes(100, 9000, 300, 1200) for name in streams_of_job(environment, "on-glue")
    }
    result = simulate(scenario_of_job(environment, sized, "on-glue", arrivals))
    played = {"on-glue": result}
    verdict = simulation_verdict(
        environment, sized, played, env="x", repeat_command="millrace simulate", fixed=False
    )
    assert verdict.sla.state == "missed"
    jobs = {"on-glue": simulation_json(sized, "on-glue", result)}
    write_page(file, simulation_page("spiky", {"verdict": verdict_json(verdict), "jobs": jobs}, played))


def planned(file: Path) -> None:
    environment = load("prod", ROOT)
    result = simulated_plan_with_warnings(environment, plan(environment))
    write_page(
        file, html_page("plan", "flights-prod: plan", plan_document(result, plan_verdict(result, "prod")))
    )


def measured(file: Path) -> None:
    environment = load("prod", ROOT)
    job = next(iter(environment.jobs))
    told = {"record_bytes": 300, "where": "sandbox", "worker": "a core", "architecture": "x86_64"}
    result = fit_all_queries([session(2, alpha=0.2), session(1)], ("a", "b"), **told)  # type: ignore[arg-type]
    write_page(file, benchmark_page(environment, job, result))


def compared(file: Path) -> None:
    environment = load("prod", ROOT)
    ways = alternatives(environment, plan(environment), {"EMR 9.9": "a key of a job does not fit it"})
    write_page(
        file, html_page("compare", "flights-prod: other ways", {"ways": [asdict(each) for each in ways]})
    )


PAGES = {
    "advice": (advice, 24),
    "simulate": (simulated, 5),
    "plan": (planned, 0),
    "benchmark": (measured, 1),
    "compare": (compared, 0),
}
"""Each with the curves that it has."""
DRAWN = "[...document.querySelectorAll('.chart')].every(each => each.querySelector('svg') || !each.checkVisibility())"
SHOTS = ROOT / ".millrace" / "pages"
"""Pictures of all pages, to be looked at."""
PICTURES = {"plan": ["flow", "costs", "room", "room", "room"]}
"""Of HTML and SVG."""


def wait(page: Page, expression: str) -> None:
    """Wait until an expression is true; the page's policy forbids what Playwright's own waiting evaluates."""
    until = time.monotonic() + 15
    while not page.evaluate(expression):
        assert time.monotonic() < until, expression
        page.wait_for_timeout(20)


@pytest.fixture(scope="module", params=PAGES)
def opened(request, chromium: Browser, tmp_path_factory) -> Iterator[tuple[str, Opened]]:
    make, _ = PAGES[request.param]
    file = tmp_path_factory.mktemp("page") / "page.html"
    make(file)
    context = chromium.new_context(viewport=WIDE, color_scheme="light")  # type: ignore[arg-type]
    result = Opened(context.new_page())
    result.page.on(
        "console",
        lambda told: result.complaints.append(told.text) if told.type in ("error", "warning") else None,
    )
    result.page.on("pageerror", lambda error: result.complaints.append(str(error)))

    def only_the_page(route: Route) -> None:
        if route.request.url == file.as_uri():
            route.continue_()
            return
        result.requests.append(route.request.url)
        route.abort()

    context.route("**/*", only_the_page)
    context.set_default_timeout(15_000)
    result.page.goto(file.as_uri())
    wait(result.page, DRAWN)
    yield request.param, result
    context.close()


def test_pictures_of_each_page(opened):
    name, page = opened[0], opened[1].page
    SHOTS.mkdir(parents=True, exist_ok=True)
    for width, scheme in itertools.product((1280, 800, 400), ("light", "dark")):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        wait(page, DRAWN)
        # A chart is drawn anew in the width that is left.
        wait(page, f"document.documentElement.scrollWidth <= {width}")
        page.screenshot(path=SHOTS / f"{name}-{width}-{scheme}.png", full_page=True)
    height = page.evaluate("document.documentElement.scrollHeight")
    page.emulate_media(color_scheme="light")
    page.set_viewport_size(WIDE)  # type: ignore[arg-type]
    assert height < 9000, "folds keep a page short, at 400 pixels too"


def test_every_chart_is_drawn_and_nothing_is_fetched(opened):
    name, result = opened
    result.page.evaluate("""() => {
        window.folded = [...document.querySelectorAll('details:not([open])')];
        folded.forEach(each => (each.open = true));
    }""")
    wait(result.page, "[...document.querySelectorAll('.chart')].every(each => each.querySelector('svg'))")
    marks = result.page.eval_on_selector_all(
        ".chart", "all => all.map(each => each.querySelectorAll('.line, .bar, .dot').length)"
    )
    outside = result.page.eval_on_selector_all(
        ".chart svg",
        """all => all.filter(svg => [...svg.querySelectorAll('.line, .bar, .dot, text')].some(each => {
          const {left, right, top, bottom} = each.getBoundingClientRect(), frame = svg.getBoundingClientRect();
          return left < frame.left - 2 || right > frame.right + 1 || top < frame.top - 2 || bottom > frame.bottom + 2;
        })).length""",
    )
    result.page.evaluate("folded.forEach(each => (each.open = false))")
    assert len(marks) == PAGES[name][1]
    assert all(marks), marks
    assert outside == 0
    assert result.complaints == []
    assert result.requests == []


def test_every_chart_has_a_name_and_a_table(opened):
    name, page = opened[0], opened[1].page
    pictures = page.eval_on_selector_all(
        "figure[class]", "all => all.map(each => [each.className, each.getAttribute('aria-label')])"
    )
    assert [kind for kind, _ in pictures] == PICTURES.get(name, [])
    names = page.eval_on_selector_all(".chart", "all => all.map(each => each.getAttribute('aria-label'))")
    assert all(len(each) > 40 for _, each in pictures)
    assert all(len(each) > 20 for each in names)  # question and range
    assert len(set(names)) == len(names)
    assert page.eval_on_selector_all(
        ".chart", "all => all.every(each => each.getAttribute('role') === 'img')"
    )
    rows = page.eval_on_selector_all(
        "figure:not([class]) > details", "all => all.map(each => each.querySelectorAll('tbody tr').length)"
    )
    assert len(rows) == len(names)
    assert all(rows)
    levels = [
        int(each[1])
        for each in page.eval_on_selector_all("h1, h2, h3", "all => all.map(each => each.tagName)")
    ]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_rule_of_accessibility_is_broken(opened, scheme):
    page = opened[1].page
    page.emulate_media(color_scheme=scheme)
    page.evaluate(browser.AXE.read_text())
    broken = page.evaluate(
        "axe.run().then(found => found.violations.map(each => [each.id, each.nodes[0].html]))"
    )
    page.emulate_media(color_scheme="light")
    assert broken == []


def luminance(color: str) -> float:
    """Of an ``rgb()`` (WCAG 2.2, "relative luminance")."""
    parts = [int(each) / 255 for each in re.findall(r"\d+", color)[:3]]
    red, green, blue = (
        each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_in_charts_too(opened, scheme):
    page = opened[1].page
    page.emulate_media(color_scheme=scheme)
    back = page.evaluate("getComputedStyle(document.body).backgroundColor")
    inks = page.evaluate(
        """() => {
          const words = [...document.querySelectorAll('h1, h2, h3, p, a, td, th, caption, summary, figcaption')];
          const drawn = [...document.querySelectorAll('.chart svg text')];
          return [...new Set([...words.map(each => getComputedStyle(each).color), ...drawn.map(each => getComputedStyle(each).fill)])];
        }"""
    )
    page.emulate_media(color_scheme="light")
    assert (luminance(back) < 0.05) == (scheme == "dark")
    assert len(inks) >= 2
    assert {ink: contrast(ink, back) for ink in inks if contrast(ink, back) < READABLE} == {}


def test_nothing_leaves_a_narrow_window(opened):
    page = opened[1].page
    page.set_viewport_size(NARROW)  # type: ignore[arg-type]
    wait(
        page,
        "[...document.querySelectorAll('.chart svg')].every(each => !each.checkVisibility() || each.clientWidth <= 400)",
    )
    widest = page.evaluate("document.documentElement.scrollWidth")
    fonts = page.eval_on_selector_all(
        "p, td, th", "all => Math.min(...all.map(each => parseFloat(getComputedStyle(each).fontSize)))"
    )
    page.set_viewport_size(WIDE)  # type: ignore[arg-type]
    assert widest <= NARROW["width"]
    assert fonts >= 12


@pytest.mark.parametrize("width", [400, 1280])
def test_no_option_date_or_region_is_broken(opened, width):
    """A command with an option in two halves is copied or read wrongly."""
    page = opened[1].page
    page.set_viewport_size({"width": width, "height": 900})
    broken = page.evaluate(
        r"""() => {
          const walker = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT), broken = [];
          while (walker.nextNode())
            for (const {index, 0: text} of walker.currentNode.data.matchAll(/--[a-z][a-z-]*|\d{4}-\d\d-\d\d|us-east-\d/g)) {
              const range = document.createRange();
              range.setStart(walker.currentNode, index);
              range.setEnd(walker.currentNode, index + text.length);
              if (new Set([...range.getClientRects()].map(each => Math.round(each.top))).size > 1) broken.push(text);
            }
          return broken;
        }"""
    )
    page.set_viewport_size(WIDE)  # type: ignore[arg-type]
    assert broken == []


def test_a_keyboard_reaches_findings_and_their_batches(opened):
    name, result = opened
    page = result.page
    links = page.eval_on_selector_all("a", "all => all.map(each => each.getAttribute('href'))")
    places = page.eval_on_selector_all(
        "a", "all => all.every(each => document.getElementById(each.getAttribute('href').slice(1)))"
    )
    assert places
    assert any(each.startswith("#batch-") for each in links) == (name == "advice")
    stops = page.eval_on_selector_all(
        "a, summary, [tabindex]", "all => all.filter(each => each.checkVisibility()).length"
    )
    shown = page.eval_on_selector_all(
        "a", "all => all.filter(each => each.checkVisibility()).map(each => each.getAttribute('href'))"
    )
    page.evaluate("document.activeElement.blur()")
    reached = []
    for _ in range(stops):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate("[document.activeElement.tagName, document.activeElement.getAttribute('href')]")
        )
    assert [href for tag, href in reached if tag == "A"] == shown
    folded = page.eval_on_selector_all("summary", "all => all.filter(each => each.checkVisibility()).length")
    assert sum(tag == "SUMMARY" for tag, _ in reached) == folded
    if name == "advice":
        page.focus("a[href^='#batch-']")
        page.keyboard.press("Enter")
        wait(page, "location.hash.startsWith('#batch-')")
        seen = page.evaluate(
            "(({top, bottom}) => top > -1 && bottom <= innerHeight + 1)(document.querySelector(':target').getBoundingClientRect())"
        )
        assert seen
        page.keyboard.press("Tab")


def test_a_chart_opens_its_table_by_keyboard(opened):
    name, page = opened[0], opened[1].page
    if name == "compare":
        return  # a table, and nothing beside it
    place = "figure + details" if name == "plan" else "figure:not([class]) > details"
    if name == "advice":
        page.evaluate("document.querySelectorAll('main > details').forEach(each => (each.open = true))")
    page.focus(f"{place} summary")
    page.keyboard.press("Enter")
    page.wait_for_selector(f"{place}[open] table caption")
    page.keyboard.press("Enter")


@pytest.mark.parametrize("width", [400, 900, 1400])
def test_the_verdict_fills_the_top_and_no_box_lies_on_another(opened, width):
    """Whatever the window: the text of each box fits into it, and arrows have their own place."""
    name, page = opened[0], opened[1].page
    page.set_viewport_size({"width": width, "height": 900})
    if name not in ("benchmark", "compare"):
        order = page.eval_on_selector_all(
            "main > *", "all => all.map(each => each.className || each.tagName)"
        )
        assert order[0] == "H1"
        assert order[1].startswith("verdict ")
        assert page.evaluate("document.querySelector('.verdict').getBoundingClientRect().top") < 200
    boxes = page.eval_on_selector_all(
        ".box",
        """all => all.filter(each => each.checkVisibility()).map(each => {
          const {left, top, right, bottom} = each.getBoundingClientRect();
          return [left, top, right, bottom, each.scrollHeight - each.clientHeight];
        })""",
    )
    page.set_viewport_size(WIDE)  # type: ignore[arg-type]
    assert (len(boxes) > 20) == (name == "plan")
    assert [each for each in boxes if each[4] > 1] == []
    for (left, top, right, bottom, _), other in itertools.combinations(boxes, 2):
        assert other[0] >= right or other[2] <= left or other[1] >= bottom or other[3] <= top


def test_arrows_run_one_way_only_at_each_width(opened):
    name, page = opened[0], opened[1].page
    if name != "plan":
        return
    seen = {}
    for width in (400, 1200):
        page.set_viewport_size({"width": width, "height": 900})
        wait(
            page,
            f"/C/.test(document.querySelector('.graph path').getAttribute('d')) === {str(width > 400).lower()}",
        )
        seen[width] = page.eval_on_selector_all(
            ".graph path", "all => all.map(each => /C/.test(each.getAttribute('d')))"
        )
    assert seen[400], "lines left of the boxes"
    assert not any(seen[400])
    assert all(seen[1200]), "curves between columns"
