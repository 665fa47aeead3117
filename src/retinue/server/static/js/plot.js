/* Plots of the page's own: bars over days, bars by name. Every plot has its numbers as a table too. */

import { h, s } from "./dom.js";

const HEIGHT = 180;
const LEFT = 52;
const BOTTOM = 22;

/** The next round number above, to end an axis at. */
function ceiling(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((one) => one * power).find((one) => one >= value * 0.999);
}

/** Bars over time, stacked by part: items are { name, parts: [numbers], title }. */
export function columns({ label, items, parts, format, width: whole }) {
  const top = ceiling(Math.max(...items.map((item) => item.parts.reduce((total, one) => total + one, 0)), 0));
  const room = whole - LEFT;
  const step = room / items.length;
  const width = Math.min(44, step * 0.7);
  const y = (value) => HEIGHT - BOTTOM - (value / top) * (HEIGHT - BOTTOM - 10);
  const lines = [0, 0.5, 1].map((share) => [
    s("line", { x1: LEFT, x2: whole, y1: y(top * share), y2: y(top * share), class: "grid" }),
    s("text", { x: LEFT - 8, y: y(top * share) + 4, "text-anchor": "end" }, format(top * share)),
  ]);
  const every = Math.ceil((items.length * 52) / room);
  const bars = items.map((item, index) => {
    const x = LEFT + step * index + (step - width) / 2;
    let sofar = 0;
    const rects = item.parts.map((value, part) => {
      const from = y(sofar);
      sofar += value;
      return s("rect", {
        x,
        width,
        y: y(sofar),
        height: Math.max(0, from - y(sofar)),
        class: `part-${part}`,
      });
    });
    const middle = x + width / 2;
    const named =
      (items.length - 1 - index) % every === 0 &&
      (middle + 18 > whole
        ? s("text", { x: whole, y: HEIGHT - 5, "text-anchor": "end" }, item.short ?? item.name)
        : s("text", { x: middle, y: HEIGHT - 5, "text-anchor": "middle" }, item.short ?? item.name));
    return s(
      "g",
      { class: "bar" },
      s("title", null, `${item.name}: ${item.title}`),
      s("rect", { x: LEFT + step * index, width: step, y: 0, height: HEIGHT - BOTTOM, class: "hit" }),
      rects,
      named,
    );
  });
  return figure(
    label,
    s(
      "svg",
      { viewBox: `0 0 ${whole} ${HEIGHT}`, class: "plot", role: "img", "aria-label": label },
      lines,
      bars,
    ),
    parts.length > 1 ? legend(parts) : null,
    table(items),
  );
}

/** One bar for each name, the longest first. */
export function bars({ label, items, format }) {
  const most = Math.max(...items.map((item) => item.value), 0) || 1;
  const rows = items.map((item) => {
    const row = h(
      "li",
      { title: item.title },
      h("span", { class: "cut" }, item.name),
      h("span", { class: "bar-track", "aria-hidden": "true" }, h("span", { class: "bar-fill" })),
      h("span", { class: "num" }, format(item.value)),
    );
    row.querySelector(".bar-fill").style.width = `${(item.value / most) * 100}%`;
    return row;
  });
  return h(
    "figure",
    { class: "figure" },
    h("figcaption", null, label),
    h("ol", { class: "plain bar-list", "aria-label": label }, rows),
  );
}

function legend(parts) {
  return h(
    "ul",
    { class: "legend plain" },
    parts.map((name, index) =>
      h(
        "li",
        null,
        s(
          "svg",
          { width: 12, height: 12, "aria-hidden": "true" },
          s("rect", { width: 12, height: 12, rx: 2, class: `part-${index}` }),
        ),
        name,
      ),
    ),
  );
}

function figure(label, plot, below, numbers) {
  return h(
    "figure",
    { class: "figure" },
    h("div", { class: "row" }, h("figcaption", { class: "grow" }, label), below),
    plot,
    numbers,
  );
}

function table(items) {
  return h(
    "details",
    { class: "numbers small" },
    h("summary", { class: "muted" }, "As numbers"),
    h(
      "table",
      null,
      h(
        "tbody",
        null,
        items.map((item) =>
          h("tr", null, h("th", { scope: "row" }, item.name), h("td", { class: "num" }, item.title)),
        ),
      ),
    ),
  );
}
