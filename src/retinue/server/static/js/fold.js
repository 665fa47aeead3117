/* A workflow, from its events: who does what, in the order it happened, and what the server says of how it stands.
 *
 * `Workflow.apply` takes every event once, whatever is sent twice, and keeps them as runs with their entries.
 * `Workflow.stand` takes how runs stand: outcome, times and sums are not worked out here. Views read and never
 * write.
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
    this.changed();
    return true;
  }

  /** Take how these runs stand. One that nobody works on any more does nothing. */
  stand(standings) {
    for (const one of standings) {
      const run = this.runs.get(one.run_id);
      if (!run) continue;
      run.stands = one;
      run.leftAt = one.outcome === "interrupted" ? this.log.at(-1)?.at : null;
      if (run.leftAt) Object.assign(run, { asking: "", text: "", thinking: "" });
    }
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

  get outcome() {
    return this.root?.outcome ?? "pending";
  }

  /** Whether there is anything to see of files: some were changed, or a child worked in a copy of the project. */
  get touchesFiles() {
    return this.changeCount > 0 || [...this.runs.values()].some((run) => run.spec?.isolation === "worktree");
  }

  /** Anywhere in the tree. */
  get toolCalls() {
    return this.root?.stands.total.tool_calls ?? 0;
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
