/* A run and a tool call as the page keeps them. `fold` alone changes them.
 *
 * How a run stands, what it and everything below it used, and how a call ended are what the server says of
 * them: nothing here works that out.
 */

/** How a run stands of which the server has not said anything yet. */
const UNTOLD = {
  at: 0,
  status: "pending",
  outcome: "pending",
  ended: null,
  worked: 0,
  works: false,
  waited: 0,
  waits: false,
  turns: 0,
  tool_calls: 0,
  input_tokens: 0,
  output_tokens: 0,
  cost: 0,
  total: { runs: 1, turns: 0, tool_calls: 0, input_tokens: 0, output_tokens: 0, cost: 0 },
  shortfall: {},
};

/** Usage of the log's form, as the page shows it. */
export const usageOf = (usage) => ({
  input: usage?.input_tokens ?? 0,
  output: usage?.output_tokens ?? 0,
  cost: usage?.cost === undefined ? 0 : usage.cost,
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
    /** How it ended in one word, as its result says. */
    this.end = null;
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

  /** How it stands in one word. Of one that has not ended it is how far it has come. */
  get outcome() {
    if (this.end !== null) return this.end;
    if (this.run.over) return "cancelled";
    if (this.run.outcome === "interrupted") return "interrupted";
    if (this.approval && !this.answer) return "waiting";
    return this.began === null ? "pending" : "running";
  }

  /** How long it worked. What a person took to answer is no work, neither here nor below. */
  seconds(now) {
    if (this.took !== null && !this.approval && !this.children.length) return this.took / 1000;
    const until = this.ended ?? this.run.ended ?? now;
    const from = this.began ?? (this.approval ? until : this.asked);
    return until - from - (this.children.length ? this.run.paused(from, until) : 0);
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
    /** What the server last said of how it stands. */
    this.stands = UNTOLD;
    /** When anything last happened in its workflow, if nobody works on it any more. */
    this.leftAt = null;
    this.icon = "";
    this.label = "";
    this.prompt = "";
    this.rendered = "";
    this.model = "";
    this.spec = null;
    this.via = null;
    this.background = false;
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
    /** How hard its model was last asked to think. */
    this.effort = "";
    this.report = null;
    this.failure = null;
    this.before = null;
    this.cancelling = null;
    this.seq = 0;
    this.pos = 0;
  }

  get status() {
    return this.stands.status;
  }

  /** How it stands in one word. */
  get outcome() {
    return this.stands.outcome;
  }

  get over() {
    return this.stands.ended !== null;
  }

  /** When it ended, or was left. */
  get ended() {
    return this.stands.ended ?? this.leftAt;
  }

  get turns() {
    return this.stands.turns;
  }

  get toolCalls() {
    return this.stands.tool_calls;
  }

  /** What a person rejected and a rule denied, in words. */
  get withheld() {
    const { rejected = 0, denied = 0 } = this.stands.shortfall;
    return [rejected && `${rejected} rejected`, denied && `${denied} denied by a rule`]
      .filter(Boolean)
      .join(", ");
  }

  /** Of the run alone. */
  get own() {
    return usageOf(this.stands);
  }

  /** Of the run and everything below it. */
  get usage() {
    return usageOf(this.stands.total);
  }

  /** Whether it or something below it waits for a person, or for a limit of its provider. */
  get waits() {
    return this.stands.waits;
  }

  /** How long it worked: without the time a person took to answer. */
  seconds(now) {
    const { at, worked, works } = this.stands;
    return worked + (works ? Math.max(0, now - at) : 0);
  }

  /** How long a person was waited for. */
  waited(now) {
    const { at, waited, waits } = this.stands;
    return waited + (waits ? Math.max(0, now - at) : 0);
  }

  /** How long a person was waited for, of the time from one moment to another. */
  paused(from, until) {
    let total = 0;
    for (const pause of this.pauses)
      total += Math.max(0, Math.min(pause.to ?? until, until) - Math.max(pause.from, from));
    return total;
  }

  /** When a person is waited for, here and above: where it is drawn. Questions nest. */
  hold(at) {
    for (let run = this; run; run = run.parent)
      if (run.holds++ === 0) run.pauses.push({ from: at, to: null });
  }

  release(at) {
    for (let run = this; run; run = run.parent) if (--run.holds === 0) run.pauses.at(-1).to = at;
  }

  /** The agents from the root down to this one. */
  get path() {
    return this.parent ? [...this.parent.path, this.agent] : [this.agent];
  }
}
