/* Timeline: who ran when, side by side, and where the time and the money went. */

import { h, put, s, say } from "../dom.js";
import { statusMark } from "../icons.js";
import { VirtualList } from "../virtual.js";
import { count, duration, money, oneLine, tokens, waited } from "../words.js";
import { FlowView } from "./flow-view.js";

const LANE = 28;
const KINDS = [
  ["model", "Model"],
  ["tool", "Tools"],
  ["wait", "Waiting for a person"],
];
const STEPS = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400];

export class Timeline extends FlowView {
  connectedCallback() {
    this.zoom = 1;
    this.offset = 0;
    this.#build();
    this.tick = setInterval(() => this.flow && !this.flow.over && !document.hidden && this.draw(), 1000);
    this.sizes = new ResizeObserver(() => this.draw());
    this.sizes.observe(this);
    this.begin(() => this.#draw());
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    clearInterval(this.tick);
    this.sizes.disconnect();
    this.list.destroy();
  }

  #build() {
    this.summary = h("div", { class: "time-summary" });
    this.axis = s("svg", { class: "axis", height: 22, "aria-hidden": "true" });
    this.lanes = h("div", {
      class: "lanes",
      role: "list",
      tabindex: "0",
      "aria-label": "Runs over time",
      on: { keydown: (event) => this.#key(event), wheel: (event) => this.#wheel(event) },
    });
    this.zoomLabel = h("span", { class: "small muted num" });
    put(
      this,
      this.summary,
      h(
        "div",
        { class: "time-head" },
        h(
          "ul",
          { class: "legend plain" },
          KINDS.map(([kind, name]) =>
            h(
              "li",
              null,
              s(
                "svg",
                { width: 12, height: 12, "aria-hidden": "true" },
                s("rect", { width: 12, height: 12, rx: 2, class: `bar-${kind}` }),
              ),
              name,
            ),
          ),
        ),
        h("span", { class: "grow" }),
        this.zoomLabel,
        h(
          "button",
          {
            class: "button quiet small only",
            "aria-label": "Wider",
            title: "Wider (−)",
            on: { click: () => this.#zoomBy(0.5) },
          },
          "−",
        ),
        h(
          "button",
          {
            class: "button quiet small only",
            "aria-label": "Closer",
            title: "Closer (+)",
            on: { click: () => this.#zoomBy(2) },
          },
          "+",
        ),
      ),
      h("div", { class: "axis-line" }, h("span"), this.axis),
      this.lanes,
    );
    this.list = new VirtualList(this.lanes, {
      rowHeight: LANE,
      make: (row) => this.#make(row),
      update: (element, row) => this.#update(element, row),
    });
  }

  /** The stretch of time that is shown. */
  #window() {
    const { root } = this.flow;
    const from = root.began;
    let until = root.ended ?? Date.now() / 1000;
    for (const run of this.flow.runs.values()) until = Math.max(until, run.ended ?? 0);
    const all = Math.max(0.5, until - from);
    const length = all / this.zoom;
    this.offset = Math.min(Math.max(0, this.offset), all - length);
    return { from: from + this.offset, until: from + this.offset + length, origin: from, all };
  }

  #draw() {
    if (!this.flow?.root) return;
    this.window = this.#window();
    this.now = Date.now() / 1000;
    const rows = [];
    const walk = (run, level) => {
      rows.push({ key: run.key, run, level });
      for (const child of run.children) walk(child, level + 1);
    };
    walk(this.flow.root, 0);
    this.list.set(rows);
    this.#drawAxis();
    this.#drawSummary();
    say(
      this.zoomLabel,
      this.zoom > 1
        ? `${duration(this.window.until - this.window.from)} of ${duration(this.window.all)}`
        : "",
    );
  }

  #drawAxis() {
    const { from, until, origin } = this.window;
    const width = this.axis.clientWidth || 600;
    const step = STEPS.find((one) => ((until - from) / one) * 72 < width) ?? 86400;
    const marks = [];
    for (let at = Math.ceil((from - origin) / step) * step; at <= until - origin; at += step) {
      const x = ((at + origin - from) / (until - from)) * width;
      marks.push(
        s("line", { x1: x, x2: x, y1: 16, y2: 22 }),
        s(
          "text",
          {
            x: Math.min(x, width - 2),
            y: 12,
            "text-anchor": x > width - 24 ? "end" : x < 10 ? "start" : "middle",
          },
          at === 0 ? "0" : short(at),
        ),
      );
    }
    put(this.axis, marks);
  }

  #make(row) {
    const { run } = row;
    const element = h("div", { class: "lane", role: "listitem" });
    const name = h(
      "button",
      {
        class: "lane-name",
        type: "button",
        title: oneLine(run.prompt, 300),
        on: { click: () => this.dispatchEvent(new CustomEvent("show", { detail: run, bubbles: true })) },
      },
      h("span", { class: "slot" }),
      h("span", { class: "agent-icon", "aria-hidden": "true" }, run.icon || "·"),
      h("span", { class: "cut" }, run.agent),
    );
    name.style.setProperty("--level", row.level);
    element.parts = {
      mark: name.firstChild,
      track: s("svg", { class: "track", height: LANE, preserveAspectRatio: "none" }),
      facts: h("span", { class: "lane-facts num" }),
    };
    put(element, name, element.parts.track, element.parts.facts);
    return element;
  }

  #update(element, { run }) {
    const { mark, track, facts } = element.parts;
    if (element.status !== run.outcome) {
      element.status = run.outcome;
      put(mark, statusMark(run.outcome));
    }
    const end = run.ended ?? (run.over ? run.began : this.now);
    const seconds = run.seconds(this.now);
    say(facts, run.status === "pending" ? "" : duration(seconds));
    const still = waited(run.waited(this.now), run.waits);
    facts.title = still ? `worked ${duration(seconds)}, ${still}` : "";
    const said = `${run.agent}: from ${duration(run.began - this.window.origin)}, worked ${duration(seconds)}, ${still && `${still}, `}${tokens(run.usage.input + run.usage.output)} tokens, ${money(run.usage.cost)}`;
    const signature = `${this.window.from}|${this.window.until}|${run.spans.length}|${end}|${track.clientWidth}`;
    if (element.signature === signature) return;
    element.signature = signature;
    const bars = [
      s("title", null, said),
      s("rect", { ...this.#at(run.began, end), y: 6, height: 16, rx: 3, class: "bar-run" }),
    ];
    for (const span of run.spans) {
      if (
        span.kind === "delegate" ||
        (span.to ?? this.now) < this.window.from ||
        span.from > this.window.until
      )
        continue;
      bars.push(
        s(
          "rect",
          {
            ...this.#at(span.from, span.to ?? end),
            y: span.kind === "wait" ? 6 : 9,
            height: span.kind === "wait" ? 16 : 10,
            rx: 2,
            class: `bar-${span.kind}`,
          },
          s("title", null, `${span.label}: ${duration((span.to ?? this.now) - span.from)}`),
        ),
      );
    }
    put(track, bars);
    track.setAttribute("role", "img");
    track.setAttribute("aria-label", said);
  }

  #at(from, until) {
    const { window } = this;
    const length = window.until - window.from;
    const x = Math.max(0, ((from - window.from) / length) * 100);
    const end = Math.min(100, ((until - window.from) / length) * 100);
    return { x: `${x}%`, width: `${Math.max(0.25, end - x)}%` };
  }

  // -- where it went -------------------------------------------------------------

  #drawSummary() {
    const spent = { model: 0, tool: 0, wait: 0 };
    const agents = new Map();
    for (const run of this.flow.runs.values()) {
      const agent = agents.get(run.agent) ?? {
        name: run.agent,
        icon: run.icon,
        runs: 0,
        seconds: 0,
        tokens: 0,
        cost: 0,
      };
      agent.runs += 1;
      agent.tokens += run.own.input + run.own.output;
      agent.cost = agent.cost === null || run.own.cost === null ? null : agent.cost + run.own.cost;
      for (const span of run.spans) {
        const took = (span.to ?? this.now) - span.from;
        if (span.kind === "model" || span.kind === "tool") spent[span.kind] += took;
      }
      agent.seconds += busy(run, this.now);
      agents.set(run.agent, agent);
    }
    // Several questions at once are one wait: the time is the same as at the top of the run.
    const { root } = this.flow;
    spent.wait = root.waited(this.now);
    const total = spent.model + spent.tool + spent.wait || 1;
    const list = [...agents.values()].sort(
      (one, other) => (other.cost ?? 0) - (one.cost ?? 0) || other.tokens - one.tokens,
    );
    put(
      this.summary,
      h(
        "section",
        { "aria-busy": String(this.flow.expected !== null) },
        h("h2", null, "Where the time went"),
        h(
          "p",
          { class: "small muted" },
          wholeOf(root, this.now, spent),
        ),
        split(spent, total),
        h(
          "ul",
          { class: "plain split-words" },
          KINDS.map(([kind, name]) =>
            h("li", null, h("span", null, name), h("span", { class: "num" }, duration(spent[kind]))),
          ),
        ),
      ),
      h("section", null, h("h2", null, "Where the money went"), ledger(list)),
    );
  }

  // -- zoom ------------------------------------------------------------------------

  #zoomBy(factor, middle = 0.5) {
    const before = this.window.until - this.window.from;
    this.zoom = Math.min(4096, Math.max(1, this.zoom * factor));
    const after = this.window.all / this.zoom;
    this.offset += (before - after) * middle;
    this.draw();
  }

  #wheel(event) {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    this.#zoomBy(event.deltaY < 0 ? 1.25 : 0.8);
  }

  #key(event) {
    const length = this.window.until - this.window.from;
    const deeds = {
      "+": () => this.#zoomBy(2),
      "=": () => this.#zoomBy(2),
      "-": () => this.#zoomBy(0.5),
      0: () => this.#zoomBy(0),
      ArrowLeft: () => (this.offset -= length / 8),
      ArrowRight: () => (this.offset += length / 8),
    };
    const deed = event.target === this.lanes && !event.ctrlKey && !event.metaKey && deeds[event.key];
    if (!deed) return;
    event.preventDefault();
    deed();
    this.draw();
  }
}

/** The same words as at the top of the run: how long it worked, how long it waited; then the sum of what ran. */
function wholeOf(root, now, spent) {
  const still = waited(root.waited(now), root.waits);
  const worked = `${duration(root.seconds(now))} of work${still ? `, ${still}` : ""}`;
  return `${worked}. Model and tools together, side by side: ${duration(spent.model + spent.tool)}.`;
}

/** How long a run itself was at work: what its model and its tools did side by side counts once. */
function busy(run, now) {
  let total = 0;
  let reached = 0;
  for (const span of run.spans) {
    if (span.kind !== "model" && span.kind !== "tool") continue;
    const until = span.to ?? now;
    total += Math.max(0, until - Math.max(span.from, reached));
    reached = Math.max(reached, until);
  }
  return total;
}

function split(spent, total) {
  let x = 0;
  const bars = KINDS.map(([kind, name]) => {
    const width = (spent[kind] / total) * 100;
    const bar = s(
      "rect",
      { x: `${x}%`, width: `${width}%`, height: 10, class: `bar-${kind}` },
      s("title", null, `${name}: ${duration(spent[kind])}`),
    );
    x += width;
    return bar;
  });
  return s(
    "svg",
    {
      class: "split",
      height: 10,
      role: "img",
      "aria-label": KINDS.map(([kind, name]) => `${name} ${duration(spent[kind])}`).join(", "),
    },
    bars,
  );
}

function ledger(agents) {
  const most = Math.max(...agents.map((one) => one.cost || 0)) || 0;
  const mostTokens = Math.max(1, ...agents.map((one) => one.tokens));
  return h(
    "table",
    { class: "ledger" },
    h(
      "thead",
      null,
      h(
        "tr",
        null,
        h("th", { scope: "col" }, "Agent"),
        h("th", { scope: "col", class: "num" }, "Runs"),
        h("th", { scope: "col", class: "num", title: "Of its own, without its children" }, "Own work"),
        h("th", { scope: "col", class: "num" }, "Tokens"),
        h("th", { scope: "col", class: "num" }, "Cost"),
      ),
    ),
    h(
      "tbody",
      null,
      agents.slice(0, 8).map((one) => {
        const share = most ? (one.cost ?? 0) / most : one.tokens / mostTokens;
        const row = h(
          "tr",
          null,
          h("th", { scope: "row" }, one.icon ? `${one.icon} ` : "", one.name),
          h("td", { class: "num" }, String(one.runs)),
          h("td", { class: "num" }, duration(one.seconds)),
          h("td", { class: `num ${most ? "" : "share"}` }, tokens(one.tokens)),
          h("td", { class: `num ${most ? "share" : ""}` }, one.cost === null ? "unknown" : money(one.cost)),
        );
        row.style.setProperty("--share", `${Math.round(share * 100)}%`);
        return row;
      }),
    ),
    agents.length > 8 && h("caption", null, `and ${count(agents.length - 8, "more agent")}`),
  );
}

function short(seconds) {
  if (seconds < 60) return `${Number(seconds.toFixed(1))} s`;
  if (seconds < 3600) return `${Number((seconds / 60).toFixed(1))} min`;
  return `${Number((seconds / 3600).toFixed(1))} h`;
}

customElements.define("r-timeline", Timeline);
