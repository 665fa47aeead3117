/* What a step opens to: arguments, results, changes as a diff, who allowed it. */

import { h, put } from "../dom.js";
import { icon } from "../icons.js";
import { copyButton, prose } from "../prose.js";
import { may } from "../session.js";
import { clean, count, duration, money, moment, oneLine, parsed, plain, tokens, waited } from "../words.js";

const SHOWN = 6000;

export function detailOf(row) {
  const box = h("div", { class: "stack tight", role: "group", "aria-label": `Details of ${labelOf(row)}` });
  const { run, call, entry } = row.of ?? row;
  const kind = (row.of ?? row).kind;
  if (kind === "task") put(box, taskOf(run));
  else if (kind === "report") put(box, reportOf(run));
  else if (kind === "call" || kind === "said-of") put(box, callOf(call));
  else if (kind === "say")
    put(
      box,
      entry.thinking && thought(entry.thinking),
      entry.text && prose(h("div"), entry.text),
      sayFacts(entry),
    );
  else if (kind === "said") put(box, prose(h("div"), entry.text));
  else put(box, textBlock(entry.detail || entry.text));
  return h("div", { class: "step-detail", role: "treeitem" }, box);
}

function labelOf(row) {
  const of = row.of ?? row;
  return of.call?.name ?? of.run?.agent ?? oneLine(of.entry?.text ?? "", 40);
}

function facts(pairs) {
  return h(
    "dl",
    { class: "facts" },
    pairs.filter(([, value]) => value).map(([name, value]) => [h("dt", null, name), h("dd", null, value)]),
  );
}

function taskOf(run) {
  return [
    prose(h("div"), run.prompt),
    speakButton(run),
    run.via && approvalOf(run.via),
    facts([
      ["Model", run.model],
      ["Run", h("code", null, run.id)],
      ["Started", moment(run.began)],
      ["In the background", run.background && "yes"],
      ["Limits", limitsOf(run)],
    ]),
  ];
}

/** A word to a child: while it works, or once it has ended to the run that started it a question more. */
function speakButton(run) {
  if (!run.parent || !may("ask") || (run.over && run.parent.parent)) return null;
  return h(
    "p",
    null,
    h(
      "button",
      {
        class: "button small",
        type: "button",
        on: { click: ({ target }) => target.dispatchEvent(new CustomEvent("speak", { detail: run, bubbles: true })) },
      },
      icon("ask"),
      run.over ? "Ask it again" : "Tell it something",
    ),
  );
}

function limitsOf(run) {
  const given = { ...run.limits, ...(run.spec?.max_turns ? { turns: run.spec.max_turns } : {}) };
  return Object.entries(given)
    .filter(([, value]) => value !== null && value !== undefined)
    .map(
      ([name, value]) =>
        `${name.replace("_", " ")} ${typeof value === "number" ? value.toLocaleString("en", { maximumFractionDigits: 2 }) : value}`,
    )
    .join(", ");
}

function reportOf(run) {
  const report = run.report;
  if (!report) return null; // the conversation goes on, and this row is about to go
  return [
    (report.error || report.incomplete) &&
      h(
        "div",
        { class: `notice ${report.error ? "error" : "warning"}` },
        icon("warning"),
        h("span", null, report.error ?? `Not finished: ${report.incomplete}`),
      ),
    report.text ? prose(h("div"), report.text) : h("p", { class: "muted" }, "No text."),
    speakButton(run),
    facts([
      ["Turns", String(report.turns)],
      ["Tool calls", `${report.tool_calls}${report.failed_calls ? ` (${report.failed_calls} failed)` : ""}`],
      ["Tokens", `${tokens(report.usage.input_tokens)} in, ${tokens(report.usage.output_tokens)} out`],
      ["Cost", money(report.usage.cost)],
      ["Effort", report.effort],
      ["Took", tookOf(report.duration_ms / 1000, run.waited(Date.now() / 1000))],
      ["Sources", report.sources?.length ? count(report.sources.length, "source") : ""],
      // What lay in the run's own home ended with it.
      ["Files", report.files?.filter((file) => !file.startsWith("/home/agent/")).join(", ")],
    ]),
  ];
}

function sayFacts(entry) {
  return facts([
    ["Model", entry.model],
    ["Effort", entry.effort],
    ["Tokens", `${tokens(entry.usage.input)} in, ${tokens(entry.usage.output)} out`],
    ["Cost", money(entry.usage.cost)],
    ["Took", duration(entry.took / 1000)],
  ]);
}

export function thought(text) {
  return h(
    "details",
    { class: "thought" },
    h("summary", null, "Its reasoning"),
    h("div", { class: "as-it-is" }, clean(text)),
  );
}

function callOf(call) {
  return [
    h("h4", null, "Arguments"),
    argumentsOf(call.name, call.arguments, call.approval?.preview),
    approvalOf(call),
    call.text !== null &&
      h("h4", null, call.outcome === "rejected" ? "Rejected" : call.isError ? "Refused or failed" : "Result"),
    call.text !== null && resultOf(call),
    call.progress && h("p", { class: "muted small mono" }, clean(call.progress)),
    facts([
      ["Effect", call.effect],
      ["Took", call.began !== null && call.ended !== null ? tookOf(call.seconds(), call.waited()) : ""],
      ["Files", call.files.join(", ")],
      ["Sources", call.sources.length ? count(call.sources.length, "source") : ""],
    ]),
  ];
}

/** Work, and apart from it what a person took to answer. */
const tookOf = (worked, rest) => [duration(worked), waited(rest)].filter(Boolean).join(", ");

function resultOf(call) {
  if (isDiff(call.text)) return diffBlock(call.text);
  return textBlock(call.text, call.isError ? "error" : "");
}

function approvalOf(call) {
  const { approval, answer } = call;
  if (!approval) return null;
  if (!answer)
    return h(
      "div",
      { class: "notice warning" },
      icon("warning"),
      h("span", null, `Waits for a person: ${approval.reason}`),
    );
  const said = {
    approve: answer.along_with ? "Approved along with another call" : "Approved",
    approve_run: "Approved for the rest of the run",
    approve_tool: "Approved with every further call of this tool",
    approve_always: "Approved always, in this folder,",
    reject: "Rejected",
  }[answer.decision];
  const edited = answer.arguments !== null && answer.arguments !== undefined;
  return h(
    "div",
    { class: `notice ${answer.decision === "reject" ? "error" : ""}` },
    icon(answer.decision === "reject" ? "cross" : "check"),
    h(
      "span",
      null,
      `${said} by ${answer.by}${edited ? ", with other arguments" : ""}${answer.reason ? `: ${answer.reason}` : ""}`,
    ),
  );
}

/** The arguments of a call, each in the form that reads best. */
export function argumentsOf(name, raw, preview = "") {
  const given = parsed(raw);
  if (given === null) return textBlock(raw);
  const shown = { ...given };
  const parts = [];
  if (preview && isDiff(preview)) {
    parts.push(diffBlock(preview));
    delete shown.content;
    delete shown.old;
    delete shown.new;
  } else if (typeof shown.old === "string" && typeof shown.new === "string") {
    parts.push(
      diffBlock(
        [
          ...shown.old.split("\n").map((line) => `-${line}`),
          ...shown.new.split("\n").map((line) => `+${line}`),
        ].join("\n"),
      ),
    );
    delete shown.old;
    delete shown.new;
  }
  if (typeof shown.command === "string") {
    parts.push(commandBlock(shown.command));
    delete shown.command;
  }
  if (typeof shown.code === "string") {
    parts.push(textBlock(shown.code));
    delete shown.code;
  }
  const rest = Object.entries(shown).filter(([, value]) => value !== null);
  if (rest.length)
    parts.unshift(
      h(
        "dl",
        { class: "arguments" },
        rest.map(([key, value]) => [h("dt", null, clean(key)), h("dd", null, valueOf(value))]),
      ),
    );
  return h(
    "div",
    { class: "stack tight" },
    parts.length ? parts : h("p", { class: "muted small" }, "No arguments."),
  );
}

function valueOf(value) {
  if (
    Array.isArray(value) &&
    value.length &&
    value.every((one) => typeof one === "string" && one.length < 60)
  )
    return value.map((one, index) => [index > 0 && ", ", h("code", null, clean(one))]);
  const text = typeof value === "object" ? JSON.stringify(value, null, 2) : plain(value);
  return text.length > 160 || text.includes("\n") ? textBlock(text) : h("code", null, clean(text));
}

export const commandBlock = (command) =>
  h(
    "div",
    { class: "code command" },
    h("pre", null, h("span", { class: "prompt", "aria-hidden": "true" }, "$ "), clean(command)),
    copyButton(() => command),
  );

export function textBlock(text, tone = "") {
  const pre = h("pre", null, clean(text.slice(0, SHOWN)));
  const box = h(
    "div",
    { class: `code ${tone}` },
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Text" }, pre),
    copyButton(() => text),
  );
  if (text.length > SHOWN) {
    const more = h(
      "button",
      {
        class: "button quiet small",
        type: "button",
        on: {
          click: (event) => {
            event.stopPropagation();
            pre.textContent = clean(text);
            more.remove();
          },
        },
      },
      `Show all ${text.length.toLocaleString("en")} characters`,
    );
    box.append(more);
  }
  return box;
}

export const isDiff = (text) => /^(--- .*\n\+\+\+ |@@ )/.test(text);

/** A change, line by line. Signs stay: nobody has to tell lines apart by their colour. */
export function diffBlock(text) {
  const lines = text.split("\n").map((line) => {
    const kind =
      line.startsWith("+++") || line.startsWith("---")
        ? "file"
        : line.startsWith("@@")
          ? "place"
          : line.startsWith("+")
            ? "added"
            : line.startsWith("-")
              ? "removed"
              : "";
    return h("span", { class: kind }, clean(line) || " ", "\n");
  });
  return h(
    "div",
    { class: "code diff" },
    h(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": "Changes" },
      h("pre", null, lines),
    ),
    copyButton(() => text),
  );
}
