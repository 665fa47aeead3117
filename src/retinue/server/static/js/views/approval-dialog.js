/* The approvals that wait, one after the other, in a dialog over whatever is on the screen. */

import { allowNotifications, declineNotifications, inbox, mayOfferNotifications } from "../inbox.js";
import { h, isTyping, put, stylesheet } from "../dom.js";
import { icon } from "../icons.js";
import { tell } from "../toast.js";
import { ApprovalCard } from "./approval-card.js";

// A key that was on its way when the dialog came up must not approve anything.
const GRACE = 450;

let dialog = null;

class Queue {
  constructor(rootId) {
    this.rootId = rootId;
    this.shown = null;
    this.head = h("div", { class: "queue-head" });
    this.body = h("div", { class: "queue-body" });
    this.foot = h("div", { class: "queue-foot small muted" });
    this.dialog = h(
      "dialog",
      {
        class: "approval-dialog",
        "aria-label": "Approval",
        on: { keydown: (event) => this.#key(event), close: () => this.#closed() },
      },
      this.head,
      this.body,
      this.foot,
    );
    this.onChange = () => this.#draw();
    inbox.addEventListener("change", this.onChange);
    document.body.append(this.dialog);
    this.before = /** @type {HTMLElement} */ (document.activeElement);
    this.dialog.showModal();
    this.#draw();
  }

  /** What waits: the run on the screen first, then in the order of asking. */
  get waiting() {
    const all = inbox.waiting;
    return [
      ...all.filter((one) => one.root_id === this.rootId),
      ...all.filter((one) => one.root_id !== this.rootId),
    ];
  }

  #draw() {
    const { waiting } = this;
    if (!waiting.length) {
      this.dialog.close();
      return;
    }
    let place = waiting.findIndex((one) => one.approval_id === this.shown);
    if (place < 0) {
      place = 0;
      this.#show(waiting[0]);
    }
    put(
      this.head,
      h(
        "span",
        { class: "grow small muted" },
        waiting.length > 1 ? `${place + 1} of ${waiting.length} that wait` : "Waits for you",
      ),
      waiting.length > 1 &&
        h(
          "button",
          { class: "button quiet small only", "aria-label": "Previous", on: { click: () => this.#step(-1) } },
          icon("chevron"),
        ),
      waiting.length > 1 &&
        h(
          "button",
          { class: "button quiet small only", "aria-label": "Next", on: { click: () => this.#step(1) } },
          icon("chevron"),
        ),
      h(
        "button",
        {
          class: "button quiet small only",
          "aria-label": "Decide later",
          title: "Decide later (Esc)",
          on: { click: () => this.dialog.close() },
        },
        icon("close"),
      ),
    );
    this.head.children[1]?.classList.add(waiting.length > 1 ? "mirrored" : "x");
    this.#offer();
  }

  #show(asked) {
    this.shown = asked.approval_id;
    this.since = performance.now();
    this.card = new ApprovalCard(asked, { done: (given) => this.#answered(given) });
    put(this.body, this.card);
    this.card.focusTitle();
  }

  #step(by) {
    const { waiting } = this;
    const place = waiting.findIndex((one) => one.approval_id === this.shown);
    this.shown = null;
    this.#show(waiting[(place + by + waiting.length) % waiting.length]);
    this.#draw();
  }

  #answered({ asked, late }) {
    if (late) tell(late);
    if (this.shown === asked.approval_id) this.shown = null;
    this.#draw();
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    if (event.key.length !== 1 || performance.now() - this.since < GRACE) return;
    if (this.card?.key(event.key)) event.preventDefault();
  }

  #offer() {
    if (!mayOfferNotifications()) {
      put(this.foot);
      return;
    }
    put(
      this.foot,
      "Be told by your browser when something waits?",
      h(
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
        "Yes, notify me",
      ),
      h(
        "button",
        {
          class: "button quiet small",
          on: {
            click: () => {
              declineNotifications();
              this.#offer();
            },
          },
        },
        "No",
      ),
    );
  }

  #closed() {
    inbox.removeEventListener("change", this.onChange);
    this.dialog.remove();
    dialog = null;
    if (this.before?.isConnected) this.before.focus();
  }
}

export async function showApprovals(rootId) {
  await stylesheet("approvals");
  if (!dialog && inbox.waiting.length) dialog = new Queue(rootId);
}
