"use strict";
// Elements of a page: text, marks, tables, folds, bars, verdicts. Every text becomes a text node, so no value of the
// document can become a tag.

const SVG = new Set(["svg", "path", "line", "rect", "circle", "text"]);

/** Returns an element; a text among its children stays text. Children that are null or false are left out. */
function make(tag, attributes, ...children) {
  const made = SVG.has(tag)
    ? document.createElementNS("http://www.w3.org/2000/svg", tag)
    : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {}))
    if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  for (const child of children.flat(Infinity))
    if (child !== null && child !== undefined && child !== false) made.append(child);
  return made;
}

// Numbers, as `millrace/sizing/readable_numbers.py` writes them for a terminal.

const fixed = (number, digits) =>
  number.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });

/** Three significant digits; a large number with all its digits. */
const figure = number =>
  Math.abs(number) >= 100 ? fixed(number, 0) : String(Number(number.toPrecision(3)));

const dollars = (usd, assumed) => `${assumed ? "~" : ""}$${fixed(usd, Math.abs(usd) >= 99.995 ? 0 : 2)}`;

/** A share below 1 is never shown as 100%, and one above 0 never as 0%. */
function percent(share) {
  if (share > 0 && share < 0.001) return "<0.1%";
  if (share < 0.01 || (share >= 0.99 && share < 1)) return `${Math.floor(share * 1000 + 1e-9) / 10}%`;
  return `${Math.round(share * 100)}%`;
}

/** The two largest units of some seconds; null, which JSON has for infinity, is "forever". */
function duration(seconds) {
  if (seconds === null) return "forever";
  if (seconds < 0.9995) return seconds ? `${Math.round(seconds * 1000)} ms` : "0 s";
  if (seconds < 10) return `${seconds.toFixed(1).replace(".0", "")} s`;
  const whole = Math.round(seconds);
  const units = [["day", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const place = units.findIndex(([, size]) => whole >= size);
  const [unit, size] = units[place];
  const many = Math.floor(whole / size);
  const first = `${many} ${unit}${unit === "day" && many > 1 ? "s" : ""}`;
  if (place === 3) return first;
  const rest = Math.floor((whole % size) / units[place + 1][1]);
  return rest ? `${first} ${rest} ${units[place + 1][0]}` : first;
}

const plural = noun => noun.replace(/([^aeiou])y$/, "$1ie").replace(/(s|x|ch|sh)$/, "$1e") + "s";
const count = (number, noun) => `${fixed(number, 0)} ${number === 1 ? noun : plural(noun)}`;

// Parts.

const MARKS = { breach: "✖", missed: "✖", warning: "▲", "at risk": "▲", note: "●", unknown: "●", kept: "✔" };

/** A severity or a state as a shape and a word in its colour; a note's class is not that of small print. */
const badge = name =>
  make("span", { class: `mark ${name === "note" ? "note-mark" : name.replace(" ", "-")}` },
    make("span", { "aria-hidden": "true" }, MARKS[name]), ` ${name}`);

/** A text whose options, dates and regions are not broken at their hyphens. */
const whole = text => text.split(/(--[a-z][a-z-]*|\d{4}-\d\d-\d\d|\b[a-z]{2}(?:-[a-z]+)+-\d)/)
  .map((part, place) => (place % 2 ? make("span", { class: "whole" }, part) : part));

/** A text whose parts between backticks are code. */
const prose = text => text.split("`").map((part, place) => (place % 2 ? make("code", {}, part) : whole(part)));

const note = text => make("p", { class: "note" }, prose(text));

function fold(summary, content, { open = false, id = null } = {}) {
  return make("details", { open, id }, make("summary", {}, summary), content);
}

/** A summary; the question is for those who hear it without the picture above. */
const asTable = question => ["As a table", make("span", { class: "unseen" }, `: ${question}`)];

/** The first parts, and the others behind a summary where there are more than one of them. */
function foldRest(parts, most, summary, wrap = each => each) {
  if (parts.length <= most + 1) return wrap(parts);
  return [wrap(parts.slice(0, most)), fold(summary(parts.length - most), wrap(parts.slice(most)))];
}

/** A table whose first cells name their rows. In a narrow window each row is a card, and `head` stands in its cells. */
function table(head, rows, caption, { ids = [], words = false } = {}) {
  const cells = row => row.map((cell, column) =>
    make(column ? "td" : "th", { scope: column ? null : "row", "data-head": head[column] || null },
      make("span", {}, typeof cell === "string" ? whole(cell.replace(/\[[^\]]*\]/g, interval => interval.replaceAll(" ", "\u00a0"))) : cell)));
  return make("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": caption },
    make("table", { class: words ? "words" : null },
      make("caption", {}, caption),
      make("thead", {}, make("tr", {}, head.map(each => (each ? make("th", { scope: "col" }, each) : make("td"))))),
      make("tbody", {}, rows.map((row, place) => make("tr", { id: ids[place] || null }, cells(row))))));
}

/** A picture with the question that it answers, and its content in words for those who cannot see it. */
function picture(kind, question, words, ...drawn) {
  return make("figure", { class: kind, "aria-label": `${question} ${words}` },
    make("figcaption", {}, make("h2", {}, question)), drawn);
}

const track = share =>
  make("span", { class: "track", "aria-hidden": "true" }, make("i", { style: `width:${Math.min(1, share) * 100}%` }));

/** Shares of limits, the fullest first; one above its limit is hatched, red and marked with a word. */
function bars(question, noun, rows) {
  if (!rows.length) return null;
  const sorted = [...rows].sort((one, other) => other.share - one.share);
  const over = rows.filter(each => each.share > 1).length;
  const words = `${over || "None"} of ${rows.length} beyond the limit; the fullest is ${sorted[0].name}, ${percent(sorted[0].share)}.`;
  const drawn = sorted.map(({ name, share, words, severity }) =>
    make("li", { class: severity },
      make("span", { class: "name" }, name), track(share),
      make("span", { class: "figure" }, severity && [badge(severity), " "], `${percent(share)}: ${words}`)));
  return picture("room", question, words,
    foldRest(drawn, 12, left => `${count(left, noun)} with more room`, part => make("ul", { class: "bars" }, part)));
}

/** Cost, SLA, the three largest risks and the next command; the other risks are behind a summary. */
function verdict({ subject, cost, sla, risks, next }) {
  const worst = risks.some(each => each.severity === "breach") ? "missed" : sla.state;
  const items = risks.map(({ severity, words }) => make("li", {}, badge(severity), " ", prose(words)));
  const rest = items.length > 3 && fold(count(items.length - 3, "smaller risk"), make("ol", { start: 4 }, items.slice(3)));
  const row = (name, ...content) => [make("dt", {}, name), make("dd", {}, content)];
  return make("section", { class: `verdict ${worst.replace(" ", "-")}`, "aria-labelledby": "verdict" },
    make("h2", { id: "verdict" }, "Verdict"),
    make("p", {}, subject),
    make("dl", {},
      row("Cost", make("span", { class: "cost" }, cost.headline), " ", whole(cost.words.slice(cost.headline.length + 2))),
      row("SLA", badge(sla.state), " ", prose(sla.words)),
      row("Risks", items.length ? make("ol", {}, items.slice(0, 3)) : "none that was looked for", rest),
      row("Next", make("code", {}, next.command), " ", prose(next.words))));
}
