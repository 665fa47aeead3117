/* Stats: what all of it cost, by day, by agent, by model. */

import { api } from "../api.js";
import { h, put, stylesheet } from "../dom.js";
import { icon } from "../icons.js";
import { bars, columns } from "../plot.js";
import { remember } from "../router.js";
import { troubleLine } from "../trouble.js";
import { count, duration, money, tokens } from "../words.js";

const SPANS = [
  ["7", "7 days"],
  ["30", "30 days"],
  ["90", "90 days"],
  ["", "All time"],
];

export class StatsView extends HTMLElement {
  connectedCallback() {
    this.className = "page";
    this.days = this.place.query.get("days") ?? "30";
    this.span = h(
      "div",
      { class: "row", role: "group", "aria-label": "Time" },
      SPANS.map(([value, name]) =>
        h(
          "button",
          {
            class: "button small",
            "aria-pressed": String(value === this.days),
            data: { days: value },
            on: { click: () => this.#choose(value) },
          },
          name,
        ),
      ),
    );
    this.body = h("div", { class: "stack roomy-stack" });
    put(this, h("header", null, h("h1", null, "Stats"), this.span), this.body);
    this.#load();
  }

  #choose(days) {
    this.days = days;
    for (const button of this.span.children)
      button.setAttribute("aria-pressed", String(button.dataset.days === days));
    remember(new URLSearchParams({ days }));
    this.#load();
  }

  async #load() {
    const since = this.days ? midnight(Number(this.days) - 1) : null;
    const query = { since, utc_offset: -new Date().getTimezoneOffset() * 60 };
    if (!this.body.children.length)
      put(
        this.body,
        h(
          "div",
          { class: "skeleton", role: "status", "aria-label": "Loading" },
          [1, 2, 3, 4].map(() => h("i")),
        ),
      );
    try {
      const asked = ["day", "agent", "model"].map((by) => api.stats({ ...query, by }));
      const [[day, agent, model]] = await Promise.all([Promise.all(asked), stylesheet("lists")]);
      this.#draw(day.totals, agent.totals, model.totals);
    } catch (error) {
      put(
        this.body,
        troubleLine(error, () => this.#load()),
      );
    }
  }

  #draw(days, agents, models) {
    if (!agents.length) {
      put(
        this.body,
        h(
          "div",
          { class: "empty card" },
          icon("stats"),
          h("h2", null, "Nothing ran in this time"),
          h("p", null, "Cost, tokens and time appear here after the first question."),
        ),
      );
      return;
    }
    const all = agents.reduce(
      (sum, one) => ({
        runs: sum.runs + one.runs,
        cost: sum.cost + one.cost,
        input: sum.input + one.input_tokens,
        output: sum.output + one.output_tokens,
        calls: sum.calls + one.tool_calls,
        unpriced: sum.unpriced + one.unpriced,
        time: sum.time + one.duration_ms,
      }),
      { runs: 0, cost: 0, input: 0, output: 0, calls: 0, unpriced: 0, time: 0 },
    );
    const filled = fill(days, this.days);
    const width = Math.max(300, this.body.clientWidth - 34);
    put(
      this.body,
      h(
        "dl",
        { class: "figures" },
        [
          ["Cost", cost(all), all.unpriced ? `and ${count(all.unpriced, "run")} of unknown cost` : ""],
          ["Runs", all.runs.toLocaleString("en"), ""],
          ["Tokens in", tokens(all.input), ""],
          ["Tokens out", tokens(all.output), ""],
          ["Tool calls", all.calls.toLocaleString("en"), ""],
          ["Time of work", duration(all.time / 1000), ""],
        ].map(([name, value, more]) =>
          h(
            "div",
            { class: "card" },
            h("dt", null, name),
            h("dd", null, value),
            more && h("dd", { class: "small muted more" }, more),
          ),
        ),
      ),
      all.cost > 0 &&
        h(
          "section",
          { class: "card" },
          h(
            "div",
            { class: "inside" },
            columns({
              width,
              label: "Cost by day",
              parts: ["Cost"],
              format: money,
              items: filled.map((one) => ({
                name: one.key,
                short: one.key.slice(5),
                parts: [one.cost],
                title: `${cost(one)}, ${count(one.runs, "run")}`,
              })),
            }),
          ),
        ),
      h(
        "section",
        { class: "card" },
        h(
          "div",
          { class: "inside" },
          columns({
            width,
            label: "Tokens by day",
            parts: ["In", "Out"],
            format: (value) => tokens(Math.round(value)),
            items: filled.map((one) => ({
              name: one.key,
              short: one.key.slice(5),
              parts: [one.input_tokens, one.output_tokens],
              title: `${tokens(one.input_tokens)} in, ${tokens(one.output_tokens)} out`,
            })),
          }),
        ),
      ),
      h(
        "div",
        { class: "two" },
        [
          ["agent", agents],
          ["model", models],
        ].map(([by, totals]) =>
          h("section", { class: "card" }, h("div", { class: "inside stack" }, this.#by(by, totals))),
        ),
      ),
    );
  }

  #by(by, totals) {
    const priced = totals.some((one) => one.cost > 0);
    const item = (one, value) => ({
      name: one.key || "unknown",
      value,
      title: `${count(one.runs, "run")}, ${count(one.tool_calls, "tool call")}, ${tokens(one.input_tokens)} tokens in, ${tokens(one.output_tokens)} out, ${cost(one)}, ${duration(one.duration_ms / 1000)}`,
    });
    const byTokens = totals
      .map((one) => item(one, one.input_tokens + one.output_tokens))
      .sort((one, other) => other.value - one.value)
      .slice(0, 12);
    return [
      priced &&
        bars({
          label: `Cost by ${by}`,
          format: money,
          items: totals
            .filter((one) => one.cost > 0)
            .map((one) => item(one, one.cost))
            .slice(0, 12),
        }),
      bars({ label: `Tokens by ${by}`, format: tokens, items: byTokens }),
    ];
  }
}

/** What is known of a cost: of runs without any price that is not nothing. */
const cost = (one) => (one.runs > 0 && one.unpriced === one.runs ? "unknown" : money(one.cost));

function midnight(daysAgo) {
  const day = new Date();
  day.setHours(0, 0, 0, 0);
  day.setDate(day.getDate() - daysAgo);
  return Math.round(day.getTime() / 1000);
}

/** Days without a run are days too. */
function fill(days, span) {
  const known = new Map(days.map((one) => [one.key, one]));
  const first = span
    ? new Date(midnight(Number(span) - 1) * 1000)
    : new Date(`${days[0]?.key ?? "2026-01-01"}T00:00:00`);
  const filled = [];
  const today = new Date();
  for (const day = first; day <= today && filled.length < 366; day.setDate(day.getDate() + 1)) {
    const key = day.toLocaleDateString("en-CA");
    filled.push(known.get(key) ?? { key, runs: 0, cost: 0, input_tokens: 0, output_tokens: 0 });
  }
  return filled.length ? filled : days;
}

customElements.define("r-stats", StatsView);
