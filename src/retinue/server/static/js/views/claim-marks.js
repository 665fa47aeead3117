/* Claims in the answer's own text: each cited sentence has a mark, and on demand the passage of its source. */

import { h } from "../dom.js";
import { icon } from "../icons.js";
import { clean, count } from "../words.js";

const NAMES = {
  supported: "supported by its source",
  contradicted: "its source says otherwise",
  not_found: "not found in its source",
  unchecked: "not checked",
};
let serial = 0;

/** How many of the cited sentences their sources support, as a way to the whole list. */
export function claimsBadge(report, flow) {
  const claims = report?.claims ?? [];
  if (!claims.length) return null;
  const supported = claims.filter((one) => one.verdict === "supported").length;
  const wrong = claims.some((one) => one.verdict === "contradicted");
  return h(
    "a",
    { class: `claims-badge badge ${wrong ? "error" : "completed"}`, href: `#/run/${flow.root.run_id ?? flow.root.id}/sources` },
    icon(wrong ? "warning" : "check", 12),
    `${supported} of ${count(claims.length, "claim")} supported`,
  );
}

/** Mark the claims of a report in the element that shows its text. */
export function markClaims(element, report) {
  for (const claim of report.claims ?? []) {
    const range = find(element, clean(claim.text));
    if (range) wrap(range, claim);
  }
}

/** Where a sentence stands: the text nodes it runs through, blanks and marks of typesetting left out. */
function find(element, sentence) {
  const wanted = letters(sentence);
  if (wanted.length < 8) return null;
  const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  const places = [];
  let all = "";
  while (walker.nextNode()) {
    const node = /** @type {Text} */ (walker.currentNode);
    if (node.parentElement.closest("pre, .claim-mark, .claim-said")) continue;
    [...node.data].reduce((at, char) => {
      const kept = letters(char);
      for (let i = 0; i < kept.length; i += 1) places.push({ node, at, length: char.length });
      all += kept;
      return at + char.length;
    }, 0);
  }
  const start = all.indexOf(wanted);
  return start < 0 ? null : places.slice(start, start + wanted.length);
}

function letters(text) {
  return text.toLowerCase().replace(/[^\p{L}\p{N}]/gu, "");
}

/** The sentence in a mark; what belongs to it opens behind its last piece. */
function wrap(places, claim) {
  const spans = new Map();
  for (const { node, at, length } of places) {
    const span = spans.get(node) ?? { from: at, to: at };
    span.to = at + length;
    spans.set(node, span);
  }
  let last = null;
  for (const [node, { from, to }] of spans) {
    const range = document.createRange();
    range.setStart(node, from);
    range.setEnd(node, to);
    last = h("span", { class: `claim-mark ${claim.verdict}` });
    range.surroundContents(last);
  }
  if (!last) return;
  const tools = opener(claim);
  const end = /^[.!?。！？…)]+/u.exec(last.nextSibling?.nodeType === Node.TEXT_NODE ? last.nextSibling.data : "");
  if (end) {
    const rest = last.nextSibling.splitText(end[0].length);
    rest.before(tools);
  } else last.after(tools);
  last.title = clean(claim.passage) || NAMES[claim.verdict];
  last.addEventListener("click", () => tools.querySelector(".claim-said").togglePopover());
}

function opener(claim) {
  serial += 1;
  const id = `claim-${serial}`;
  const said = h(
    "span",
    { class: "claim-said", id, popover: "auto" },
    h("strong", null, NAMES[claim.verdict] ?? NAMES.unchecked, claim.judged ? ` (judged by ${claim.judged})` : ""),
    claim.differences.map((one) =>
      h("span", { class: "claim-difference" }, one.source ? `“${clean(one.claim)}”; there: “${clean(one.source)}”` : `nothing of “${clean(one.claim)}”`),
    ),
    claim.passage && h("q", null, highlighted(clean(claim.passage), claim.differences)),
    claim.source && h("span", { class: "muted source-url" }, claim.source),
  );
  const button = h(
    "button",
    { class: `claim-open ${claim.verdict}`, type: "button", popovertarget: id, "aria-label": `Its source: ${NAMES[claim.verdict]}` },
    icon(claim.verdict === "supported" ? "check" : claim.verdict === "unchecked" ? "sources" : "warning", 11),
  );
  return h("span", { class: "claim-tools" }, button, said);
}

/** A passage with what differs in it marked. */
function highlighted(passage, differences) {
  const other = differences.map((one) => clean(one.source)).find((part) => part && passage.includes(part));
  if (!other) return passage;
  const at = passage.indexOf(other);
  return [passage.slice(0, at), h("mark", null, other), passage.slice(at + other.length)];
}
