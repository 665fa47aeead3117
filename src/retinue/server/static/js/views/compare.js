/* Compare: two runs side by side, what they used, and how their reports differ. */

import { api } from "../api.js";
import { h, put, stylesheet } from "../dom.js";
import { statusMark } from "../icons.js";
import { prose } from "../prose.js";
import { go, runPath } from "../router.js";
import { trouble } from "../trouble.js";
import { count, duration, money, moment, oneLine, tokens } from "../words.js";
import { diffBlock } from "./step-detail.js";

export class Compare extends HTMLElement {
  async route({ params }) {
    this.className = "page";
    const { a, b } = params;
    put(
      this,
      h(
        "div",
        { class: "skeleton", role: "status", "aria-label": "Loading" },
        [1, 2, 3, 4].map(() => h("i")),
      ),
    );
    try {
      const [found] = await Promise.all([api.compare(a, b), stylesheet("lists")]);
      this.#draw(found, a, b);
    } catch (error) {
      put(this, trouble("These cannot be compared", error));
    }
  }

  #draw({ a, b, diff }, idA, idB) {
    put(
      this,
      h(
        "header",
        null,
        h("h1", null, "Compare"),
        h("button", { class: "button small", on: { click: () => go(`/compare/${idB}/${idA}`) } }, "Swap"),
      ),
      h("div", { class: "scroll card", tabindex: "0", role: "region", "aria-label": "Figures" }, table(a, b)),
      h(
        "section",
        { class: "stack" },
        h("h2", null, "How the answers differ"),
        diff
          ? diffBlock(diff)
          : h(
              "p",
              { class: "muted" },
              a.report && b.report ? "They are the same." : "One of them has no answer yet.",
            ),
      ),
      h(
        "section",
        { class: "stack" },
        h("h2", null, "The answers"),
        h(
          "div",
          { class: "two" },
          [a, b].map((side) =>
            h(
              "div",
              { class: "card" },
              h(
                "div",
                { class: "inside" },
                h("h3", { class: "cut" }, oneLine(side.run.task, 100)),
                side.report?.text
                  ? prose(h("div"), side.report.text)
                  : h("p", { class: "muted" }, "No answer."),
              ),
            ),
          ),
        ),
      ),
    );
  }
}

function table(a, b) {
  const both = (pick) => [pick(a), pick(b)];
  const rows = [
    [
      "Task",
      both(({ run }) => h("a", { href: `#${runPath(run.root_id)}` }, oneLine(run.label || run.task, 120))),
    ],
    ["Status", both(({ run }) => h("span", { class: "row" }, statusMark(run.outcome), run.outcome))],
    ["Started", both(({ run }) => moment(run.created_at))],
    ["Agent", both(({ run }) => run.agent)],
    ["Model", both(({ run }) => run.model)],
    [
      "Took",
      both(({ run }) => (run.duration_ms === null ? "" : duration(run.duration_ms / 1000))),
      both(({ run }) => run.duration_ms),
    ],
    ["Cost", both(({ total }) => money(total.cost)), both(({ total }) => total.cost)],
    ["Tokens in", both(({ total }) => tokens(total.input_tokens)), both(({ total }) => total.input_tokens)],
    [
      "Tokens out",
      both(({ total }) => tokens(total.output_tokens)),
      both(({ total }) => total.output_tokens),
    ],
    ["Turns", both(({ total }) => String(total.turns)), both(({ total }) => total.turns)],
    ["Tool calls", both(({ total }) => String(total.tool_calls)), both(({ total }) => total.tool_calls)],
    ["Agents", both(({ agents }) => list(agents))],
    ["Tools", both(({ tools }) => list(tools))],
    ["Sources", both(({ report }) => (report ? sources(report.sources) : ""))],
  ];
  return h(
    "table",
    { class: "compare-table" },
    h(
      "thead",
      null,
      h(
        "tr",
        null,
        h("td"),
        h("th", { scope: "col" }, "First"),
        h("th", { scope: "col" }, "Second"),
        h("th", { scope: "col" }, "Difference"),
      ),
    ),
    h(
      "tbody",
      null,
      rows.map(([name, [one, other], numbers]) =>
        h(
          "tr",
          null,
          h("th", { scope: "row" }, name),
          h("td", null, one),
          h("td", null, other),
          h("td", { class: "small muted" }, numbers ? change(...numbers) : ""),
        ),
      ),
    ),
  );
}

const list = (counts) =>
  Object.entries(counts)
    .map(([name, number]) => (number > 1 ? `${name} ×${number}` : name))
    .join(", ") || "none";

function sources(found) {
  const verified = found.filter((one) => one.verified).length;
  return found.length
    ? `${count(verified, "source")} verified${verified < found.length ? `, ${found.length - verified} not` : ""}`
    : "none";
}

function change(one, other) {
  if (one === null || other === null || one === other || one === undefined)
    return one === other ? "same" : "";
  if (!one) return "";
  const percent = Math.round(((other - one) / one) * 100);
  return `${percent > 0 ? "+" : "−"}${Math.abs(percent)} %`;
}

customElements.define("r-compare", Compare);
