/* What an answer rests on, as parts that the conversation and the list of sources share. */

import { h } from "../dom.js";
import { icon } from "../icons.js";
import { prose } from "../prose.js";
import { clean, count, moment } from "../words.js";

export function sourceName(source) {
  if (source.url) {
    if (source.title) return source.title;
    try {
      const url = new URL(source.url);
      return url.hostname.replace(/^www\./, "") + (url.pathname === "/" ? "" : url.pathname);
    } catch {
      return source.url;
    }
  }
  return `${source.path}${source.lines ? `:${source.lines[0]}${source.lines[1] !== source.lines[0] ? `–${source.lines[1]}` : ""}` : ""}`;
}

/** The call that fetched or read a source, the first if there were several: who can say how it is known. */
export function stepOf(flow, source) {
  let found = null;
  for (const run of flow.runs.values())
    for (const call of run.calls.values())
      if (call.ended !== null && !(found?.ended <= call.ended) && call.sources.some((one) => same(one, source)))
        found = call;
  return found;
}

function same(seen, cited) {
  if (cited.url) return [seen.url, ...(seen.aliases ?? [])].includes(cited.url);
  if (!seen.path || !cited.path) return false;
  const [one, other] = [seen.path, cited.path].map((path) => path.replace(/^\.?\//, ""));
  if (one !== other && !one.endsWith(`/${other}`) && !other.endsWith(`/${one}`)) return false;
  return !seen.lines || !cited.lines || (seen.lines[0] <= cited.lines[1] && cited.lines[0] <= seen.lines[1]);
}

/** What "verified" rests on: what was done, when, by whom, and what came back. */
export function evidence(source, step) {
  const by = step ? ` by ${step.run.agent} with ${step.name}` : "";
  if (!source.verified)
    return source.url ? "Cited, but nobody fetched it in this run." : "Cited, but nobody read it in this run.";
  if (source.url) return `Fetched${by}${at(source.fetched_at ?? step?.ended)}`;
  const lines = source.lines
    ? source.lines[0] === source.lines[1]
      ? `Line ${source.lines[0]} was`
      : `Lines ${source.lines[0]} to ${source.lines[1]} were`
    : "This file was";
  return `${lines} read${by}${at(step?.ended)}`;
}

const at = (when) => (when ? ` on ${moment(when)}` : " in this run");

export function problemsNotice(problems) {
  return h(
    "div",
    { class: "notice warning" },
    icon("warning"),
    h(
      "div",
      null,
      h("strong", null, `${count(problems.length, "problem")} with what it cites`),
      h(
        "ul",
        { class: "tight" },
        problems.slice(0, 5).map((problem) => h("li", null, clean(problem))),
      ),
      problems.length > 5 && h("span", { class: "muted" }, `and ${problems.length - 5} more`),
    ),
  );
}

/** What was looked up before the first step, by whom, in how many turns. */
export function knowledgeBlock(knowledge) {
  return h(
    "details",
    { class: "knowledge" },
    h(
      "summary",
      null,
      icon("globe"),
      h("strong", null, "External knowledge"),
      h(
        "span",
        { class: "muted cut" },
        knowledge.agent
          ? `looked up by ${knowledge.agent} in ${count(knowledge.turns, "turn")} before the first step`
          : "given before the first step",
      ),
    ),
    prose(h("div", { class: "knowledge-text" }), knowledge.text),
  );
}
