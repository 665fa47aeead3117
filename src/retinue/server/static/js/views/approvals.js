/* Approvals: every question that waits, over all runs. */

import { allowNotifications, canNotify, inbox } from "../inbox.js";
import { h, keyed, put, stylesheet } from "../dom.js";
import { icon } from "../icons.js";
import { tell } from "../toast.js";
import { ApprovalCard } from "./approval-card.js";

export class Approvals extends HTMLElement {
  connectedCallback() {
    stylesheet("approvals");
    this.className = "page narrow-page";
    this.list = h("div", { class: "stack approvals" });
    this.none = h(
      "div",
      { class: "empty card", hidden: true },
      icon("approvals"),
      h("h2", null, "Nothing waits for you"),
      h("p", null, "When an agent wants to change a file, run a command or spend money, it asks here first."),
    );
    this.notify = h("div");
    put(
      this,
      h("header", null, h("h1", null, "Approvals"), this.notify),
      h(
        "p",
        { class: "muted" },
        "The agents go on as soon as you answer; while they wait, their clocks stand still.",
      ),
      this.none,
      this.list,
    );
    this.onChange = () => this.#draw();
    inbox.addEventListener("change", this.onChange);
    this.#draw();
    this.#offer();
  }

  disconnectedCallback() {
    inbox.removeEventListener("change", this.onChange);
  }

  #draw() {
    const waiting = inbox.waiting;
    this.none.hidden = waiting.length > 0 || !inbox.known;
    keyed(
      this.list,
      waiting,
      (one) => one.approval_id,
      (one) =>
        h(
          "section",
          { class: "card" },
          h("div", { class: "inside" }, new ApprovalCard(one, { done: ({ late }) => late && tell(late) })),
        ),
    );
  }

  #offer() {
    if (!canNotify() || Notification.permission === "denied") return;
    const on = Notification.permission === "granted";
    put(
      this.notify,
      on
        ? h("span", { class: "small muted" }, "Your browser tells you when something waits.")
        : h(
            "button",
            {
              class: "button small",
              on: {
                click: async () => {
                  await allowNotifications();
                  this.#offer();
                },
              },
            },
            "Notify me when something waits",
          ),
    );
  }
}

customElements.define("r-approvals", Approvals);
