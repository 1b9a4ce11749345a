// Draws a page without a browser: reads its HTML on standard input, runs its script on elements of these few lines, and writes
// the HTML that a browser would have. Layout, and what follows from it (curves, arrows), is for tests in a real browser.
"use strict";
const escape = text => text.replace(/[&<>"]/g, each => `&#${each.charCodeAt(0)};`);

class Element {
  constructor(tag) { Object.assign(this, { tagName: tag.toUpperCase(), tag, attributes: {}, childNodes: [] }); }
  setAttribute(name, value) { this.attributes[name] = String(value); }
  append(child) { this.childNodes.push(child); }
  replaceChildren(...children) { this.childNodes = children; }
  toString() {
    const named = Object.entries(this.attributes).map(([name, value]) => ` ${name}="${escape(value)}"`).join("");
    const inside = this.childNodes.map(each => (each instanceof Element ? each : escape(String(each)))).join("");
    return `<${this.tag}${named}>${inside}</${this.tag}>`;
  }
}

const page = require("node:fs").readFileSync(0, "utf8");
const [, data, script] = page.match(/<script type="application\/json" id="data">(.*?)<\/script>\s*<script>(.*)<\/script>/s);
const main = new Element("main");
const document = {
  createElement: tag => new Element(tag),
  createElementNS: (_, tag) => new Element(tag),
  querySelector: () => main,
  getElementById: id => (id === "data" ? { textContent: data } : null),
};
class ResizeObserver { observe() {} }
new Function("document", "location", "addEventListener", "ResizeObserver", `${script}\n${process.argv[2] || ""}`)(
  document, { hash: "" }, () => {}, ResizeObserver);
process.stdout.write(main.toString());
