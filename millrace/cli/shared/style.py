"""Style of pages: colours in light and dark, and the layout of pictures."""

from __future__ import annotations

COLORS = ("#1f77d0", "#d1541f", "#2b8a43", "#a34fd1", "#c2348a", "#8a7400", "#0f8a8a", "#7a7f87")
"""Colours of charts, each with a contrast of at least 3 : 1 against both backgrounds (WCAG 2.2, 1.4.11)."""

BREACH = "#d93025"
"""Colour of values above their limit in charts; also at least 3 : 1 against both backgrounds."""

CONFIG = {
    "background": None,
    "font": "system-ui, sans-serif",
    "range": {"category": list(COLORS)},
    "legend": {"orient": "bottom", "columns": 2, "labelLimit": 300, "symbolStrokeWidth": 2.5},
    "axis": {"titleFontWeight": "normal", "labelLimit": 140, "gridOpacity": 0.35},
    "view": {"stroke": None},
}

NARROW = "54rem"
"""Width of a window below which the flow picture goes from top to bottom."""

STYLE = """
:root { color-scheme: light dark; --back: #fff; --text: #1d2733; --note: #55616e; --line: #d5dce4; --link: #0b5cad;
  --soft: #f3f6f9; --bar: #8fb8e6; --breach: #b3261e; --warning: #855400; --note-mark: #0b5cad; --kept: #1c6b35; }
@media (prefers-color-scheme: dark) {
  :root { --back: #12181f; --text: #e3e8ee; --note: #a9b5c2; --line: #3a4652; --link: #7db4f5;
    --soft: #1b232c; --bar: #3f6c9f; --breach: #ff9189; --warning: #f0b54a; --note-mark: #7db4f5; --kept: #7ed494; }
}
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 0; color: var(--text); background: var(--back); }
main { max-width: 62rem; margin: 0 auto; padding: 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.3rem; margin: .3rem 0 1rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; }
h3 { font-size: 1rem; margin-top: 1.6rem; }
a { color: var(--link); } :focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
details details { margin-left: 1rem; } .tree details details { margin-left: 0; }
.scroll { overflow-x: auto; margin: .8rem 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; overflow-wrap: normal; }
caption { text-align: left; color: var(--note); }
td, th { padding: .25rem .8rem .25rem 0; text-align: right; vertical-align: top; border-bottom: 1px solid var(--line); }
td:first-child, th:first-child, .words td, .words th { text-align: left; }
tbody th { font-weight: normal; } .note { color: var(--note); }
tr:target, section:target, details:target { outline: 2px solid var(--link); }
figure { margin: 1.2rem 0; } figcaption { font-weight: 600; } figcaption h2 { margin-bottom: .4rem; } .chart, .chart > div { width: 100%; }
.chart svg text { fill: var(--text) !important; }
.chart .role-axis line, .chart .role-axis-grid line, .chart .role-axis-domain line { stroke: var(--line) !important; }
summary { cursor: pointer; color: var(--note); }
.mark { font-weight: 600; white-space: nowrap; }
.breach, .missed { --mark: var(--breach); } .warning, .at-risk { --mark: var(--warning); }
.note-mark, .unknown { --mark: var(--note-mark); } .kept { --mark: var(--kept); } .mark { color: var(--mark); }
.verdict { border: 1px solid var(--line); border-left: .4rem solid var(--mark); border-radius: .3rem;
  background: var(--soft); padding: .8rem 1rem; }
.verdict h2 { margin: 0 0 .5rem; font-size: 1rem; } .verdict .cost { font-size: 1.5rem; font-weight: 600; line-height: 1.2; }
.verdict dl { display: grid; grid-template-columns: 4.5rem 1fr; gap: .5rem .8rem; margin: 0; }
.verdict dt { color: var(--note); } .verdict dd { margin: 0; min-width: 0; } .verdict ol { margin: 0; padding-left: 1.2rem; }
.verdict li + li { margin-top: .3rem; } .verdict code { font-size: 1rem; font-weight: 600; }
.bars, .tree ul, .tree { list-style: none; margin: .4rem 0; padding: 0; } .tree ul { margin: 0 0 .3rem; padding-left: 1rem; }
.bars li, .row { display: grid; grid-template-columns: minmax(0, 14rem) minmax(6rem, 1fr) minmax(0, 21rem); gap: .1rem .8rem;
  align-items: center; padding: .2rem 0; }
.row { grid-template-columns: minmax(0, 1fr) 9rem 6.5rem 3.2rem; } .row .figure { text-align: right; }
.tree .row, .bars li { font-variant-numeric: tabular-nums; } .tree summary { color: var(--text); list-style: none; }
.tree .row .name::before { content: "\\2007"; display: inline-block; width: 1.1em; color: var(--note); }
.tree summary .row .name::before { content: "▸"; } .tree details[open] > summary .row .name::before { content: "▾"; }
.tree .why { color: var(--note); font-size: .85rem; padding-left: 1.1em; margin: 0; }
.track { height: .8rem; background: var(--soft); border: 1px solid var(--line); position: relative; }
.track i { position: absolute; inset: 0 auto 0 0; background: var(--bar); max-width: 100%; }
.breach .track i { background: repeating-linear-gradient(45deg, var(--breach) 0 4px, transparent 4px 7px); }
.breach .track { border-color: var(--breach); border-right-width: 4px; }
.graph { position: relative; width: var(--w); height: var(--h); } .graph + .graph, .flow details .graph:first-of-type { margin-top: 1rem; }
.graph svg { position: absolute; left: 0; top: 0; fill: none; stroke: var(--note); stroke-width: 1.5; overflow: visible; }
.graph svg.down { display: none; }
.box, .graph span.on { position: absolute; left: var(--x); top: var(--y); }
.box { width: 230px; height: var(--b); padding: 6px 10px; overflow: hidden; font-size: 12.5px; line-height: 17px; color: var(--note);
  background: var(--back); border: 1px solid var(--line); border-left: 4px solid var(--link); border-radius: 4px; }
.box.job { border-left-color: var(--text); background: var(--soft); } .box.table { border-left-color: var(--kept); }
.box.breach, .box.warning { border: 2px solid var(--mark); border-left-width: 6px; padding: 5px 9px 5px 7px; }
.box b { display: block; font-size: 14px; line-height: 19px; color: var(--text); } .box > span { display: block; }
.graph span.on { font-size: 12px; line-height: 14px; white-space: nowrap; color: var(--note); background: var(--back); padding: 0 2px; }
.graph span.to { width: 80px; text-align: right; }
@media (max-width: %NARROW%) {
  .graph { width: 100%; height: var(--nh); } .graph svg.across { display: none; } .graph svg.down { display: block; }
  .box, .graph span.on { left: var(--nx); top: var(--ny); } .box { width: calc(100% - var(--nx)); } .graph span.to { text-align: left; }
}
@media (max-width: 36rem) {
  .bars li { grid-template-columns: 1fr; padding: .4rem 0; } .row { grid-template-columns: minmax(0, 1fr) 6rem 3.2rem; }
  .row .track { display: none; } .verdict dl { grid-template-columns: 1fr; gap: .1rem; } .verdict dt { margin-top: .4rem; }
}
""".replace("%NARROW%", NARROW)
