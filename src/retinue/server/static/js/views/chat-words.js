/* What the conversation says in a line: a question with its files, what a run does, what was done together. */

import { h } from "../dom.js";
import { icon } from "../icons.js";
import { brief, children, clean, count, duration, oneLine, waited } from "../words.js";

const ATTACHMENT = /\n*<attachment name="([^"]*)" kind="(\w+)">\n([\s\S]*?)\n<\/attachment>/g;

/**
 * What was attached to a question. How long the question is its event says: what it says in its own words is never
 * taken for a file.
 */
const attachedTo = ({ rendered, asked }) => [...rendered].slice(asked).join("");

/** A question as it was written, and the files that came with it. */
export function question(turn) {
  if (turn.ended)
    return h("div", { class: "notice opened" }, icon("delegate"), `${turn.ended} ended in the background`);
  const files = [...attachedTo(turn).matchAll(ATTACHMENT)].map(([, name, kind, inside]) => ({ name, kind, inside }));
  const shown = files.map((file) =>
    h(
      "details",
      { class: "chip" },
      h(
        "summary",
        null,
        icon("file"),
        h("span", { class: "cut" }, file.name),
        h("span", { class: "muted" }, file.kind),
      ),
      file.kind !== "image" && h("pre", null, clean(file.inside.slice(0, 4000))),
    ),
  );
  const pictures = turn.images
    .filter((image) => /^image\/(png|jpeg|gif|webp)$/.test(image.media_type))
    .map((image) =>
      h("img", {
        src: `data:${image.media_type};base64,${image.data}`,
        alt: "Attached picture",
        class: "picture",
      }),
    );
  return h(
    "div",
    { class: "bubble" },
    turn.to && h("div", { class: "muted" }, `To ${clean(turn.to)}`),
    clean(turn.question.trim()),
    files.length > 0 && h("div", { class: "row wrap" }, shown),
    pictures,
  );
}

/** What a run does right now, or what it was asked. */
export function doing(run) {
  if (run.outcome === "error") return oneLine(run.report?.error ?? run.failure ?? "failed");
  if (run.over || run.outcome === "pending") return oneLine(run.label || run.prompt);
  if (run.waiting.size) return `waits for you: ${[...run.waiting.values()][0].tool}`;
  const open = [...run.calls.values()].filter((call) => call.outcome === "running");
  const call = open.at(-1);
  if (call)
    return oneLine(
      `${call.name} ${call.progress || brief(call.arguments)}${open.length > 1 ? ` and ${open.length - 1} more` : ""}`,
    );
  return run.asking ? `${run.asking}…` : oneLine(run.label || run.prompt);
}

/** What was done together, and how long it took: work, and apart from it what a person took to answer. */
export function summary(items, now) {
  const agents = items.flatMap((item) => (item.kind === "run" ? [item] : item.children));
  const calls = items.filter((item) => item.kind === "call" && !item.children.length);
  const words = [];
  if (agents.length)
    words.push(
      agents.length <= 2 ? agents.map((run) => run.agent).join(", ") : children(agents.length),
    );
  if (calls.length)
    words.push(
      calls.length <= 2 ? calls.map((call) => call.name).join(", ") : count(calls.length, "tool call"),
    );
  const rejected = items.filter((item) => item.outcome === "rejected").length;
  const facts = [words.join(" and "), ...took(items, [...agents, ...calls], now)];
  if (rejected) facts.push(items.length > 1 ? `${rejected} rejected` : "rejected");
  return facts.filter(Boolean).join(" · ");
}

/** One alone says itself how long it worked; several: from the first to the last, while nobody was waited for. */
function took(items, workers, now) {
  const whole = items[0].run ?? items[0].parent;
  const from = Math.min(...items.map((item) => item.asked ?? item.began));
  const until = Math.max(...items.map((item) => item.ended ?? item.run?.ended ?? now));
  const still = whole?.paused(from, until) ?? 0;
  const [alone] = workers;
  const worked = workers.length === 1 ? alone.began !== null && alone.seconds(now) : until - from - still;
  return [worked === false ? "" : duration(worked), waited(still, whole?.waits && until === now)];
}
