/* The rows of the tree of steps: which there are, in which order, and what is open. No drawing here.
 *
 * A branch opens to more rows; a leaf opens to one row with its details. A call that started one child is
 * shown as that child: nobody needs to see the same work twice.
 */

import { brief, oneLine } from "../words.js";

const ACTIVE = new Set(["pending", "running", "waiting"]);

export class Rows {
  constructor(flow) {
    this.flow = flow;
    /** What a person opened or closed, by key. */
    this.chosen = new Map();
    this.opened = new Set();
    this.filter = "";
  }

  isOpen(key, usual = false) {
    return this.chosen.get(key) ?? usual;
  }

  toggle(key, open) {
    this.chosen.set(key, open);
  }

  /** Every row that shows, top to bottom. `following`: what has ended closes itself. */
  list(following) {
    const { root } = this.flow;
    if (!root) return [];
    this.following = following;
    this.rows = [];
    if (this.filter) this.#filtered(root);
    else this.#run(root, 1, null);
    return this.rows;
  }

  #openRun(run) {
    if (run === this.flow.root || ACTIVE.has(run.outcome)) this.opened.add(run.key);
    else if (this.following) this.opened.delete(run.key);
    return this.isOpen(run.key, this.opened.has(run.key));
  }

  #run(run, level, parent) {
    const open = this.#openRun(run);
    const row = { kind: "run", key: run.key, run, level, open, branch: true, parent };
    this.rows.push(row);
    if (!open) return;
    if (run.unread) this.rows.push({ kind: "unread", key: `${run.key}/unread`, run, level: level + 1, parent: row });
    else this.#leaf({ kind: "task", key: `${run.key}/task`, run, level: level + 1, parent: row });
    for (const entry of run.entries) this.#entry(entry, level + 1, row);
    if (run.asking)
      this.rows.push({ kind: "now", key: `${run.key}/now`, run, level: level + 1, parent: row });
    if (run.report)
      this.#leaf({ kind: "report", key: `${run.key}/report`, run, level: level + 1, parent: row });
  }

  #entry(entry, level, parent) {
    if (entry.kind === "run") this.#run(entry, level, parent);
    else if (entry.kind === "call") this.#call(entry, level, parent);
    else if (entry.kind === "say" && entry.final && entry.run.report)
      return; // the report says the same
    else if (entry.kind === "note" && !entry.detail)
      this.rows.push({ kind: "note", key: entry.key, entry, level, parent });
    else this.#leaf({ kind: entry.kind, key: entry.key, entry, level, parent });
  }

  #call(call, level, parent) {
    if (call.children.length === 1 && !call.inner.length) {
      this.#run(call.children[0], level, parent);
      return;
    }
    const below = call.children.length + call.inner.length;
    if (!below) {
      this.#leaf({ kind: "call", key: call.key, call, level, parent });
      return;
    }
    const open = this.isOpen(call.key, call.children.length > 0 || call.outcome === "running");
    const row = { kind: "call", key: call.key, call, level, open, branch: true, parent };
    this.rows.push(row);
    if (!open) return;
    this.#leaf({ kind: "said-of", key: `${call.key}/call`, call, level: level + 1, parent: row });
    for (const inner of call.inner) this.#call(inner, level + 1, row);
    for (const child of call.children) this.#run(child, level + 1, row);
  }

  #leaf(row) {
    row.open = this.isOpen(row.key);
    row.leaf = true;
    this.rows.push(row);
    if (row.open)
      this.rows.push({
        kind: "detail",
        key: `${row.key}:detail`,
        of: row,
        level: row.level,
        measured: true,
        parent: row,
      });
  }

  /** Only what fits the filter, with the runs it belongs to. */
  #filtered(root) {
    const words = this.filter.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (text) => words.every((word) => text.includes(word));
    const walk = (run, level, parent) => {
      const row = { kind: "run", key: run.key, run, level, open: true, branch: true, parent };
      const place = this.rows.length;
      this.rows.push(row);
      const before = this.rows.length;
      for (const entry of run.entries) visit(entry, level + 1, row);
      if (this.rows.length === before && !fits(textOf(run))) this.rows.length = place;
    };
    const visit = (entry, level, parent) => {
      if (entry.kind === "run") walk(entry, level, parent);
      else if (entry.kind !== "call") {
        if (fits(textOf(entry))) this.#leaf({ kind: entry.kind, key: entry.key, entry, level, parent });
      } else {
        if (fits(textOf(entry)) && entry.children.length !== 1)
          this.#leaf({ kind: "call", key: entry.key, call: entry, level, parent });
        for (const inner of entry.inner) visit(inner, level, parent);
        for (const child of entry.children) walk(child, level, parent);
      }
    };
    walk(root, 1, null);
  }

  /** Open every run, or close all but the root. */
  all(open) {
    for (const run of this.flow.runs.values()) {
      if (run !== this.flow.root) this.chosen.set(run.key, open);
      if (open) continue;
      for (const call of run.calls.values()) this.chosen.delete(call.key);
    }
  }

  /** Open everything above a run or a call, so that its row is there, and a run itself. Returns the key of that row. */
  uncover(target) {
    if (target.kind === "run") this.chosen.set(target.key, true);
    for (let run = target.kind === "call" ? target.run : target.parent; run; run = run.parent)
      this.chosen.set(run.key, true);
    if (target.kind === "run" && target.via && target.via.children.length > 1)
      this.chosen.set(target.via.key, true);
    return target.kind === "call" && target.children.length === 1 ? target.children[0].key : target.key;
  }
}

function textOf(entry) {
  if (entry.kind === "run")
    return `${entry.agent} ${entry.label} ${oneLine(entry.prompt, 300)} ${entry.outcome}`.toLowerCase();
  if (entry.kind === "call")
    return `${entry.name} ${brief(entry.arguments, 300)} ${entry.isError ? "error failed" : ""}`.toLowerCase();
  return `${entry.text} ${entry.tone ?? ""}`.slice(0, 2000).toLowerCase();
}
