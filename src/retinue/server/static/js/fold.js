/* A workflow as it stands, from its events: who does what, since when, at what cost.
 *
 * The page's counterpart of `retinue.fold`: the same events, kept as runs with their entries in the order they
 * happened. `Workflow.apply` takes every event once, whatever is sent twice; views read and never write.
 */

import { HANDLERS } from "./handlers.js";

export class Workflow extends EventTarget {
  constructor(rootId) {
    super();
    this.rootId = rootId;
    this.root = null;
    this.runs = new Map();
    this.approvals = new Map();
    this.pos = 0;
    /** The row that something happened to last: what follow-mode looks at. */
    this.latest = null;
    /** The conversation: what a person said, what was done, and the report. */
    this.turns = [];
    this.knowledge = null;
    /** How often files were changed or changes taken back: whoever shows them asks again. */
    this.changeCount = 0;
    /** What was taken back, by whom. */
    this.undone = [];
    /** The events themselves, in order. */
    this.log = [];
    /** How many events there are if not all of them are read yet, else null. */
    this.expected = null;
  }

  /** Stand as another one does. Whoever watches this one sees one change. */
  become(other) {
    const { root, runs, approvals, pos, latest, turns, knowledge, changeCount, undone, log, expected } = other;
    Object.assign(this, { root, runs, approvals, pos, latest, turns, knowledge, changeCount, undone, log, expected });
    this.changed();
  }

  /** Take one event. False if it was there before: a stream may send again what was already read. */
  apply(event) {
    if (event.pos !== undefined && event.pos > 0) {
      if (event.pos <= this.pos) return false;
      this.pos = event.pos;
      this.log.push(event);
    }
    const run = this.runs.get(event.run_id);
    if (run && event.seq !== undefined) {
      run.seq = event.seq;
      run.pos = event.pos;
    }
    const handler = HANDLERS[event.type];
    if (handler && (run || event.type === "run_started")) handler(this, run, event);
    if (run && event.at) run.lastAt = event.at;
    this.changed();
    return true;
  }

  /** The process that worked on it is gone: nothing runs, and every clock stands where the log ends. */
  interrupt() {
    const at = this.log.at(-1)?.at;
    for (const run of this.runs.values())
      if (!run.over)
        Object.assign(run, { status: "interrupted", ended: at, asking: "", text: "", thinking: "" });
    this.changed();
  }

  changed() {
    if (this.telling) return;
    this.telling = true;
    // Many events of one moment are one change to whoever draws.
    queueMicrotask(() => {
      this.telling = false;
      this.dispatchEvent(new Event("change"));
    });
  }

  /** What was streamed may be void after a lost connection: the log alone counts. */
  forgetStreamed() {
    for (const run of this.runs.values()) run.text = run.thinking = "";
    this.changed();
  }

  get over() {
    return this.root !== null && this.root.over;
  }

  get status() {
    if (this.root === null) return "pending";
    return this.root.over ? this.root.status : this.root.outcome;
  }

  /** Whether there is anything to see of files: some were changed, or a child worked in a copy of the project. */
  get touchesFiles() {
    return this.changeCount > 0 || [...this.runs.values()].some((run) => run.spec?.isolation === "worktree");
  }

  get toolCalls() {
    let total = 0;
    for (const run of this.runs.values()) total += run.toolCalls;
    return total;
  }

  /** What was really fetched or read, and what was cited beyond that: the report's, or what is known so far. */
  get sources() {
    if (this.root?.report) return this.root.report.sources ?? [];
    const found = new Map();
    for (const run of this.runs.values())
      for (const call of run.calls.values())
        for (const source of call.sources)
          found.set(source.url ?? `${source.path}:${source.lines ?? ""}`, source);
    return [...found.values()];
  }
}
