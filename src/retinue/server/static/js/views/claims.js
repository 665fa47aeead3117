/* Claims: the sentences of an answer that cite a page, each with what that page says to it. */

import { h } from "../dom.js";
import { icon } from "../icons.js";
import { clean, count } from "../words.js";

const VERDICTS = {
  supported: { badge: "completed", icon: "check", name: "Supported" },
  contradicted: { badge: "error", icon: "warning", name: "Contradicted" },
  not_found: { badge: "waiting", icon: "warning", name: "Not found" },
  unchecked: { badge: "", icon: "sources", name: "Not checked" },
};

/** How many of the cited sentences their sources support, and each of them on demand. */
export function claimsBlock(report) {
  const claims = report?.claims ?? [];
  if (!claims.length) return null;
  const supported = claims.filter((one) => one.verdict === "supported").length;
  const wrong = claims.filter((one) => one.verdict === "contradicted").length;
  return h(
    "details",
    { class: "claims", open: wrong > 0 },
    h(
      "summary",
      null,
      icon(wrong ? "warning" : "check"),
      h("strong", null, `${supported} of ${count(claims.length, "claim")} supported`),
      h("span", { class: "muted cut" }, besides(report, wrong)),
    ),
    h("ul", { class: "plain source-list" }, claims.map(row)),
  );
}

function besides(report, wrong) {
  const told = [wrong && `${wrong} contradicted`, report.uncited && `${count(report.uncited, "sentence")} without a source`];
  return told.filter(Boolean).join(" · ");
}

function row(claim) {
  const verdict = VERDICTS[claim.verdict] ?? VERDICTS.unchecked;
  return h(
    "li",
    { class: "claim" },
    h("span", { class: `badge ${verdict.badge}` }, icon(verdict.icon, 12), verdict.name),
    h(
      "div",
      { class: "grow" },
      h("div", null, clean(claim.text)),
      claim.differences.map((one) => h("div", { class: "small source-note" }, difference(one))),
      claim.passage && h("blockquote", { class: "small muted" }, clean(claim.passage)),
      claim.source && h("div", { class: "small muted source-url" }, claim.source),
    ),
  );
}

function difference(one) {
  if (!one.source) return `Its source says nothing of “${clean(one.claim)}”.`;
  return `It says “${clean(one.claim)}”, its source “${clean(one.source)}”.`;
}
