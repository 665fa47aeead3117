/* One run: the conversation on one side, what happens behind it on the other. */

import { api } from "../api.js";
import { Composer } from "../composer.js";
import { inbox } from "../inbox.js";
import { h, isTyping, paced, put, say, stylesheet } from "../dom.js";
import { icon } from "../icons.js";
import { go, runPath } from "../router.js";
import { may } from "../session.js";
import { act, can } from "../shortcuts.js";
import { complain, tell } from "../toast.js";
import { trouble, troubleLine } from "../trouble.js";
import { Watching } from "../watching.js";
import { oneLine } from "../words.js";
import { Chat } from "./chat.js";
import { RunHead } from "./run-head.js";

/** @type {[string, string, string, (() => Promise<unknown>)?, string?][]} */
const TABS = [
  ["chat", "Chat", "ask"],
  ["steps", "Steps", "steps", () => import("./steps.js"), "r-steps"],
  ["timeline", "Timeline", "timeline", () => import("./timeline.js"), "r-timeline"],
  ["sources", "Sources", "sources", () => import("./sources.js"), "r-sources"],
  ["changes", "Changes", "changes", () => import("./changes.js"), "r-changes"],
  ["log", "Log", "log", () => import("./log.js"), "r-log"],
];
const GO_ON = "Go on with this conversation";
const STEER = "Tell it something while it works";
const AGAIN = "Ask it again: it knows what it did";
const WIDE = matchMedia("(min-width: 1120px)");

export class RunView extends HTMLElement {
  connectedCallback() {
    this.undo = [];
    this.draw = paced(() => this.#draw());
    this.onWide = () => this.#layout();
    WIDE.addEventListener("change", this.onWide);
    this.addEventListener("show", ({ detail }) => this.#showStep(detail));
    this.addEventListener("tab", ({ detail }) => this.#tab(detail, true));
    this.addEventListener("fork", ({ detail }) => this.#fork(detail));
    this.addEventListener("speak", ({ detail }) => this.#speakTo(detail, true));
  }

  disconnectedCallback() {
    WIDE.removeEventListener("change", this.onWide);
    this.#leave();
  }

  #leave() {
    this.draw.cancel();
    this.watching?.close();
    clearInterval(this.tick);
    this.undo.forEach((undo) => undo());
    this.undo = [];
    this.panels = new Map();
    Object.assign(this, { watching: null, head: null, body: null, notices: null, progress: null, tab: null, placed: null, to: null });
  }

  async route({ params }) {
    this.wantedTab = params.tab ?? null;
    if (this.id === params.id) {
      if (this.body) this.#tab(params.tab ?? this.tab);
      return;
    }
    this.#leave();
    this.id = params.id;
    put(
      this,
      h(
        "div",
        { class: "skeleton", role: "status", "aria-label": "Loading" },
        [1, 2, 3, 4, 5].map(() => h("i")),
      ),
    );
    try {
      const [detail] = await Promise.all([api.run(params.id), stylesheet("run"), stylesheet("panels")]);
      if (this.id !== params.id) return;
      await this.#open(detail);
    } catch (error) {
      if (error.name !== "AbortError") this.#failed(error);
    }
  }

  #failed(error) {
    put(
      this,
      error.status === 404
        ? h(
            "div",
            { class: "empty", role: "alert" },
            icon("warning"),
            h("h1", null, "There is no such run"),
            h("p", null, "It may have been deleted."),
            h("a", { class: "button", href: "#/runs" }, "All runs"),
          )
        : trouble("This run cannot be shown", error),
    );
  }

  async #open(detail) {
    const { root_id: rootId } = detail.run;
    this.detail = detail;
    this.watching?.close(); // whoever comes back at once may be here twice
    const watching = (this.watching = new Watching(rootId));
    this.flow = watching.flow;
    watching.addEventListener("connection", () => this.#connection());
    this.flow.addEventListener("change", () => this.draw());
    watching.addEventListener("progress", () => this.watching === watching && this.#reading());
    await Promise.all([watching.open(detail.cursor), WIDE.matches && import("./steps.js")]);
    if (this.watching !== watching) return;
    if (this.flow.root) this.#begin();
    await this.#readOn(watching);
  }

  /** Read the log to its end. If the connection fails on the way, what is shown already stays, and what was written. */
  async #readOn(watching) {
    try {
      await watching.read();
    } catch (error) {
      if (this.watching !== watching || error.name === "AbortError") return;
      const again = () => {
        put(this.notices);
        this.#readOn(watching);
      };
      if (this.head && error.offline) put(this.notices, troubleLine(error, again));
      else this.#failed(error);
      return;
    }
    if (this.watching !== watching) return;
    if (!this.head) this.#begin();
    const asked = this.flow.runs.get(this.id);
    if (this.flow.rootId === this.id || !asked) return;
    this.#speakTo(asked);
    this.#showStep(asked);
  }

  #begin() {
    this.#build();
    this.#reading();
    this.tick = setInterval(() => !this.flow.over && !document.hidden && this.draw(), 500);
    this.#layout();
    this.#draw();
    this.#keys();
    this.asked(inbox.waiting);
  }

  /** How far the log is read, as long as it is not read to its end. */
  #reading() {
    const { loaded, progress = 0, expected } = this.watching;
    if (loaded) {
      this.progress?.remove();
      this.progress = null;
      return;
    }
    if (!this.progress) {
      const bar = h("progress", { max: expected, "aria-label": "Reading the log" });
      this.progress = h("div", { class: "reading small muted", role: "status" }, bar, h("span", { class: "num" }));
    }
    const where = this.head?.element ?? this.firstChild;
    if (this.progress.parentNode !== where) where.append(this.progress);
    const [bar, words] = this.progress.children;
    bar.value = progress;
    const of = `${progress.toLocaleString("en")} of ${expected.toLocaleString("en")} events`;
    say(words, this.head ? `Reading the details: ${of}` : `Reading: ${of}`);
  }

  // -- the frame -------------------------------------------------------------------

  #build() {
    this.head = new RunHead({
      cancel: () => this.#cancel(),
      resume: () => this.#resume(),
      fork: () => this.#fork(null),
    });
    this.notices = h("div", { class: "run-notices" });
    this.tabButtons = TABS.map(([name, label, symbol]) =>
      h(
        "button",
        {
          role: "tab",
          id: `tab-${name}`,
          "aria-controls": "panel",
          data: { tab: name },
          on: { click: () => this.#tab(name, true), keydown: (event) => this.#tabKey(event) },
        },
        icon(symbol),
        h("span", null, label),
      ),
    );
    this.tabList = h(
      "div",
      { class: "tabs", role: "tablist", "aria-label": "About this run" },
      this.tabButtons,
    );
    this.chat = new Chat();
    this.chat.watch(this.flow);
    this.composer = new Composer({ label: "Message", placeholder: "" });
    this.composer.addEventListener("send", ({ detail }) => this.#say(detail.prompt));
    this.addressee = h("div", { class: "addressee", hidden: true });
    this.stopButton = h(
      "button",
      {
        class: "button danger small",
        type: "button",
        title: "Cancel this run (Shift C)",
        on: { click: () => this.#cancel() },
      },
      icon("stop"),
      "Stop",
    );
    this.chatPane = h(
      "div",
      { class: "chat-pane" },
      this.chat,
      may("ask") && h("div", { class: "compose-line" }, this.addressee, this.composer),
    );
    this.panel = h("section", { class: "panel", id: "panel", role: "tabpanel", tabindex: "-1" });
    this.body = h("div", { class: "run-body" });
    put(this, this.head.element, this.notices, this.body);
  }

  /** Side by side where there is room, else one after the other. */
  #layout() {
    if (!this.body) return;
    const wide = WIDE.matches;
    this.tabButtons[0].hidden = wide;
    put(
      this.body,
      wide
        ? [this.chatPane, h("div", { class: "side-pane" }, this.tabList, this.panel)]
        : [this.tabList, this.panel],
    );
    this.body.classList.toggle("wide", wide);
    this.#tab(this.wantedTab ?? this.tab ?? (wide ? "steps" : "chat"));
  }

  async #tab(name, byHand = false) {
    const wide = WIDE.matches; // where the conversation has a place of its own
    const found = TABS.find(([one]) => one === name && !(wide && one === "chat")) ?? TABS[wide ? 1 : 0];
    const [tab, label, , load, tag] = found;
    this.tab = tab;
    for (const button of this.tabButtons) {
      const chosen = button.dataset.tab === tab;
      button.setAttribute("aria-selected", String(chosen));
      if (chosen) button.hidden = false;
      button.tabIndex = chosen ? 0 : -1;
    }
    this.panel.setAttribute("aria-labelledby", `tab-${tab}`);
    if (byHand) go(runPath(this.id, tab), { replace: true });
    if (tab === "chat") {
      put(this.panel, this.chatPane);
      return;
    }
    await load();
    if (this.tab !== tab) return;
    let view = this.panels.get(tab);
    if (!view) {
      view = document.createElement(tag);
      this.panels.set(tab, view);
    }
    view.flow = this.flow;
    if (this.panel.firstChild !== view) put(this.panel, view); // put twice, it would forget what is chosen in it
    inbox.name(`${oneLine(this.flow.root?.prompt ?? label, 40)}`);
  }

  #tabKey(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    this.#tabBy(step);
    this.tabButtons.find((button) => button.tabIndex === 0).focus();
  }

  #tabBy(step) {
    const shown = this.tabButtons.filter((button) => !button.hidden);
    const now = shown.findIndex((button) => button.dataset.tab === this.tab);
    this.#tab(shown[(now + step + shown.length) % shown.length].dataset.tab, true);
  }

  #keys() {
    this.undo = [
      can("tab-after", () => this.#tabBy(1)),
      can("tab-before", () => this.#tabBy(-1)),
      can("search", () =>
        this.chatPane.isConnected
          ? this.composer.focusBox()
          : [...this.querySelectorAll("input")].find((box) => box.type === "search")?.focus(),
      ),
      can("cancel", () => !this.flow.over && may("ask") && this.#cancel()),
    ];
  }

  async #showStep(target) {
    if (!target) return;
    await this.#tab("steps", true);
    this.panels.get("steps")?.show(target);
  }

  // -- drawing ---------------------------------------------------------------------

  #draw() {
    const { flow } = this;
    if (!flow?.root || !this.head) return;
    this.head.draw(flow);
    const sources = flow.sources.length;
    const button = (name) => this.tabButtons.find((one) => one.dataset.tab === name);
    say(button("sources").children[1], sources ? `Sources ${sources}` : "Sources");
    button("changes").hidden = this.tab !== "changes" && !flow.touchesFiles;
    const { over } = flow;
    const place = this.to?.over ? AGAIN : over ? GO_ON : STEER;
    if (this.placed === `${place}${over}`) return;
    this.placed = `${place}${over}`;
    this.composer.box.placeholder = place;
    if (over) this.stopButton.remove();
    else this.composer.tools.insertBefore(this.stopButton, this.composer.sendButton);
  }

  async #connection() {
    if (!this.notices) return;
    const { watching } = this;
    if (watching.deleted)
      put(
        this.notices,
        h(
          "div",
          { class: "bar error", role: "status" },
          icon("warning"),
          "This run was deleted. What is shown is all that is left of it.",
        ),
      );
    else if (watching.lost)
      put(
        this.notices,
        h(
          "div",
          { class: "bar error", role: "status", id: "lost" },
          icon("warning"),
          h(
            "span",
            { class: "grow" },
            h("strong", null, "Not live."),
            " The connection was lost; it goes on from here as soon as the server answers.",
          ),
        ),
      );
    else if (watching.feed.state === "live") {
      put(this.notices);
      if (!this.flow.over) await this.#whoWorks();
    }
  }

  /** A run that nobody works on says so, and can be taken up. */
  async #whoWorks() {
    try {
      const { owner, run } = await api.run(this.flow.rootId);
      if (owner.here || run.completed_at !== null || this.flow.over) return;
      if (run.outcome !== this.flow.outcome) await this.watching.look();
      put(
        this.notices,
        h(
          "div",
          { class: "bar", role: "status" },
          icon("note"),
          h(
            "span",
            { class: "grow" },
            `This server does not work on this run; process ${owner.pid} on ${owner.host} did last.`,
          ),
          may("ask") &&
            h("button", { class: "button small", on: { click: () => this.#resume() } }, "Resume it here"),
        ),
      );
    } catch {
      // The next reconnect asks again.
    }
  }

  /** New questions: shown at once if they are this run's and nobody is writing. */
  asked(fresh) {
    if (!fresh.some((one) => one.root_id === this.flow?.rootId) || !may("approve")) return;
    const box = document.activeElement;
    const writing = isTyping(box) && "value" in box && box.value;
    if (!writing && !document.querySelector("dialog[open]")) act("review");
  }

  // -- deeds -------------------------------------------------------------------------

  async #try(work, done) {
    try {
      const answer = await work();
      if (done) tell(done);
      return answer;
    } catch (error) {
      complain(error);
      return null;
    }
  }

  /** Whom the next message is for: a child, or with null the run itself. */
  #speakTo(child, byHand = false) {
    this.to = child;
    this.addressee.hidden = child === null;
    if (child)
      put(
        this.addressee,
        h("span", { class: "cut" }, "To ", h("strong", null, child.agent), `, ${oneLine(child.label || child.prompt, 80)}`),
        h(
          "button",
          { class: "button quiet small only", type: "button", "aria-label": "Speak to the run instead", title: "Speak to the run instead", on: { click: () => this.#speakTo(null, true) } },
          icon("close"),
        ),
      );
    this.#draw();
    if (!byHand) return;
    if (!this.chatPane.isConnected) this.#tab("chat", true);
    this.composer.focusBox();
  }

  async #say(text) {
    this.composer.busy = true;
    const told = await this.#try(() => api.message(this.to?.id ?? this.flow.rootId, text));
    if (told) this.composer.clear();
    this.composer.busy = false;
    this.composer.focusBox();
  }

  #cancel() {
    return this.#try(() => api.cancel(this.flow.rootId), "Cancelling. What was done so far is kept.");
  }

  #resume() {
    put(this.notices);
    return this.#try(() => api.resume(this.flow.rootId), "It goes on where it stopped.");
  }

  async #fork(at) {
    const { showFork } = await import("./fork.js");
    showFork(this.flow, at);
  }
}

customElements.define("r-run", RunView);
