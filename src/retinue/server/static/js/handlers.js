/* What each event means for a workflow. Called by `fold` alone, with the run that the event is about. */

import { emoji } from "./emoji.js";
import { Call, Run, usageOf } from "./nodes.js";
import { clock, count } from "./words.js";

const KNOWLEDGE = "knowledge-first";

function note(flow, run, event, tone, text, detail = "") {
  const entry = {
    kind: "note",
    key: `${run.id}#${event.seq}`,
    run,
    tone,
    text,
    detail,
    at: event.at,
    pos: event.pos,
  };
  run.entries.push(entry);
  if (run === flow.root) flow.turns.at(-1)?.entries.push(entry);
  flow.latest = entry;
}

function enter(flow, run, entry) {
  run.entries.push(entry);
  if (run === flow.root) flow.turns.at(-1)?.entries.push(entry);
  flow.latest = entry;
}

function begin(flow, run, event) {
  const parent = flow.runs.get(event.parent_id ?? "") ?? null;
  if (!run) {
    run = new Run(event.run_id, parent, event.spec.name, event.at);
    run.seq = event.seq;
    run.pos = event.pos;
    flow.runs.set(run.id, run);
    if (parent) adopt(flow, parent, run, event.call_id);
  }
  Object.assign(run, {
    agent: event.spec.name,
    icon: emoji(event.spec.icon),
    label: event.label ?? "",
    prompt: event.prompt,
    rendered: event.rendered ?? "",
    model: event.model ?? "",
    spec: event.spec,
    began: event.at,
    options: event.options ?? {},
    cwd: event.cwd ?? "",
    forkedFrom: event.forked_from ?? null,
    limits: event.limits ?? {},
    images: event.images ?? [],
    startPos: event.pos,
  });
  if (!parent && event.depth === 0) {
    flow.root = run;
    flow.turns.push({
      question: run.prompt,
      rendered: run.rendered,
      asked: event.question ?? 0,
      at: event.at,
      entries: [],
      images: run.images,
      report: null,
      pos: event.pos,
    });
  }
  flow.latest = run;
}

/** A child belongs under the call that started it; without one, to the run itself. */
function adopt(flow, parent, child, callId) {
  if (child.adopted) return;
  child.adopted = true;
  parent.children.push(child);
  const call = callId ? parent.calls.get(callId) : undefined;
  if (call) {
    call.children.push(child);
    child.via = call;
  } else {
    enter(flow, parent, child);
  }
}

function childStarted(flow, run, event) {
  let child = flow.runs.get(event.child_id);
  if (!child) {
    child = new Run(event.child_id, run, event.agent, event.at);
    flow.runs.set(child.id, child);
  }
  child.label ||= event.label ?? "";
  child.prompt ||= event.prompt;
  child.background = event.background ?? false;
  child.reserved = event.reserved ?? {};
  child.childKey = event.key ?? "";
  child.isKnowledge = event.call_id === KNOWLEDGE;
  adopt(flow, run, child, event.call_id);
  flow.latest = child;
}

function childEnded(flow, run, event) {
  if (!flow.runs.has(event.child_id)) return;
  if (event.opens && run === flow.root) openTurn(flow, event, { ended: event.agent });
  if (event.notice)
    note(flow, run, event, "info", `${event.agent} ended in the background: ${event.status}`, event.notice);
}

/** The next turn: a person has said something, or a child has `ended` that was left at work. */
function openTurn(flow, event, { question = "", ended = "", to = "" }) {
  const { at, pos, rendered = "", images = [] } = event;
  // What the model reads of a message is its text, and then what is attached to it.
  const asked = [...question].length;
  flow.turns.push({ question, ended, to, rendered, asked, at, entries: [], images, report: null, pos });
}

function resumed(flow, run, event) {
  // What follows says whether this is another try or the next turn of a conversation.
  const reported = run === flow.root ? null : run.report;
  run.before = run === flow.root ? run.report : null;
  Object.assign(run, { leftAt: null, report: null, failure: null, cancelling: null, text: "", thinking: "" });
  for (const [id, asked] of run.waiting) {
    if (run.stopped) run.hold(event.at);
    flow.approvals.set(id, asked);
  }
  run.stopped = false;
  if (run === flow.root && !flow.turns.at(-1)?.report?.at_work) flow.turns.at(-1).report = null;
  if (reported?.text) note(flow, run, event, "info", "reported before", reported.text);
  else if (!run.before) note(flow, run, event, "info", "taken up again", event.reason ?? "");
}

function stepStarted(flow, run, event) {
  run.before = null;
  Object.assign(run, {
    step: event.step,
    asking: event.purpose === "work" || !event.purpose ? "thinking" : PURPOSES[event.purpose],
    text: "",
    thinking: "",
  });
  run.spans.push({ kind: "model", from: event.at, to: null, label: event.model });
  if (event.purpose === "final") note(flow, run, event, "warning", "told to finish", event.reason);
}

const PURPOSES = { final: "writing its report", summary: "summing up", correct: "mending its answer" };

function stepRetried(flow, run, event) {
  if (event.text_shown) run.text = run.thinking = "";
  run.asking = event.model ? `asking ${event.model} instead` : `asking again: ${event.reason}`;
  const said = event.model ? `${event.model} is asked instead` : `the model is asked again (try ${event.attempt + 1})`;
  const begun = event.begun ? "\nA reply had begun, which may be charged for." : "";
  note(flow, run, event, "warning", said, event.reason + begun);
}

function callCut(flow, run, event) {
  note(flow, run, event, "warning", "a model call was cut off after it had begun", event.usage.cost === null ? "What it cost is not known." : "");
}

/** The provider takes nothing more for a while: the clocks stand still, and it goes on by itself. */
function limitReached(flow, run, event) {
  if (!run.parked) run.hold(event.at);
  run.parked = event;
  Object.assign(run, { text: "", thinking: "", asking: limitOf(event) });
  close(run, "model", event.at);
  note(flow, run, event, "warning", limitOf(event), event.reason);
}

function limitPassed(flow, run, event) {
  unpark(run, event.at);
  run.asking = "thinking";
  run.spans.push({ kind: "model", from: event.at, to: null, label: run.model });
}

function unpark(run, at) {
  if (run.parked) run.release(at);
  run.parked = null;
}

const limitOf = (event) => `waiting for the provider's limit to reset, until ${clock(event.until)}`;

function streamed(flow, run, event) {
  if (run.report || (event.step !== undefined && event.step !== run.step)) return;
  run.asking = event.thinking ? "thinking" : "writing";
  if (event.thinking) run.thinking += event.text;
  else run.text += event.text;
}

/** The whole text of a reply so far, for whoever came in the middle of it. */
function writing(flow, run, event) {
  if (run.report || event.step !== run.step) return;
  run.asking = "writing";
  run.text = event.text;
}

function progressed(flow, run, event) {
  const call = run.calls.get(event.call_id);
  if (call) call.progress = event.text;
}

function replied(flow, run, event) {
  close(run, "model", event.at);
  if (run.model.endsWith(":")) run.model = event.model;
  run.effort = event.effort ?? "";
  if (run.model.includes(",")) run.model = event.model; // of a chain, who answered
  Object.assign(run, { asking: "", text: "", thinking: "" });
  const message = event.message;
  const calls = message.calls ?? [];
  const text = message.text ?? "";
  if (text.trim() || event.thinking) {
    enter(flow, run, {
      kind: "say",
      key: `${run.id}#${event.seq}`,
      run,
      text,
      thinking: event.thinking ?? "",
      final: calls.length === 0,
      at: event.at,
      pos: event.pos,
      usage: usageOf(event.usage),
      model: event.model,
      effort: event.effort ?? "",
      took: event.duration_ms ?? 0,
    });
  }
  for (const asked of calls) {
    const call = new Call(run, asked, event.at);
    run.calls.set(call.id, call);
    enter(flow, run, call);
  }
}

function close(run, kind, at, id) {
  const span = run.spans.findLast(
    (each) => each.kind === kind && each.to === null && (id === undefined || each.id === id),
  );
  if (span) span.to = at;
}

/** A call that code made inside another call hangs below that one: its id is `outer/number`. */
function callOf(flow, run, event) {
  const known = run.calls.get(event.call_id);
  if (known) return known;
  const call = new Call(
    run,
    { id: event.call_id, name: event.name, arguments: event.arguments ?? "{}" },
    event.at,
  );
  run.calls.set(call.id, call);
  const outer = run.calls.get(call.id.slice(0, call.id.lastIndexOf("/")));
  if (outer && call.id.includes("/")) outer.inner.push(call);
  else enter(flow, run, call);
  return call;
}

function toolCalled(flow, run, event) {
  const call = callOf(flow, run, event);
  Object.assign(call, {
    began: event.at,
    effect: event.effect,
    arguments: event.arguments,
    name: event.name,
    pos: event.pos,
  });
  run.spans.push({
    kind: event.effect === "delegate" ? "delegate" : "tool",
    from: event.at,
    to: null,
    label: event.name,
    id: call.id,
  });
  flow.latest = call;
}

function toolReturned(flow, run, event) {
  const call = callOf(flow, run, event);
  Object.assign(call, {
    ended: event.at,
    isError: event.is_error ?? false,
    end: event.outcome,
    text: event.text,
    took: call.began === null ? null : (event.duration_ms ?? null),
    sources: event.sources ?? [],
    files: event.files ?? [],
    progress: "",
    pos: event.pos,
  });
  close(run, call.effect === "delegate" ? "delegate" : "tool", event.at, call.id);
  flow.latest = call;
}

function approvalRequested(flow, run, event) {
  if (!run.waiting.has(event.approval_id)) run.hold(event.at);
  run.waiting.set(event.approval_id, event);
  flow.approvals.set(event.approval_id, event);
  const call = callOf(flow, run, { ...event, name: event.tool });
  call.approval = event;
  call.answer = null;
  call.effect ??= event.effect;
  run.spans.push({ kind: "wait", from: event.at, to: null, label: event.tool, id: event.approval_id });
  flow.latest = call;
}

function approvalAnswered(flow, run, event) {
  if (run.waiting.delete(event.approval_id) && !run.stopped) run.release(event.at);
  flow.approvals.delete(event.approval_id);
  const call = run.calls.get(event.call_id);
  if (call) {
    call.answer = event;
    flow.latest = call;
  }
  close(run, "wait", event.at, event.approval_id);
}

function messageReceived(flow, run, event) {
  if (event.message_id === KNOWLEDGE) {
    learn(flow, run, event);
    return;
  }
  if (event.sender && event.sender !== "person") {
    const who =
      { parent: "its parent said", child: "a child said", system: "told" }[event.sender] ?? event.sender;
    note(flow, run, event, "info", who, event.text);
    return;
  }
  if (run === flow.root && (run.report || run.before || event.next_turn)) {
    if (run.before) flow.turns.at(-1).report = run.before;
    Object.assign(run, { report: null, before: null });
    openTurn(flow, event, { question: event.text, to: flow.runs.get(event.asks)?.agent ?? "" });
    run.entries.push({
      kind: "said",
      key: `${run.id}#${event.seq}`,
      run,
      text: event.text,
      at: event.at,
      pos: event.pos,
    });
  } else {
    enter(flow, run, {
      kind: "said",
      key: `${run.id}#${event.seq}`,
      run,
      text: event.text,
      at: event.at,
      pos: event.pos,
    });
  }
}

/** What the knowledge agent found before the first step. */
function learn(flow, run, event) {
  const found = event.knowledge;
  flow.knowledge = {
    runId: found?.run_id ?? "",
    agent: found?.agent ?? "",
    turns: found?.turns ?? 0,
    text: found?.text ?? event.text,
    at: event.at,
  };
  note(flow, run, event, "info", "was given external knowledge", event.text);
}

function pruned(flow, run, event) {
  note(flow, run, event, "info", `${count(event.dropped, "older message")} left out of its history`, event.summary);
}

/** A small model was asked about a call before a person would be. */
function reviewed(flow, run, event) {
  const said = event.cleared ? "cleared by the reviewer" : "not cleared by the reviewer";
  const by = `${event.model}, ${count(event.usage.input_tokens + event.usage.output_tokens, "token")}`;
  note(flow, run, event, event.cleared ? "info" : "warning", `${event.tool}: ${said}`, `${event.why}\n${by}`);
}

/** A small model wrote something for an MCP server, and a person had agreed. */
function sampled(flow, run, event) {
  const by = `${event.model}, ${count(event.usage.input_tokens + event.usage.output_tokens, "token")}`;
  const did = event.why ? "nothing was written for" : "the model wrote for";
  const said = `${event.why || event.text}\n${by}`;
  note(flow, run, event, event.why ? "warning" : "info", `${did} the MCP server ${event.server}`, said);
}

/** A model was asked about claims that the program cannot decide. */
function judged(flow, run, event) {
  const by = `${event.model}, ${count(event.usage.input_tokens + event.usage.output_tokens, "token")}`;
  const said = event.why || event.verdicts.map((one) => one.verdict.replace("_", " ")).join(", ");
  note(flow, run, event, event.why ? "warning" : "info", `${count(event.asked.length, "claim")} judged`, `${said}\n${by}`);
}

const GUARDED = { stop: "stops the run", mend: "changes the text", correct: "sends the answer back" };

function guarded(flow, run, event) {
  if (event.decision === "pass") return;
  const tone = event.decision === "stop" ? "error" : "warning";
  note(flow, run, event, tone, `the ${event.side} guard ${event.guard} ${GUARDED[event.decision]}`, event.why);
}

function denied(flow, run, event) {
  note(flow, run, event, "error", `refused: ${event.what}`, event.detail);
}

function filesChanged(flow, run, event) {
  flow.changeCount += 1;
  if (event.void) {
    return;
  }
  const paths = event.changes.map((change) => change.path);
  const some = paths.slice(0, 20).join("\n") + (paths.length > 20 ? `\nand ${paths.length - 20} more` : "");
  if (paths.length) {
    note(flow, run, event, "info", `changed ${paths.length === 1 ? paths[0] : `${paths.length} files`}`, some);
  }
  if (event.left_out.length) {
    note(flow, run, event, "warning", "not all of it is recorded", event.left_out.join("\n"));
  }
}

function changesUndone(flow, run, event) {
  flow.changeCount += 1;
  flow.undone.push(event);
  note(flow, run, event, "warning", `changes taken back by ${event.by}`, event.paths.join("\n"));
}

function renamed(flow, run, event) {
  run.label = event.label;
  note(flow, run, event, "info", `named by ${event.by}`, event.label);
}

function copyLeft(flow, run, event) {
  flow.changeCount += 1;
  const count = event.files + event.left_out;
  const where = event.branch ? `on the branch ${event.branch}` : "";
  if (count) note(flow, run, event, "warning", `not in the project: ${count} ${count === 1 ? "file" : "files"}`, where);
  else note(flow, run, event, "info", "nothing is left in its copy of the project", where);
}

function cancelRequested(flow, run, event) {
  run.cancelling = event.reason || "cancelled";
  note(flow, run, event, "warning", `cancelled by ${event.by ?? "person"}`, event.reason ?? "");
}

function raised(flow, run, event) {
  run.failure = event.message;
  note(flow, run, event, "error", "failed", event.message);
}

function finished(flow, run, event) {
  Object.assign(run, { asking: "", text: "", thinking: "" });
  // What it left at work is a part of it: only the turn is over then.
  if (!event.report.at_work) run.report = event.report;
  for (const span of run.spans) span.to ??= event.at;
  unpark(run, event.at);
  for (const id of run.waiting.keys()) {
    run.release(event.at);
    flow.approvals.delete(id);
  }
  run.stopped = run.waiting.size > 0;
  if (run === flow.root && flow.turns.length) {
    flow.turns.at(-1).report = event.report;
    flow.turns.at(-1).over = event.at;
    flow.turns.at(-1).endPos = event.pos;
  }
  flow.latest = run;
}

export const HANDLERS = {
  run_started: begin,
  run_resumed: resumed,
  step_started: stepStarted,
  step_retried: stepRetried,
  call_cut: callCut,
  limit_reached: limitReached,
  limit_passed: limitPassed,
  streamed,
  writing,
  progressed,
  model_replied: replied,
  tool_called: toolCalled,
  tool_returned: toolReturned,
  approval_requested: approvalRequested,
  approval_answered: approvalAnswered,
  call_reviewed: reviewed,
  model_sampled: sampled,
  claims_judged: judged,
  child_started: childStarted,
  child_ended: childEnded,
  message_received: messageReceived,
  history_pruned: pruned,
  guard_spoke: guarded,
  access_denied: denied,
  files_changed: filesChanged,
  changes_undone: changesUndone,
  run_renamed: renamed,
  copy_left: copyLeft,
  cancel_requested: cancelRequested,
  error_raised: raised,
  run_finished: finished,
};
