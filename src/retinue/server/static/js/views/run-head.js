/* The top of a run: what it is about, how it stands, what it used so far, and what can be done about it. */

import { api } from "../api.js";
import { h, put, say } from "../dom.js";
import { STATUS_WORDS, icon, statusMark } from "../icons.js";
import { elsewhere, may } from "../session.js";
import { children, count, duration, modelName, money, oneLine, tokens, waited } from "../words.js";

export class RunHead {
  /** `deeds` are the functions behind the buttons: cancel, resume, fork. */
  constructor(deeds) {
    this.deeds = deeds;
    this.title = h("h1", { class: "cut" });
    this.status = h("span", { class: "badge" });
    this.facts = h("span", { class: "run-facts muted small cut" });
    this.actions = h("div", { class: "row actions" });
    this.element = h(
      "header",
      { class: "run-head" },
      h("div", { class: "run-title" }, this.status, this.title),
      this.facts,
      this.actions,
    );
  }

  draw(flow) {
    const { root } = flow;
    const { withheld, outcome } = root;
    say(this.title, oneLine(root.label || root.prompt, 160));
    this.title.title = oneLine(root.prompt, 600);
    say(this.facts, factsOf(flow));
    const signature = `${outcome} ${withheld}`;
    if (this.status.dataset.status === signature) return;
    this.status.dataset.status = signature;
    this.status.className = `badge ${outcome}`;
    put(
      this.status,
      statusMark(outcome, { labelled: false }),
      STATUS_WORDS[outcome === "rejected" ? root.status : outcome],
      withheld && `, ${withheld}`,
    );
    this.#actions(flow);
  }

  #actions(flow) {
    const { cancel, resume, fork } = this.deeds;
    const asks = may("ask");
    const stopped = flow.outcome === "interrupted" || (flow.over && flow.root.status !== "completed");
    put(
      this.actions,
      asks &&
        !flow.over &&
        button("Cancel", "stop", cancel, {
          class: "button danger small",
          title: "Cancel this run (Shift C)",
        }),
      asks && stopped && button("Resume", "resume", resume, { class: "button small" }),
      asks &&
        button("Fork", "fork", fork, { title: "A new run that begins with what happened here" }, "only-wide"),
      exportMenu(flow.rootId),
    );
  }
}

function factsOf({ root, runs, toolCalls }) {
  const { usage } = root;
  const now = Date.now() / 1000;
  const below = runs.size - 1;
  return [
    `${root.icon} ${root.agent}`.trim(),
    elsewhere(root.cwd),
    modelName(root.model),
    duration(root.seconds(now)),
    waited(root.waited(now), root.waits),
    below > 0 && children(below),
    toolCalls > 0 && count(toolCalls, "tool call") + (below > 0 ? " in all" : ""),
    usage.input + usage.output > 0 && `${tokens(usage.input + usage.output)} tokens`,
    usage.cost !== 0 && money(usage.cost),
  ]
    .filter(Boolean)
    .join(" · ");
}

function button(word, symbol, work, props, wordClass = "") {
  return h(
    "button",
    { class: "button quiet small", type: "button", "aria-label": word, on: { click: work }, ...props },
    icon(symbol),
    h("span", { class: wordClass }, word),
  );
}

function exportMenu(rootId) {
  const link = (format, word) => h("a", { href: api.exportAddress(rootId, format), download: "" }, word);
  return h(
    "details",
    { class: "menu" },
    h(
      "summary",
      { class: "button quiet small", "aria-label": "Export" },
      icon("download"),
      h("span", { class: "only-wide" }, "Export"),
    ),
    h(
      "div",
      { class: "menu-list" },
      link("html", "One page to read (HTML)"),
      link("jsonl", "Every event (JSON lines)"),
    ),
  );
}
