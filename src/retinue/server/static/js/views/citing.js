/* What an answer rests on, as parts that the conversation and the list of sources share. */

import { h } from "../dom.js";
import { icon } from "../icons.js";
import { prose } from "../prose.js";
import { clean, count } from "../words.js";

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
        problems.slice(0, 5).map((problem) => h("li", null, clean(problem.replace(/^(.+?): \1/, "$1")))),
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
