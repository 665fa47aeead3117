/* Log: every event of the workflow as it was written, and a fork from any of them. */

import { debounce, h, put, say } from "../dom.js";
import { icon } from "../icons.js";
import { may } from "../session.js";
import { VirtualList } from "../virtual.js";
import { brief, clock, count, oneLine } from "../words.js";
import { textBlock } from "./step-detail.js";
import { FlowView } from "./flow-view.js";

const TELLING = ["text", "message", "name", "tool", "agent", "prompt", "reason", "what", "report"];

export class Log extends FlowView {
  connectedCallback() {
    this.open = new Set();
    this.search = h("input", {
      class: "field",
      type: "search",
      placeholder: "Filter events",
      "aria-label": "Filter events by type, agent or text",
      on: { input: debounce(150, () => this.draw()) },
    });
    this.count = h("span", { class: "muted small num" });
    this.rows = h("div", { class: "log", role: "list", tabindex: "0", "aria-label": "Events" });
    put(
      this,
      h("div", { class: "steps-bar" }, h("div", { class: "grow" }, this.search), this.count),
      this.rows,
    );
    this.list = new VirtualList(this.rows, { rowHeight: 30, make: (row) => this.#make(row) });
    this.begin(() => this.#draw());
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    this.list.destroy();
  }

  #draw() {
    const words = this.search.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
    const all = this.flow.log;
    const fits = words.length ? all.filter((event) => fitting(event, this.flow, words)) : all;
    const known = this.flow.expected ?? all.length;
    say(this.count, fits.length < known ? `${number(fits.length)} of ${count(known, "event")}` : count(known, "event"));
    const rows = [];
    for (const event of fits) {
      rows.push({ key: event.pos, event });
      if (this.open.has(event.pos)) rows.push({ key: `${event.pos}:detail`, event, measured: true });
    }
    this.list.set(rows);
  }

  #make({ key, event, measured }) {
    if (measured)
      return h("div", { class: "step-detail", role: "listitem" }, textBlock(JSON.stringify(event, null, 2)));
    const agent = this.flow.runs.get(event.run_id)?.agent ?? "";
    return h(
      "div",
      { class: "log-row", role: "listitem" },
      h(
        "button",
        {
          class: "log-open",
          type: "button",
          "aria-expanded": String(this.open.has(key)),
          on: { click: ({ currentTarget }) => this.#toggle(key, currentTarget) },
        },
        h("span", { class: "num muted" }, String(event.pos)),
        h("span", { class: "muted" }, clock(event.at)),
        h("span", { class: "cut log-agent" }, agent),
        h("code", { class: "log-type" }, event.type),
        h("span", { class: "cut muted" }, about(event)),
      ),
      may("ask") &&
        h(
          "button",
          {
            class: "button quiet small only",
            type: "button",
            "aria-label": `Fork from event ${event.pos}`,
            title: "Fork from here",
            on: {
              click: () => this.dispatchEvent(new CustomEvent("fork", { detail: event.pos, bubbles: true })),
            },
          },
          icon("fork"),
        ),
    );
  }

  #toggle(pos, button) {
    if (!this.open.delete(pos)) this.open.add(pos);
    button.setAttribute("aria-expanded", String(this.open.has(pos)));
    this.draw();
  }
}

const number = (value) => value.toLocaleString("en");

function about(event) {
  if (event.arguments) return oneLine(`${event.name ?? event.tool ?? ""} ${brief(event.arguments)}`, 160);
  for (const name of TELLING) {
    const value = event[name];
    if (typeof value === "string" && value) return oneLine(value, 160);
    if (value && typeof value === "object")
      return oneLine(
        value.text || value.status || (value.calls ?? []).map((call) => call.name).join(", "),
        160,
      );
  }
  return "";
}

function fitting(event, flow, words) {
  const text =
    `${event.type} ${flow.runs.get(event.run_id)?.agent ?? ""} ${about(event)} ${event.name ?? ""}`.toLowerCase();
  return words.every((word) => text.includes(word));
}

customElements.define("r-log", Log);
