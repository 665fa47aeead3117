/* Steps: the tree of runs and tool calls as they happen, to be opened as deep as one likes. */

import { attribute, debounce, h, paced, put, say } from "../dom.js";
import { EFFECT_ICONS, STATUS_WORDS, icon, statusMark } from "../icons.js";
import { can } from "../shortcuts.js";
import {
  brief,
  children,
  count,
  duration,
  effort,
  money,
  oneLine,
  tokens,
  unmarked,
  waited,
} from "../words.js";
import { detailOf } from "./step-detail.js";
import { Rows } from "./step-rows.js";
import { VirtualList } from "../virtual.js";

const ROW = 30;

export class Steps extends HTMLElement {
  connectedCallback() {
    this.follow = true;
    this.active = null;
    this.#build();
    this.draw = paced(() => this.#draw());
    this.onChange = () => this.draw();
    this.undo = [
      can("follow", () => this.#setFollow(!this.follow)),
      can("waiting", () => this.#jump()),
      can("expand", () => this.#all()),
    ];
    this.tick = setInterval(() => this.#pass(), 500);
    if (this.flow) this.watch(this.flow);
  }

  disconnectedCallback() {
    clearInterval(this.tick);
    this.draw.cancel();
    this.list.destroy();
    this.undo.forEach((undo) => undo());
    this.flow?.removeEventListener("change", this.onChange);
  }

  watch(flow) {
    this.flow = flow;
    if (!this.isConnected) return;
    if (this.rows?.flow !== flow) this.rows = new Rows(flow);
    if (flow.over) this.#setFollow(false);
    flow.addEventListener("change", this.onChange);
    this.draw();
  }

  #build() {
    this.filter = h("input", {
      class: "field",
      type: "search",
      placeholder: "Filter steps",
      "aria-label": "Filter steps by agent, tool or text",
      on: {
        input: debounce(150, () => this.#filter()),
        keydown: (event) => event.key === "Escape" && this.filter.blur(),
      },
    });
    this.jumpButton = h(
      "button",
      {
        class: "button small",
        hidden: true,
        title: "Jump to what waits (w)",
        on: { click: () => this.#jump() },
      },
      statusMark("waiting", { labelled: false }),
      h("span", null, "Waiting"),
    );
    this.allButton = h(
      "button",
      { class: "button quiet small", title: "Expand or collapse all (x)", on: { click: () => this.#all() } },
      "Expand all",
    );
    this.followButton = h(
      "button",
      {
        class: "button quiet small",
        "aria-pressed": "true",
        title: "Follow what happens (f)",
        on: { click: () => this.#setFollow(!this.follow) },
      },
      icon("follow"),
      h("span", null, "Follow"),
    );
    this.tree = h("div", {
      class: "tree",
      role: "tree",
      tabindex: "0",
      "aria-label": "Steps",
      on: {
        keydown: (event) => this.#key(event),
        click: (event) => this.#click(event),
        wheel: (event) => event.deltaY < 0 && this.#setFollow(false),
        touchmove: () => this.#setFollow(false),
        pointerdown: (event) => event.target === this.tree && this.#setFollow(false),
      },
    });
    this.none = h("p", { class: "empty", hidden: true }, "No step fits this filter.");
    put(
      this,
      h(
        "div",
        { class: "steps-bar" },
        h("div", { class: "grow" }, this.filter),
        this.jumpButton,
        this.allButton,
        this.followButton,
      ),
      this.tree,
      this.none,
    );
    this.list = new VirtualList(this.tree, {
      rowHeight: ROW,
      make: (row) => this.#make(row),
      update: (element, row) => this.#update(element, row),
    });
  }

  /** Time passes: what runs shows it. */
  #pass() {
    if (!this.flow || this.flow.over || document.hidden) return;
    this.now = Date.now() / 1000;
    this.list.draw();
  }

  #draw() {
    if (!this.flow?.root) return;
    this.now = Date.now() / 1000;
    const rows = this.rows.list(this.follow);
    this.none.hidden = rows.length > 0;
    this.list.set(rows);
    this.jumpButton.hidden = this.flow.approvals.size === 0;
    say(
      this.jumpButton.lastChild,
      this.flow.approvals.size > 1 ? `${this.flow.approvals.size} wait` : "Waits",
    );
    if (this.follow && !this.rows.filter) this.#followLatest();
  }

  /** The row that something happened to last, or the one it is inside of. */
  #followLatest() {
    for (let target = this.flow.latest; target; target = target.run ?? target.parent) {
      const key =
        target.kind === "call" && target.children.length === 1 ? target.children[0].key : target.key;
      if (this.list.reveal(`${key}/now`, { margin: ROW * 2 }) || this.list.reveal(key, { margin: ROW * 2 }))
        return;
    }
  }

  #setFollow(on) {
    if (this.follow === on) return;
    this.follow = on;
    this.followButton.setAttribute("aria-pressed", String(on));
    if (on) this.draw();
  }

  #filter() {
    this.rows.filter = this.filter.value.trim();
    this.draw();
  }

  #all() {
    const open = this.allButton.textContent === "Expand all";
    this.rows.all(open);
    this.allButton.textContent = open ? "Collapse all" : "Expand all";
    this.#setFollow(false);
    this.draw();
  }

  /** To the call that waits for a person. */
  #jump() {
    const [asked] = this.flow.approvals.values();
    const run = asked && this.flow.runs.get(asked.run_id);
    if (run) this.show(run.calls.get(asked.call_id) ?? run);
  }

  /** Open what is above a run or a call, and go there. */
  show(target) {
    this.#setFollow(false);
    const key = this.rows.uncover(target);
    this.#draw();
    this.#activate(key, "center");
    this.tree.focus({ preventScroll: true });
  }

  // -- rows --------------------------------------------------------------------

  #make(row) {
    if (row.kind === "detail") {
      const detail = detailOf(row);
      detail.style.setProperty("--level", row.level);
      return detail;
    }
    const element = h("div", {
      class: `step ${row.kind}`,
      role: "treeitem",
      id: `step-${row.key.replace(/[^\w-]/g, "_")}`,
    });
    element.style.setProperty("--level", row.level - 1);
    element.parts = {
      mark: h("span", { class: "slot" }),
      symbol: h("span", { class: "slot symbol", "aria-hidden": "true" }),
      name: h("span", { class: "name" }),
      about: h("span", { class: "about cut" }),
      facts: h("span", { class: "facts-line" }),
      time: h("span", { class: "time num" }),
    };
    const { mark, symbol, name, about, facts, time } = element.parts;
    put(
      element,
      h("span", { class: "twist", "aria-hidden": "true" }, row.branch || row.leaf ? icon("chevron") : null),
      mark,
      symbol,
      name,
      about,
      facts,
      time,
    );
    return element;
  }

  #update(element, row) {
    attribute(element, "aria-level", row.kind === "detail" ? row.level + 1 : row.level);
    if (row.kind === "detail") return;
    attribute(element, "aria-expanded", row.branch || row.leaf ? String(row.open) : null);
    attribute(element, "aria-selected", row.key === this.active ? "true" : "false");
    const { mark, symbol, name, about, facts, time } = element.parts;
    const shown = describe(row, this.now ?? Date.now() / 1000);
    if (element.status !== shown.status) {
      element.status = shown.status;
      put(mark, shown.status ? statusMark(shown.status) : null);
      element.dataset.status = shown.status ?? "";
    }
    if (element.symbol !== shown.symbol) {
      element.symbol = shown.symbol;
      put(symbol, shown.symbol && (shown.emoji ? shown.symbol : icon(shown.symbol)));
    }
    say(name, shown.name);
    say(about, shown.about);
    say(facts, shown.facts ?? "");
    say(time, shown.time ?? "");
    element.title = shown.title ?? "";
  }

  // -- keyboard and mouse --------------------------------------------------------

  #click(event) {
    const element = event.target.closest(".step");
    if (!element || !this.tree.contains(element)) return;
    this.#activate(element.rowKey);
    this.#toggle(element.rowKey);
  }

  #rowOf(key) {
    return this.list.rows[this.list.places.get(key)];
  }

  #toggle(key, open) {
    const row = this.#rowOf(key);
    if (!row || !(row.branch || row.leaf) || (this.rows.filter && row.branch)) return;
    this.rows.toggle(key, open ?? !row.open);
    if (row.branch && row.open) this.#setFollow(false);
    this.#draw();
  }

  #activate(key, align = "nearest") {
    this.active = key;
    this.list.keep = key;
    const row = this.#rowOf(key);
    if (!row) return;
    this.list.reveal(key, { align, margin: ROW });
    this.tree.setAttribute("aria-activedescendant", `step-${key.replace(/[^\w-]/g, "_")}`);
  }

  #move(step) {
    const { rows, places } = this.list;
    let place = (places.get(this.active) ?? (step > 0 ? -1 : rows.length)) + step;
    while (rows[place]?.kind === "detail") place += step;
    if (rows[place]) this.#activate(rows[place].key);
  }

  #key(event) {
    if (event.target !== this.tree || event.ctrlKey || event.metaKey || event.altKey) return;
    const row = this.#rowOf(this.active);
    const { rows } = this.list;
    const deeds = {
      ArrowDown: () => this.#move(1),
      ArrowUp: () => this.#move(-1),
      Home: () => rows.length && this.#activate(rows[0].key),
      End: () => rows.length && this.#activate(rows.findLast((one) => one.kind !== "detail").key),
      Enter: () => row && this.#toggle(row.key),
      " ": () => row && this.#toggle(row.key),
      ArrowRight: () => row && (row.open ? row.branch && this.#move(1) : this.#toggle(row.key, true)),
      ArrowLeft: () =>
        row && (row.open ? this.#toggle(row.key, false) : row.parent && this.#activate(row.parent.key)),
    };
    const deed = deeds[event.key];
    if (!deed) return;
    event.preventDefault();
    if (event.key !== "Enter" && event.key !== " ") this.#setFollow(false);
    deed();
  }
}

/** What a row says. */
function describe(row, now) {
  const { run, call, entry } = row;
  if (row.kind === "run") return ofRun(run, now);
  if (row.kind === "call") return ofCall(call, now, row.branch);
  if (row.kind === "said-of") return { name: "Call", about: brief(call.arguments), symbol: "note" };
  if (row.kind === "task") return { name: "Task", about: oneLine(run.prompt), symbol: "ask" };
  if (row.kind === "report") return ofReport(run.report);
  if (row.kind === "unread") return { status: "running", name: "reading its steps…", about: "" };
  if (row.kind === "now")
    return {
      status: "running",
      name: run.asking,
      about: oneLine((run.text || run.thinking).slice(-300), 300),
    };
  if (row.kind === "say")
    return {
      name: entry.text.trim() ? "Said" : "Thought",
      about: oneLine(entry.text.trim() || entry.thinking),
      symbol: "say",
      facts: `${tokens(entry.usage.input + entry.usage.output)} tokens`,
    };
  if (row.kind === "said") return { name: "You said", about: oneLine(entry.text), symbol: "ask" };
  return {
    name: entry.text,
    about: oneLine(entry.detail),
    symbol: entry.tone === "info" ? "note" : "warning",
  };
}

function ofReport(report) {
  const about = report ? oneLine(unmarked(report.text.slice(0, 1000)) || report.error || "") : "";
  // A conversation that goes on has no report again, a moment before its row goes.
  const outcome = report?.outcome ?? "completed";
  return { name: "Report", about, symbol: "file", facts: outcome === "completed" ? "" : outcome };
}

function ofRun(run, now) {
  const { usage } = run;
  const status = run.status;
  const doing = status === "error" ? (run.report?.error ?? run.failure ?? "") : run.label || run.prompt;
  const still = waited(run.waited(now), run.waits);
  const facts = [still, effort(run.effort)];
  if (run.withheld) facts.push(run.withheld);
  if (usage.input + usage.output) facts.push(tokens(usage.input + usage.output));
  if (usage.cost !== 0) facts.push(money(usage.cost));
  return {
    status: run.outcome,
    symbol: run.icon || "delegate",
    emoji: Boolean(run.icon),
    name: run.agent + (run.background ? " (background)" : ""),
    about: oneLine(doing),
    facts: facts.filter(Boolean).join(" · "),
    time: status === "pending" ? "" : duration(run.seconds(now)),
    title: `${run.agent}: ${STATUS_WORDS[status]}, worked ${duration(run.seconds(now))}, ${still && `${still}, `}${count(run.turns, "turn")}, ${count(run.toolCalls, "tool call")}, ${tokens(usage.input)} tokens in, ${tokens(usage.output)} out, ${money(usage.cost)}`,
  };
}

function ofCall(call, now, branch) {
  const { outcome } = call;
  const about =
    call.isError && outcome === "error"
      ? oneLine(call.text ?? "")
      : call.progress && outcome === "running"
        ? call.progress
        : brief(call.arguments);
  return {
    status: outcome,
    symbol: EFFECT_ICONS[call.effect] ?? "note",
    name: call.name,
    about: branch && call.children.length ? `${children(call.children.length)}` : oneLine(about),
    facts: [
      waited(call.waited(now), outcome === "waiting"),
      call.answer && (call.answer.decision === "reject" ? "rejected" : "approved"),
    ]
      .filter(Boolean)
      .join(" · "),
    time: call.began === null ? "" : duration(call.seconds(now)),
  };
}

customElements.define("r-steps", Steps);
