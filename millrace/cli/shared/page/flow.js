// The flow: boxes in columns from left to right, and in a narrow window from top to bottom. CSS places the boxes; the
// arrows follow the boxes wherever those are.

const FLOWS = 6; // graphs that are shown without a click
const SEVERITIES = ["breach", "warning", "note"];

/** Connected boxes with their arrows: those with the worst trouble first, then those with the highest cost. */
function graphs({ boxes, arrows }) {
  const group = new Map(boxes.map(box => [box.key, new Set([box.key])]));
  for (const { begin, end } of arrows) {
    const joined = new Set([...group.get(begin), ...group.get(end)]);
    for (const key of joined) group.set(key, joined);
  }
  const found = [...new Set(group.values())].map(keys => {
    const own = boxes.filter(box => keys.has(box.key));
    return {
      boxes: own,
      arrows: arrows.filter(arrow => keys.has(arrow.begin)),
      worst: Math.min(...own.map(box => (box.severity ? SEVERITIES.indexOf(box.severity) : SEVERITIES.length))),
      usd: own.reduce((sum, box) => sum + box.usd, 0),
    };
  });
  return found.sort((one, other) => one.worst - other.worst || other.usd - one.usd);
}

/** Boxes by the longest path to them; in a circle, which a flow may have, the number of boxes bounds the path. */
function layers({ boxes, arrows }) {
  const depth = new Map(boxes.map(box => [box.key, 0]));
  for (const _ of boxes)
    for (const { begin, end } of arrows)
      depth.set(end, Math.min(Math.max(depth.get(end), depth.get(begin) + 1), boxes.length - 1));
  const found = [...new Set(depth.values())].sort((one, other) => one - other)
    .map(level => boxes.filter(box => depth.get(box.key) === level));
  // Within a layer, boxes stand in the order of those that lead to them.
  const place = new Map(found[0].map((box, n) => [box.key, n]));
  for (const layer of found.slice(1)) {
    const wanted = new Map(layer.map(({ key }) => {
      const before = arrows.filter(arrow => arrow.end === key && place.has(arrow.begin)).map(arrow => place.get(arrow.begin));
      return [key, before.reduce((sum, each) => sum + each, 0) / (before.length || 1)];
    }));
    layer.sort((one, other) => wanted.get(one.key) - wanted.get(other.key));
    layer.forEach((box, n) => place.set(box.key, n));
  }
  return found;
}

function boxElement({ key, kind, name, lines, link, severity, trouble }) {
  return make("div", { class: `box ${kind} ${severity || ""}`, "data-box": key },
    make("b", {}, link ? make("a", { href: `#${link}` }, name) : name),
    lines.map(line => make("span", {}, line)),
    severity && make("span", {}, badge(severity), ` ${trouble}`));
}

/** A curve between two columns, or where boxes stand below each other, a line left of them; both with a head. */
function arrowPath(begin, end, across) {
  if (across) {
    const x = begin.offsetLeft + begin.offsetWidth, y = begin.offsetTop + begin.offsetHeight / 2;
    const toX = end.offsetLeft - 2, toY = end.offsetTop + end.offsetHeight / 2;
    const bend = toX > x ? Math.max(24, (toX - x) / 2) : 60;
    return `M${x} ${y}C${x + bend} ${y} ${toX - bend} ${toY} ${toX} ${toY}m-7 -4l7 4l-7 4`;
  }
  const gutter = begin.offsetLeft - 12, y = begin.offsetTop + begin.offsetHeight - 15;
  const toX = end.offsetLeft - 2, toY = end.offsetTop + 15;
  return `M${begin.offsetLeft} ${y}H${gutter}V${toY}H${toX}m-6 -4l6 4l-6 4`;
}

function graph({ boxes, arrows }) {
  const elements = new Map(boxes.map(box => [box.key, boxElement(box)]));
  const lines = make("svg", { "aria-hidden": "true" });
  const jobs = boxes.filter(box => box.kind === "job");
  const columns = layers({ boxes, arrows }).map((layer, level) =>
    make("div", { class: "layer", style: `--level:${level}` }, layer.map(box => elements.get(box.key))));
  const drawn = make("div", { class: "graph" }, columns, lines);
  new ResizeObserver(() => {
    const across = getComputedStyle(drawn).flexDirection === "row";
    lines.replaceChildren(...arrows.map(({ begin, end }) =>
      make("path", { d: arrowPath(elements.get(begin), elements.get(end), across) })));
  }).observe(drawn);
  const name = `Flow of ${(jobs.length ? jobs : boxes).map(box => box.name).join(", ")}`;
  return make("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": name }, drawn);
}

function flow(document_) {
  const { boxes, arrows } = document_;
  const question = "What flows where at the peak?";
  const kinds = own => [...new Set(own.map(box => box.kind))]
    .map(kind => count(own.filter(box => box.kind === kind).length, kind)).join(", ");
  const all = graphs(document_);
  const hidden = all.slice(FLOWS).flatMap(each => each.boxes);
  const told = new Map(boxes.map(box => [box.key, [...box.lines, box.trouble].filter(Boolean).join("; ")]));
  const alone = boxes.filter(box => !arrows.some(({ begin, end }) => begin === box.key || end === box.key));
  const rows = [
    ...arrows.map(({ begin, end, label }) => [begin, end, label || "-", told.get(begin)]),
    ...alone.map(({ key }) => [key, "-", "-", told.get(key)]),
  ];
  return [
    picture("flow", question, `${kinds(boxes)}.`,
      foldRest(all.map(graph), FLOWS, left => `${count(left, "more flow")}: ${kinds(hidden)}`)),
    fold(asTable(question), table(["from", "to", "at the peak", "what it is"], rows, question, { words: true })),
  ];
}
