// Curves as SVG, drawn for the width that they have, and again when it changes: text keeps its size in a narrow window.

const HEIGHT = 200, LEFT = 54, RIGHT = 14, TOP = 26, BOTTOM = 40; // pixels around the plot
const TIMES = [["seconds", 1, 180], ["minutes", 60, 10800], ["hours", 3600, 259200], ["days", 86400, Infinity]];

/** Distance of round numbers, of which about `many` lie within a range. */
function stepOf(range, many) {
  const rough = (range || 1) / many, power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].find(each => each * power >= rough) * power;
}

/** Round numbers from `low` to `high`. */
function ticks(low, high, many) {
  const step = stepOf(high - low, many);
  const first = Math.ceil(low / step - 1e-9), last = Math.floor(high / step + 1e-9);
  return Array.from({ length: last - first + 1 }, (_, place) => Number(((first + place) * step).toPrecision(12)));
}

/** All points of a curve, each with the place of its series, which is its colour. */
const pointsOf = series => Object.values(series).flatMap((points, place) => points.map(point => ({ point, place })));

/** Heights at which the bars of each moment begin and end: series lie on each other. */
function stack(series) {
  const tops = new Map();
  return pointsOf(series).map(({ point: [x, y], place }) => {
    const low = tops.get(x) || 0;
    tops.set(x, low + y);
    return { x, low, high: low + y, place };
  });
}

/** A series may be called like a part of every object, such as "constructor". */
const limitOf = ({ limits }, name) => (Object.hasOwn(limits, name) ? limits[name] : Infinity);

/** The figure of a curve: its question, its drawing, its legend, and a table of its points. */
function chart(curve) {
  const { question, unit, series, kind } = curve;
  const names = Object.keys(series).filter(name => series[name].length);
  if (!names.length) return null;
  const spread = name => {
    const values = series[name].map(point => point[1]);
    const low = figure(Math.min(...values)), high = figure(Math.max(...values));
    return `${name} ${low === high ? low : `${low} to ${high}`}`;
  };
  const words = names.slice(0, 8).map(spread).join(", ") + (names.length > 8 ? ` and ${names.length - 8} more` : "");
  const place = make("div", { class: "chart", role: "img", "aria-label": `${question} ${words}` });
  new ResizeObserver(() => place.clientWidth && place.replaceChildren(draw(curve, place.clientWidth))).observe(place);
  const late = names.some(name => series[name].some(point => point[1] > limitOf(curve, name)));
  return make("figure", {},
    make("figcaption", {}, question),
    place,
    make("ul", { class: "legend" },
      Object.keys(series).map((name, at) => series[name].length > 0 && make("li", { class: `c${at % 8}` }, name)),
      late && make("li", { class: "late" }, "beyond the limit")),
    fold(asTable(question), pointTable(question, unit, curve, names)));
}

/** Some 24 points: a listener needs the course, not each point. */
function pointTable(question, unit, { series, x }, names) {
  const most = Math.max(4, Math.floor(24 / names.length));
  const rows = names.flatMap(name => {
    const step = Math.ceil(series[name].length / most);
    return series[name].filter((_, place) => place % step === 0).map(([at, value]) =>
      [name, x === "time" ? duration(at) : figure(at), figure(value)]);
  });
  return table(["", x, unit], rows, `${question} ${rows.length} of ${pointsOf(series).length} points`);
}

function draw({ series, kind, x: xTitle, unit, limits, fits = {} }, width) {
  const all = [...pointsOf(series), ...pointsOf(fits)];
  const stacked = kind === "bars" ? stack(series) : [];

  // Scales: from seconds and from values to pixels.
  const xs = all.map(({ point }) => point[0]);
  if (xTitle === "time") xs.push(0); // curves of a page begin at one moment
  const ys = [0, ...all.flatMap(({ point }) => point.slice(1)), ...Object.values(limits), ...stacked.map(each => each.high)];
  let [left, right] = [Math.min(...xs), Math.max(...xs)];
  const gap = (right - left) / Math.max(1, new Set(xs).size - 1) || 1;
  if (stacked.length || left === right) [left, right] = [left - gap / 2, right + gap / 2]; // a bar is as wide as its gap
  const most = Math.max(...ys) || 1, bottom = Math.min(...ys), step = stepOf(most - bottom, 4);
  const top = Math.ceil(most / step - 1e-9) * step;
  const toX = value => LEFT + ((value - left) / (right - left)) * (width - LEFT - RIGHT);
  const toY = value => HEIGHT - BOTTOM - ((value - bottom) / (top - bottom)) * (HEIGHT - TOP - BOTTOM);

  // Axes.
  const [timeUnit, size] = xTitle === "time" ? TIMES.find(([, , most]) => right - left < most) : [xTitle, 1];
  const text = (attributes, words) => make("text", attributes, words);
  const shorten = value => value.toLocaleString("en-US", value >= 1e5 ? { notation: "compact" } : { maximumSignificantDigits: 6 });
  const grid = ticks(bottom, top, 4).map(value => [
    make("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: toY(value), y2: toY(value) }),
    text({ x: LEFT - 6, y: toY(value) + 4, "text-anchor": "end" }, shorten(value)),
  ]);
  const marks = ticks(left / size, right / size, Math.max(2, Math.floor((width - LEFT) / 64)));
  const axis = marks.map(value => {
    const words = shorten(value), middle = toX(value * size);
    // The last one stays in the picture: a digit is some 7 pixels wide.
    return text({ x: Math.min(middle, width - 3.6 * words.length), y: HEIGHT - BOTTOM + 16, "text-anchor": "middle" }, words);
  });
  const titles = [
    text({ x: (LEFT + width) / 2, y: HEIGHT - 6, "text-anchor": "middle" }, timeUnit),
    text({ x: 0, y: 12 }, unit),
  ];

  // Marks of the data.
  const line = step => (points, place) => make("path", {
    class: `line c${place % 8}`,
    d: points.map(([x, y], n) => `${n ? (step ? `H${toX(x)}V` : `L${toX(x)} `) : `M${toX(x)} `}${toY(y)}`).join(""),
  });
  const dot = ({ point: [x, y], place }) => make("circle", { class: `dot c${place % 8}`, cx: toX(x), cy: toY(y), r: 3.5 });
  const data = {
    line: () => Object.values(series).map(line(false)),
    step: () => Object.values(series).map(line(true)),
    points: () => [pointsOf(series).map(dot), Object.values(fits).map(line(false))],
    bars: () => stacked.map(({ x, low, high, place }) => {
      const wide = Math.max(1, 0.8 * (toX(gap) - toX(0)));
      return make("rect", { class: `bar c${place % 8}`, x: toX(x) - wide / 2, width: wide, y: toY(high), height: toY(low) - toY(high) });
    }),
  }[kind]();

  // Limits, each in the colour of its series, and a triangle on whatever is above its own.
  const bounds = Object.keys(series).map((name, place) => limitOf({ limits }, name) < Infinity && [
    make("line", { class: `limit c${place % 8}`, x1: LEFT, x2: width - RIGHT, y1: toY(limits[name]), y2: toY(limits[name]) }),
    series[name].filter(([, y]) => y > limits[name]).map(([x, y]) =>
      make("path", { class: "late", d: `M${toX(x)} ${toY(y) - 5}l5 8h-10z` })),
  ]);
  return make("svg", { width, height: HEIGHT, "aria-hidden": "true" }, grid, axis, titles, data, bounds);
}
