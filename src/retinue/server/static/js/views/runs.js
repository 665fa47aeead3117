/* Runs: everything that was ever asked here, to be searched, opened again, compared. */

import { agents, api } from "../api.js";
import { inbox } from "../inbox.js";
import { debounce, h, keyed, put, say, stylesheet } from "../dom.js";
import { STATUS_WORDS, icon, statusMark } from "../icons.js";
import { go, remember, runPath } from "../router.js";
import { elsewhere, may } from "../session.js";
import { can } from "../shortcuts.js";
import { complain, tell } from "../toast.js";
import { troubleLine } from "../trouble.js";
import { ago, children, clock, dayName, duration, money, moment, oneLine, tokens, unmarked } from "../words.js";

const OUTCOMES = [
  "running",
  "waiting",
  "pending",
  "interrupted",
  "completed",
  "incomplete",
  "refused",
  "rejected",
  "error",
  "cancelled",
];
const SINCE = [
  ["", "Any time"],
  ["1", "Last 24 hours"],
  ["7", "Last 7 days"],
  ["30", "Last 30 days"],
];

export class Runs extends HTMLElement {
  async connectedCallback() {
    this.className = "page";
    this.chosen = new Map();
    this.found = [];
    this.next = null;
    this.searches = 0; // how often it was asked for other runs
    this.undo = [];
    await stylesheet("lists");
    this.#build();
    this.undo = [can("search", () => this.text.focus())];
    this.onRun = debounce(300, () => this.#refresh());
    inbox.addEventListener("run", this.onRun);
    inbox.addEventListener("snapshot", this.onRun);
    this.onDeleted = ({ detail }) => this.#gone(detail);
    inbox.addEventListener("deleted", this.onDeleted);
    this.more = new IntersectionObserver(([entry]) => entry.isIntersecting && this.next && this.#load());
    this.more.observe(this.end);
    this.#load(true);
  }

  disconnectedCallback() {
    this.undo.forEach((undo) => undo());
    inbox.removeEventListener("run", this.onRun);
    inbox.removeEventListener("snapshot", this.onRun);
    inbox.removeEventListener("deleted", this.onDeleted);
    this.more?.disconnect();
    this.aborter?.abort();
  }

  #build() {
    const { query } = this.place;
    const again = () => this.#load(true);
    this.text = h("input", {
      class: "field",
      type: "search",
      placeholder: "Search tasks and answers",
      "aria-label": "Search tasks and answers",
      value: query.get("text") ?? "",
      on: { input: debounce(250, again) },
    });
    this.outcome = h(
      "select",
      { class: "field", "aria-label": "Status", on: { change: again } },
      h("option", { value: "" }, "Any status"),
      OUTCOMES.map((one) => h("option", { value: one }, STATUS_WORDS[one])),
    );
    this.outcome.value = query.get("outcome") ?? query.get("status") ?? "";
    this.agent = h(
      "select",
      { class: "field", "aria-label": "Agent", on: { change: again } },
      h("option", { value: "" }, "Any agent"),
    );
    this.since = h(
      "select",
      { class: "field", "aria-label": "Time", on: { change: again } },
      SINCE.map(([value, name]) => h("option", { value }, name)),
    );
    this.since.value = query.get("days") ?? "";
    this.cost = h("input", {
      class: "field",
      type: "number",
      min: "0",
      step: "0.01",
      placeholder: "Min. cost, $",
      "aria-label": "Cost at least, in dollars",
      value: query.get("cost") ?? "",
      on: { input: debounce(300, again) },
    });
    this.withChildren = h("input", {
      type: "checkbox",
      checked: query.has("children"),
      on: { change: again },
    });
    this.compare = h(
      "button",
      { class: "button small", disabled: true, on: { click: () => this.#compare() } },
      icon("compare"),
      h("span", null, "Compare two"),
    );
    this.list = h("div", { class: "run-list" });
    this.state = h("div", { role: "status" });
    this.end = h("div", { class: "list-end" });
    put(
      this,
      h("header", null, h("h1", null, "Runs"), this.compare),
      h(
        "form",
        { class: "filters", role: "search", on: { submit: (event) => event.preventDefault() } },
        h("div", { class: "wide" }, this.text),
        this.outcome,
        this.agent,
        this.since,
        this.cost,
        h("label", { class: "row check" }, this.withChildren, "Children too"),
      ),
      this.list,
      this.state,
      this.end,
    );
    agents()
      .then(({ agents: known }) => {
        this.agent.append(...known.map((one) => h("option", { value: one.name }, one.name)));
        this.agent.value = query.get("agent") ?? "";
        if (this.agent.value) this.#load(true);
      })
      .catch(() => {});
  }

  #query() {
    const days = Number(this.since.value);
    return {
      text: this.text.value.trim(),
      outcome: this.outcome.value,
      agent: this.agent.value,
      since: days ? Math.round(Date.now() / 1000 - days * 86_400) : null,
      min_cost: this.cost.value || null,
      children: this.withChildren.checked || (this.agent.value ? true : null),
    };
  }

  async #load(anew = false) {
    this.aborter?.abort();
    const { signal } = (this.aborter = new AbortController());
    const query = this.#query();
    if (anew) {
      remember(
        new URLSearchParams(
          Object.entries({
            text: query.text,
            outcome: query.outcome,
            agent: query.agent,
            days: this.since.value,
            cost: this.cost.value,
            children: this.withChildren.checked ? "1" : "",
          }).filter(([, value]) => value),
        ),
      );
      this.searches += 1;
      this.next = null;
      if (!this.found.length)
        put(
          this.state,
          h(
            "div",
            { class: "skeleton", "aria-label": "Loading" },
            [1, 2, 3, 4, 5, 6].map(() => h("i")),
          ),
        );
    }
    try {
      const page = await api.runs({ ...query, cursor: this.next, limit: 50 }, signal);
      this.found = anew ? page.runs : [...this.found, ...page.runs];
      this.next = page.next;
      this.#draw();
    } catch (error) {
      if (error.name === "AbortError") return;
      put(
        this.state,
        troubleLine(error, () => this.#load(anew)),
      );
    }
  }

  /** Something started or ended: what is shown again, as far as one answer goes, before the older ones. */
  async #refresh() {
    if (!this.list) return;
    const { searches } = this;
    try {
      const limit = Math.min(Math.max(this.found.length, 50), 200);
      const page = await api.runs({ ...this.#query(), limit });
      if (searches !== this.searches) return; // other runs were asked for meanwhile
      const last = page.runs.at(-1)?.run_id;
      const at = this.found.findIndex((run) => run.run_id === last);
      if (at < 0) {
        this.aborter?.abort(); // what it brings would follow on a run that is no longer the last one
        this.found = page.runs;
        this.next = page.next;
      } else this.found = [...page.runs, ...this.found.slice(at + 1)];
      this.#draw();
    } catch {
      // The bar says that the connection is lost.
    }
  }

  #draw() {
    const rows = [];
    let day = "";
    for (const run of this.found) {
      const name = dayName(run.created_at);
      if (name !== day) rows.push({ key: `day ${name}`, day: (day = name) });
      rows.push({ key: run.run_id, run });
    }
    keyed(
      this.list,
      rows,
      (row) => row.key,
      (row) => (row.day ? h("h2", { class: "day" }, row.day) : this.#make(row.run)),
      (element, row) => row.run && this.#update(element, row.run),
    );
    const filters = { ...this.#query(), children: null };
    if (!this.found.length)
      put(
        this.state,
        Object.values(filters).some(Boolean)
          ? h(
              "div",
              { class: "empty" },
              icon("search"),
              h("h2", null, "No run fits"),
              h("p", null, "Other words, or fewer filters?"),
            )
          : h(
              "div",
              { class: "empty" },
              icon("runs"),
              h("h2", null, "Nothing was asked yet"),
              h("a", { class: "button primary", href: "#/" }, "Ask something"),
            ),
      );
    else put(this.state);
    // It tells a change only; seen anew, it tells also that the end is in view still.
    this.more.unobserve(this.end);
    this.more.observe(this.end);
  }

  #make(run) {
    const box = h("input", {
      type: "checkbox",
      "aria-label": `Choose to compare: ${oneLine(run.task, 60)}`,
      on: { change: () => this.#choose(run, box.checked) },
    });
    const open = h(
      "a",
      { class: "run-link", href: `#${runPath(run.run_id)}` },
      h("span", { class: "slot" }),
      h(
        "span",
        { class: "run-task" },
        h("span", { class: "cut" }, oneLine(run.label || run.task, 200)),
        h("span", { class: "small muted cut" }),
      ),
      h("span", { class: "run-numbers small muted num" }),
      h("time", { class: "small muted num" }),
    );
    const actions = h(
      "details",
      { class: "menu" },
      h(
        "summary",
        { class: "button quiet small only", "aria-label": `More about: ${oneLine(run.task, 60)}` },
        "⋯",
      ),
      h("div", { class: "menu-list" }),
    );
    // Before it opens, and not when that is told: by then one of them may have the keyboard.
    actions.firstChild.addEventListener(
      "click",
      () => actions.open || put(actions.lastChild, this.#actions(row.run)),
    );
    const row = h("div", { class: `run-row${run.depth ? " child" : ""}` }, box, open, actions);
    return row;
  }

  #update(element, run) {
    element.run = run;
    const [mark, text, numbers, when] = element.children[1].children;
    if (element.dataset.status !== run.outcome) put(mark, statusMark(run.outcome));
    element.dataset.status = run.outcome;
    const { total } = run;
    say(
      text.children[1],
      [run.agent, elsewhere(run.cwd), run.model, run.error || unmarked(run.summary ?? "")]
        .filter(Boolean)
        .map((part) => oneLine(part, 160))
        .join(" · "),
    );
    say(
      numbers,
      [
        run.parked_until ? `limit until ${clock(run.parked_until).slice(0, 5)}` : "",
        run.duration_ms === null ? "" : duration(run.duration_ms / 1000),
        total.runs > 1 ? children(total.runs - 1) : "",
        run.unmerged && run.completed_at !== null ? "unmerged" : "",
        run.shortfall.denied ? `${run.shortfall.denied} denied` : "",
        `${tokens(total.input_tokens + total.output_tokens)} tokens`,
        total.cost === 0 ? "" : money(total.cost),
      ]
        .filter(Boolean)
        .join(" · "),
    );
    say(
      when,
      Date.now() / 1000 - run.created_at < 43_200 ? ago(run.created_at) : clock(run.created_at).slice(0, 5),
    );
    when.dateTime = new Date(run.created_at * 1000).toISOString();
    when.title = moment(run.created_at);
  }

  #actions(run) {
    const over = run.completed_at !== null;
    const item = (word, symbol, work) =>
      h("button", { type: "button", on: { click: () => this.#do(work) } }, icon(symbol), word);
    return [
      may("ask") &&
        !over &&
        item("Cancel", "stop", async () => {
          await api.cancel(run.run_id);
          tell("Cancelling. What was done so far is kept.");
        }),
      may("ask") &&
        run.status !== "completed" &&
        !run.depth &&
        !inbox.running.has(run.run_id) && // or it is worked on right now
        item("Resume", "resume", async () => {
          await api.resume(run.root_id);
          go(runPath(run.root_id));
        }),
      may("ask") && !run.depth && item("Fork…", "fork", () => go(runPath(run.root_id, "log"))),
      h(
        "a",
        { href: api.exportAddress(run.root_id, "html"), download: "" },
        icon("download"),
        "Export as a page",
      ),
      h(
        "a",
        { href: api.exportAddress(run.root_id, "jsonl"), download: "" },
        icon("download"),
        "Export events",
      ),
      may("admin") && over && !run.depth && item("Delete…", "trash", () => this.#delete(run)),
    ];
  }

  async #delete(run) {
    const { confirmDelete } = await import("./delete.js");
    const place = [...this.list.querySelectorAll(".run-row")].findIndex((row) => row.run === run);
    if (!(await confirmDelete(run))) return;
    // The keyboard goes on where the deleted one was.
    const links = [...this.list.querySelectorAll(".run-link")];
    (links[place] ?? links.at(-1) ?? this.text).focus();
  }

  /** A run was deleted, here or in another tab. */
  #gone(rootId) {
    for (const run of this.found) if (run.root_id === rootId) this.#choose(run, false);
    this.found = this.found.filter((run) => run.root_id !== rootId);
    this.#draw();
  }

  async #do(work) {
    try {
      await work();
      this.#refresh();
    } catch (error) {
      complain(error);
    }
  }

  #choose(run, on) {
    if (on) this.chosen.set(run.run_id, run);
    else this.chosen.delete(run.run_id);
    const number = this.chosen.size;
    this.compare.disabled = number !== 2;
    say(
      this.compare.lastChild,
      number === 2
        ? "Compare these two"
        : number
          ? `Compare: choose ${number > 2 ? "only two" : "one more"}`
          : "Compare two",
    );
    this.compare.classList.toggle("primary", number === 2);
  }

  #compare() {
    const [one, other] = [...this.chosen.values()].sort((a, b) => a.created_at - b.created_at);
    go(`/compare/${one.run_id}/${other.run_id}`);
  }
}

customElements.define("r-runs", Runs);
