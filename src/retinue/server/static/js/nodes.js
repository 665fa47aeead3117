/* A run and a tool call as the page keeps them. `fold` alone changes them. */

const ENDED = new Set(["completed", "error", "cancelled"]);
/** Calls that a person said no to, or nobody could say yes to: they did not fail. */
const NOT_DONE = { rejected: "rejected", unattended: "refused" };
/** Of several ends, the first of these counts. */
const WORST = ["error", "cancelled", "rejected", "refused", "incomplete"];
export const NOTHING = { input: 0, output: 0, cached: 0, cost: 0 };

/** Usage of the log's form, as the page counts it. */
export const usageOf = (usage) =>
  usage
    ? {
        input: usage.input_tokens ?? 0,
        output: usage.output_tokens ?? 0,
        cached: usage.cached_tokens ?? 0,
        cost: usage.cost === undefined ? 0 : usage.cost,
      }
    : NOTHING;

export const sum = (one, other) => ({
  input: one.input + other.input,
  output: one.output + other.output,
  cached: one.cached + other.cached,
  cost: one.cost === null || other.cost === null ? null : one.cost + other.cost,
});

/** One tool call: asked for by the model, perhaps waited for a person, ran, returned. */
export class Call {
  constructor(run, asked, at) {
    this.kind = "call";
    this.key = `${run.id}|${asked.id}`;
    this.run = run;
    this.id = asked.id;
    this.name = asked.name;
    this.arguments = asked.arguments;
    this.asked = at;
    this.began = null;
    this.ended = null;
    this.effect = null;
    this.isError = false;
    /** Why it did not run, if it did not. */
    this.notRun = "";
    /** Children that it was to start and did not. */
    this.notStarted = 0;
    /** Ids of children whose reports it gives back. */
    this.reported = [];
    this.text = null;
    this.took = null;
    this.progress = "";
    this.sources = [];
    this.files = [];
    this.inner = [];
    this.children = [];
    this.approval = null;
    this.answer = null;
  }

  get status() {
    if (this.answer?.decision === "reject") return "rejected";
    if (this.ended !== null) return NOT_DONE[this.notRun] ?? (this.isError ? "error" : "completed");
    if (this.approval && !this.answer) return this.run.over ? "cancelled" : "waiting";
    if (this.run.over) return "cancelled";
    if (this.run.status === "interrupted") return "interrupted";
    return this.began === null ? "pending" : "running";
  }

  /** How it stands in one word: one that waited for children as the worst of them, like `Node.outcome_of`. */
  get outcome() {
    const { status } = this;
    if (this.ended === null || (status !== "completed" && status !== "error")) return status;
    const mine = this.children.filter((child) => !child.background);
    const others = this.run.children.filter((child) => this.reported.includes(child.id));
    const ends = [...mine, ...others].filter((child) => child.over).map((child) => child.outcome);
    const own = status === "completed" && this.notStarted ? "incomplete" : status;
    return WORST.find((outcome) => own === outcome || ends.includes(outcome)) ?? own;
  }

  /** How long it worked. What a person took to answer is no work, neither here nor below. */
  seconds(now) {
    if (this.took !== null && !this.approval && !this.children.length) return this.took / 1000;
    const until = this.ended ?? this.run.ended ?? now;
    const from = this.began ?? (this.approval ? until : this.asked);
    return until - from - (this.children.length ? this.run.waited(until, from) : 0);
  }

  /** How long it waited for a person before it was made. */
  waited(now) {
    if (!this.approval) return 0;
    return (this.answer?.at ?? this.run.ended ?? now) - this.approval.at;
  }
}

/** One run: an agent at work on a prompt. */
export class Run {
  constructor(id, parent, agent, at) {
    this.kind = "run";
    this.key = id;
    this.id = id;
    this.parent = parent;
    this.depth = parent ? parent.depth + 1 : 0;
    this.agent = agent;
    this.began = at;
    this.ended = null;
    this.idle = 0;
    this.icon = "";
    this.label = "";
    this.prompt = "";
    this.rendered = "";
    this.model = "";
    this.spec = null;
    this.via = null;
    this.background = false;
    this.status = "pending";
    this.step = 0;
    this.asking = "";
    this.text = "";
    this.thinking = "";
    this.entries = [];
    this.calls = new Map();
    this.children = [];
    this.waiting = new Map();
    /** Until when its provider takes nothing more, and why. */
    this.parked = null;
    /** When a person was waited for, here or anywhere below: then the clock of the run stands still. */
    this.pauses = [];
    this.holds = 0;
    this.spans = [];
    this.own = NOTHING;
    this.turns = 0;
    /** How hard its model was last asked to think. */
    this.effort = "";
    this.toolCalls = 0;
    /** Calls that a person rejected, here or below. */
    this.rejections = 0;
    /** Calls that a rule denied, here or below. */
    this.denials = 0;
    this.report = null;
    this.failure = null;
    this.before = null;
    this.cancelling = null;
    this.seq = 0;
    this.pos = 0;
  }

  get over() {
    return ENDED.has(this.status);
  }

  /**
   * How it stands in one word. Of a run that has ended its report says so: it is not worked out here. One that
   * goes on waits while it or something below it waits for a person.
   */
  get outcome() {
    if (this.over) return this.report?.outcome ?? this.status;
    return this.holds > 0 && this.status !== "interrupted" ? "waiting" : this.status;
  }

  /** What a person rejected and a rule denied, in words: of a run that has ended as its report counts it. */
  get withheld() {
    const { rejected = 0, denied = 0 } = this.report
      ? (this.report.shortfall ?? {})
      : { rejected: this.rejections, denied: this.denials };
    return [rejected && `${rejected} rejected`, denied && `${denied} denied by a rule`]
      .filter(Boolean)
      .join(", ");
  }

  /** Of the run and everything below it. */
  get usage() {
    if (this.report) return usageOf(this.report.usage);
    return this.children.reduce((total, child) => sum(total, child.usage), this.own);
  }

  /** How long it worked: without the time a person took to answer. */
  seconds(now) {
    if (this.report) return this.report.duration_ms / 1000;
    const until = this.ended ?? now;
    return Math.max(0, until - this.began - this.idle - this.waited(until));
  }

  /** How long a person was waited for, of the time from one moment to another. */
  waited(until, from = 0) {
    let total = 0;
    for (const pause of this.pauses)
      total += Math.max(0, Math.min(pause.to ?? until, until) - Math.max(pause.from, from));
    return total;
  }

  /** Stop the clocks of this run and of those above it, or let them go on. Questions nest. */
  hold(at) {
    for (let run = this; run; run = run.parent)
      if (run.holds++ === 0) run.pauses.push({ from: at, to: null });
  }

  release(at) {
    for (let run = this; run; run = run.parent) if (--run.holds === 0) run.pauses.at(-1).to = at;
  }

  /** This run and those above it. */
  get lineage() {
    return this.parent ? [this, ...this.parent.lineage] : [this];
  }

  /** The agents from the root down to this one. */
  get path() {
    return this.parent ? [...this.parent.path, this.agent] : [this.agent];
  }
}
