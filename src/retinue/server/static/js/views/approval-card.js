/* One question to a person: who asks, what it would do, why it asks, and the answers it takes. */

import { inbox } from "../inbox.js";
import { h, newId, put } from "../dom.js";
import { EFFECT_ICONS, icon } from "../icons.js";
import { runPath } from "../router.js";
import { may, session } from "../session.js";
import { tell } from "../toast.js";
import { ago, clean, clock, count, oneLine, parsed } from "../words.js";
import { formFields } from "./approval-form.js";
import { argumentsOf } from "./step-detail.js";

const WANTS = {
  read: "wants to read",
  write: "wants to change a file",
  execute: "wants to run a command",
  network: "wants to use the network",
  spend: "wants to spend money",
  delegate: "wants to start a child",
};

export class ApprovalCard extends HTMLElement {
  /** `done` is called with what happened, once the question is answered. */
  constructor(asked, { done = undefined, heading = "h2" } = {}) {
    super();
    this.asked = asked;
    this.done = done;
    this.heading = heading;
    this.failed = h("div", { role: "alert" });
    this.form = h("div", { class: "approval-form" });
    this.#build();
  }

  #build() {
    const { asked } = this;
    const who = asked.path.at(-1);
    const title = newId("approval");
    const task = inbox.running.get(asked.root_id);
    this.setAttribute("role", "group");
    this.setAttribute("aria-labelledby", title);
    this.title0 = h(this.heading, { id: title, tabindex: "-1" }, `${who} ${wants(asked)}`);
    put(
      this,
      h(
        "div",
        { class: "approval-head" },
        h("span", { class: `effect ${asked.risk}` }, icon(EFFECT_ICONS[asked.effect] ?? "question", 18)),
        h(
          "div",
          { class: "grow" },
          this.title0,
          h(
            "div",
            { class: "path small muted" },
            pathOf(asked.path),
            " · ",
            h("code", null, asked.tool),
            " · ",
            ago(asked.at),
          ),
        ),
        h("span", { class: `badge ${asked.risk}` }, icon("warning", 12), `${asked.risk} risk`),
      ),
      task &&
        h(
          "p",
          { class: "small approval-task" },
          h("span", { class: "muted" }, "For: "),
          h("a", { href: `#${runPath(asked.root_id)}` }, oneLine(task.label || task.task, 160)),
        ),
      h("p", { class: "small" }, h("span", { class: "muted" }, "Why it asks: "), clean(asked.reason)),
      asked.uncovered && h("p", { class: "small approval-uncovered" }, ...uncoveredOf(asked.uncovered)),
      asked.answer_by &&
        h("p", { class: "small muted" }, `An answer counts until ${clock(asked.answer_by)}.`),
      h(
        "div",
        { class: "approval-what" },
        !asked.form && argumentsOf(asked.tool, asked.arguments, asked.preview),
        asked.preview &&
          !asked.is_diff &&
          !asked.form?.properties &&
          !asked.arguments.includes(JSON.stringify(asked.preview).slice(1, -1)) &&
          h("p", { class: "small muted" }, clean(asked.preview)),
      ),
      asked.rule &&
        h(
          "p",
          { class: "small" },
          h("span", { class: "muted" }, "The rule that covers it: "),
          h("code", null, clean(asked.rule)),
        ),
      this.failed,
      this.form,
    );
    this.#choices();
  }

  connectedCallback() {
    this.onConnection = () => this.#reconnected();
    inbox.addEventListener("connection", this.onConnection);
  }

  disconnectedCallback() {
    inbox.removeEventListener("connection", this.onConnection);
  }

  /** What failed for want of a connection can be tried again: the old complaint would be wrong by now. */
  #reconnected() {
    if (inbox.lost || !this.unsent) return;
    this.unsent = false;
    put(
      this.failed,
      h("p", { class: "notice" }, icon("note"), h("span", null, "Connected again. Your answer was not sent.")),
    );
  }

  focusTitle() {
    this.title0.focus();
  }

  #choices() {
    if (!may("approve")) {
      put(
        this.form,
        h(
          "p",
          { class: "notice" },
          icon("note"),
          h("span", null, `Your role, ${session.me.role}, may not answer this.`),
        ),
      );
      return;
    }
    if (this.asked.form) {
      this.#ask();
      return;
    }
    put(
      this.form,
      h(
        "div",
        { class: "approval-actions" },
        h(
          "button",
          {
            class: "button primary",
            type: "button",
            data: { deed: "approve" },
            on: { click: () => this.#send({ decision: "approve" }) },
          },
          icon("check"),
          "Approve",
          h("kbd", null, "A"),
        ),
        this.#more().map(({ decision, deed, word, title, key }) =>
          h(
            "button",
            {
              class: "button",
              type: "button",
              data: { deed },
              title,
              on: { click: () => this.#send({ decision }) },
            },
            word,
            h("kbd", null, key),
          ),
        ),
        h(
          "button",
          { class: "button", type: "button", data: { deed: "edit" }, on: { click: () => this.edit() } },
          icon("pencil"),
          "Edit",
          h("kbd", null, "E"),
        ),
        h(
          "button",
          {
            class: "button danger",
            type: "button",
            data: { deed: "reject" },
            on: { click: () => this.reject() },
          },
          icon("cross"),
          "Reject",
          h("kbd", null, "R"),
        ),
      ),
    );
  }

  /** The answers that are for more than this call, of those that the question takes. */
  #more() {
    const { answers, rule, tool } = this.asked;
    const every = `Every further call of ${tool} in this run is approved too`;
    return [
      // Where the rule is every call of the tool, one button says so.
      rule !== tool && {
        decision: "approve_run",
        deed: "rest",
        word: "For the rest of the run",
        title: rule ? `In this run, what the rule ${rule} covers is approved too` : every,
        key: "T",
      },
      {
        decision: "approve_tool",
        deed: "tool",
        word: `Every ${oneLine(tool, 24)} of this run`,
        title: every,
        key: "Y",
      },
      may("admin") && {
        decision: "approve_always",
        deed: "always",
        word: "Always allow this",
        title: `Writes the rule ${rule} into your settings, for this folder`,
        key: "W",
      },
    ].filter((one) => one && answers.includes(one.decision));
  }

  /** The keys of the answers. True if it was one of them. */
  key(letter) {
    const name = { a: "approve", t: "rest", y: "tool", w: "always", e: "edit", r: "reject" }[
      letter.toLowerCase()
    ];
    const button = name && this.form.querySelector(`[data-deed=${name}]`);
    button?.click();
    return Boolean(button);
  }

  // -- a question with a form ---------------------------------------------------------

  /** Fields instead of an approval: what a call that runs has to know. */
  #ask() {
    const fields = formFields(this.asked);
    const submit = (event) => {
      event.preventDefault();
      const { given, problem } = fields.read();
      if (problem) this.#complain(problem);
      else this.#send({ decision: "approve", arguments: given });
    };
    put(
      this.form,
      h(
        "form",
        { class: "stack tight", novalidate: true, on: { submit } },
        fields.elements,
        h(
          "div",
          { class: "row end" },
          h(
            "button",
            {
              class: "button danger",
              type: "button",
              data: { deed: "reject" },
              on: { click: () => this.#send({ decision: "reject", reason: "" }) },
            },
            icon("cross"),
            "Decline",
          ),
          h("button", { class: "button primary", type: "submit" }, icon("check"), "Send"),
        ),
      ),
    );
  }

  // -- reject with a reason --------------------------------------------------------

  reject() {
    const id = newId("reason");
    const reason = h("textarea", {
      class: "field",
      id,
      rows: 2,
      placeholder: "The agent reads this and goes on with it",
    });
    const send = () => this.#send({ decision: "reject", reason: reason.value.trim() });
    put(
      this.form,
      h(
        "form",
        {
          class: "stack tight",
          on: {
            submit: (event) => {
              event.preventDefault();
              send();
            },
            keydown: (event) => this.#leaveOn(event),
          },
        },
        h("label", { for: id }, "Why not?"),
        reason,
        this.#formEnd("Reject", "danger"),
      ),
    );
    reason.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      send();
    });
    reason.focus();
  }

  // -- edit --------------------------------------------------------------------------

  edit() {
    const given = parsed(this.asked.arguments) ?? {};
    const fields = Object.entries(given).map(([name, value]) => {
      const id = newId("argument");
      const text = typeof value === "string" ? value : JSON.stringify(value, null, 2);
      const box = h("textarea", {
        class: "field mono",
        id,
        rows: Math.min(14, Math.max(1, text.split("\n").length)),
        spellcheck: "false",
        value: text,
      });
      return { name, value, box, id };
    });
    const submit = (event) => {
      event.preventDefault();
      const changed = {};
      for (const { name, value, box } of fields) {
        try {
          changed[name] = typeof value === "string" ? box.value : JSON.parse(box.value);
          box.removeAttribute("aria-invalid");
        } catch {
          box.setAttribute("aria-invalid", "true");
          this.#complain(`${name} is not valid JSON. It was ${JSON.stringify(value).slice(0, 80)}.`);
          box.focus();
          return;
        }
      }
      this.#send({ decision: "approve", arguments: changed });
    };
    put(
      this.form,
      h(
        "form",
        { class: "stack tight", on: { submit, keydown: (event) => this.#leaveOn(event) } },
        fields.map(({ name, box, id }) => [h("label", { for: id, class: "mono" }, name), box]),
        this.#formEnd("Approve with these", "primary"),
      ),
    );
    fields[0]?.box.focus();
  }

  #formEnd(word, kind) {
    return h(
      "div",
      { class: "row end" },
      h("button", { class: "button quiet", type: "button", on: { click: () => this.#back() } }, "Back"),
      h("button", { class: `button ${kind}`, type: "submit" }, word),
    );
  }

  /** Escape leaves the form, not the dialog. */
  #leaveOn(event) {
    if (event.key !== "Escape") return;
    event.preventDefault();
    event.stopPropagation();
    this.#back();
  }

  #back() {
    this.unsent = false;
    put(this.failed);
    this.#choices();
    this.focusTitle();
  }

  #complain(text) {
    put(this.failed, h("p", { class: "notice error" }, icon("warning"), h("span", null, text)));
  }

  async #send(given) {
    this.unsent = false;
    put(this.failed);
    for (const button of this.form.querySelectorAll("button")) button.disabled = true;
    try {
      const { also } = await inbox.answer(this.asked, given);
      if (also.length) tell(`Approved too: ${count(also.length, "waiting call")} of ${this.asked.tool}`);
      this.done?.({ asked: this.asked, ...given });
    } catch (error) {
      if (error.status === 409 || error.status === 404)
        this.done?.({ asked: this.asked, late: error.message });
      else {
        this.unsent = Boolean(error.offline);
        this.#complain(`${error.message}${error.fix ? ` (${error.fix})` : ""}`);
        for (const button of this.form.querySelectorAll("button")) button.disabled = false;
      }
    }
  }
}

const wants = (asked) => (asked.form ? "has a question for you" : (WANTS[asked.effect] ?? "asks"));

/** What of a command no rule covers. */
function uncoveredOf({ part = "", word = "", rule = "", why = "" }) {
  const code = (text) => h("code", null, clean(text));
  if (!part) return [`No rule for commands counts, since it cannot be taken apart: ${why}`];
  if (!word) return ["No rule covers ", code(part)];
  return ["The rule ", code(rule), " does not cover ", code(word), " in ", code(part)];
}

function pathOf(path) {
  return h(
    "span",
    { "aria-label": `Agents: ${path.join(", then ")}` },
    path.map((name, index) => [
      index > 0 && h("span", { "aria-hidden": "true" }, " › "),
      h("span", { class: index === path.length - 1 ? "last" : "" }, name),
    ]),
  );
}

customElements.define("r-approval", ApprovalCard);
