/* The conversation: what was asked, what is being done about it, and the answer. */

import { h, keyed, put, say } from "../dom.js";
import { EFFECT_ICONS, icon, statusMark } from "../icons.js";
import { claimsBadge, markClaims } from "./claim-marks.js";
import { Arriving, copyButton, prose } from "../prose.js";
import { brief, clean, duration, effort, money, oneLine, tokens, waited } from "../words.js";
import { doing, question, summary } from "./chat-words.js";
import { evidence, knowledgeBlock, problemsNotice, sourceName, stepOf } from "./citing.js";
import { FlowView } from "./flow-view.js";

const LINES = 6;
const CHIPS = 6;
const ENDINGS = { completed: "answered", error: "failed", cancelled: "been cancelled" };

export class Chat extends FlowView {
  connectedCallback() {
    this.unfolded = this.unfolded ?? new Set();
    this.turns = h("div", { class: "turns" });
    this.thread = h(
      "div",
      {
        class: "thread",
        tabindex: "0",
        role: "region",
        "aria-label": "Conversation",
        on: { scroll: () => this.#scrolled() },
      },
      this.turns,
    );
    this.down = h(
      "button",
      { class: "button small to-end", type: "button", hidden: true, on: { click: () => this.#toEnd() } },
      icon("down"),
      "Newest",
    );
    // An answer is read out once it is whole: word by word nobody could follow it.
    this.spoken = h("div", { class: "unseen", role: "status" });
    put(this, this.thread, this.down, this.spoken);
    this.atEnd = true;
    this.tick = setInterval(() => this.flow && !this.flow.over && !document.hidden && this.draw(), 500);
    this.sizes = new ResizeObserver(() => this.atEnd && this.#toEnd());
    this.sizes.observe(this.turns);
    this.begin(() => this.#draw());
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    clearInterval(this.tick);
    this.sizes.disconnect();
  }

  #scrolled() {
    const { scrollHeight, scrollTop, clientHeight } = this.thread;
    this.atEnd = scrollHeight - scrollTop - clientHeight < 40;
    this.down.hidden = this.atEnd;
  }

  #toEnd() {
    this.thread.scrollTop = this.thread.scrollHeight;
    this.atEnd = true;
    this.down.hidden = true;
  }

  #draw() {
    if (!this.flow?.root) return;
    this.now = Date.now() / 1000;
    const { over } = this.flow;
    if (over && this.wasOver === false)
      say(this.spoken, `${this.flow.root.agent} has ${ENDINGS[this.flow.root.status]}.`);
    this.wasOver = over;
    keyed(
      this.turns,
      this.flow.turns,
      (turn) => turn.pos,
      (turn) => this.#make(turn),
      (element, turn) => this.#update(element, turn),
    );
  }

  #make(turn) {
    const title = turn.ended ? `${turn.ended} ended in the background` : `Question: ${oneLine(turn.question, 80)}`;
    const element = h("article", { class: "turn", "aria-label": title });
    element.parts = {
      body: h("div", { class: "turn-body" }),
      live: h("div", { class: "live", hidden: true }),
      answer: h("div", { class: "answer", hidden: true }),
    };
    element.arriving = new Arriving(element.parts.live);
    put(element, question(turn), element.parts.body, element.parts.live, element.parts.answer);
    return element;
  }

  #update(element, turn) {
    const { body, live, answer } = element.parts;
    const last = turn === this.flow.turns.at(-1);
    const { root } = this.flow;
    keyed(
      body,
      this.#blocks(turn),
      (block) => block.key,
      (block) => this.#makeBlock(block),
      (child, block) => this.#updateBlock(child, block),
    );
    live.hidden = !(last && !turn.report && root.text);
    if (!live.hidden) element.arriving.show(root.text);
    answer.hidden = !turn.report;
    if (turn.report && element.report !== turn.report) {
      element.report = turn.report;
      put(answer, this.#answer(turn));
    }
  }

  /** What happened in a turn, in order: words, work, and what went wrong. */
  #blocks(turn) {
    const blocks = [];
    const last = turn === this.flow.turns.at(-1);
    if (turn === this.flow.turns[0] && this.flow.knowledge)
      blocks.push({ kind: "knowledge", key: "knowledge", knowledge: this.flow.knowledge });
    for (const entry of turn.entries) {
      if (entry.kind === "call" || entry.kind === "run") {
        if (blocks.at(-1)?.kind !== "work")
          blocks.push({ kind: "work", key: `work ${entry.key}`, items: [], turn });
        blocks.at(-1).items.push(entry);
      } else if (entry.kind === "say" && entry.text.trim() && !(entry.final && turn.report?.text))
        blocks.push({ kind: "say", key: entry.key, entry });
      else if (entry.kind === "said") blocks.push({ kind: "said", key: entry.key, entry });
      else if (entry.kind === "note" && entry.tone !== "info" && entry.detail !== turn.report?.error)
        blocks.push({ kind: "note", key: entry.key, entry });
    }
    const { root } = this.flow;
    if (last && !turn.report && root.asking && !root.text)
      blocks.push({ kind: "asking", key: "asking", text: root.asking });
    return blocks;
  }

  #makeBlock(block) {
    if (block.kind === "say") return prose(h("div", { class: "said-so" }), block.entry.text);
    if (block.kind === "said") return h("div", { class: "bubble small-bubble" }, clean(block.entry.text));
    if (block.kind === "note")
      return h(
        "div",
        { class: `chat-note ${block.entry.tone}` },
        icon("warning"),
        h("span", null, oneLine(`${block.entry.text}: ${block.entry.detail}`, 300)),
      );
    if (block.kind === "asking")
      return h(
        "div",
        { class: "chat-note asking", role: "status" },
        statusMark("running", { labelled: false }),
        h("span"),
      );
    if (block.kind === "knowledge") return knowledgeBlock(block.knowledge);
    return h(
      "div",
      { class: "work" },
      h(
        "button",
        { class: "work-head", type: "button", on: { click: () => this.#fold(block.key) } },
        h("span", { class: "slot" }),
        h("span", { class: "grow cut" }),
        icon("chevron"),
      ),
      h("ul", { class: "work-lines plain" }),
    );
  }

  #updateBlock(element, block) {
    if (block.kind === "asking") say(element.lastChild, `${block.text}…`);
    if (block.kind === "work") this.#work(element, block);
  }

  #fold(key) {
    if (this.unfolded.has(key)) this.unfolded.delete(key);
    else this.unfolded.add(key);
    this.draw();
  }

  #work(element, { key, items, turn }) {
    const [head, list] = element.children;
    const each = turn.report?.at_work ? items.flatMap((item) => [item, ...(item.children ?? [])]) : items;
    const going = each.some((item) => ["running", "waiting", "pending"].includes(item.outcome));
    const busy = going && (!turn.report || turn.report.at_work > 0);
    const status =
      items.some(
        (item) => item.outcome === "waiting" || (item.children ?? []).some((child) => child.outcome === "waiting"),
      ) && busy
        ? "waiting"
        : busy
          ? "running"
          : ended(items);
    const open = busy ? !this.unfolded.has(key) : this.unfolded.has(key);
    if (head.dataset.status !== status) put(head.children[0], statusMark(status));
    head.dataset.status = status;
    head.setAttribute("aria-expanded", String(open));
    say(head.children[1], summary(items, this.now));
    list.hidden = !open;
    if (!open) return;
    const lines = items.flatMap((item) =>
      item.kind === "call" && item.children.length ? item.children : [item],
    );
    const shown = busy && lines.length > LINES ? lines.slice(-LINES) : lines.slice(0, 40);
    keyed(
      list,
      shown,
      (item) => item.key,
      (item) => this.#line(item),
      (line, item) => this.#updateLine(line, item),
    );
  }

  #line(item) {
    const line = h(
      "li",
      null,
      h(
        "button",
        {
          type: "button",
          class: "work-line",
          on: { click: () => this.dispatchEvent(new CustomEvent("show", { detail: item, bubbles: true })) },
        },
        h("span", { class: "slot" }),
        h("span", { class: "slot symbol", "aria-hidden": "true" }),
        h("strong"),
        h("span", { class: "grow cut muted" }),
        h("span", { class: "num muted" }),
      ),
    );
    put(
      line.firstChild.children[1],
      item.icon || icon(item.kind === "run" ? "delegate" : (EFFECT_ICONS[item.effect] ?? "note")),
    );
    return line;
  }

  #updateLine(line, item) {
    const [mark, , name, about, time] = line.firstChild.children;
    const status = item.outcome;
    if (line.dataset.status !== status) put(mark, statusMark(status));
    line.dataset.status = status;
    say(name, item.agent ?? item.name);
    say(about, item.kind === "run" ? doing(item) : oneLine(item.progress || brief(item.arguments)));
    say(time, item.outcome === "pending" || item.began === null ? "" : duration(item.seconds(this.now)));
  }

  // -- the answer ----------------------------------------------------------------

  #answer(turn) {
    const { report } = turn;
    const failed = report.status === "error" || report.status === "cancelled";
    return [
      failed &&
        h(
          "div",
          { class: `notice ${report.status === "error" ? "error" : ""}` },
          statusMark(report.status),
          h(
            "div",
            null,
            h("strong", null, report.status === "error" ? "This run failed. " : "This run was cancelled. "),
            report.error ?? "",
            report.text && h("div", { class: "muted" }, "What was done until then:"),
          ),
        ),
      !failed &&
        report.incomplete &&
        h(
          "div",
          { class: "notice warning" },
          icon("warning"),
          h("div", null, h("strong", null, "Not finished: "), report.incomplete),
        ),
      report.text && prose(h("div", { class: "answer-text" }), report.text, (shown) => markClaims(shown, report)),
      claimsBadge(report, this.flow),
      report.problems?.length > 0 && problemsNotice(report.problems),
      report.sources?.length > 0 && this.#sources(report.sources),
      this.#foot(turn),
    ];
  }

  #sources(sources) {
    const chips = sources.slice(0, CHIPS).map((source) => {
      const mark = h(
        "span",
        { class: `source-mark ${source.verified ? "completed" : "waiting"}` },
        icon(source.verified ? "check" : "warning"),
        h("span", { class: "unseen" }, source.verified ? "verified: " : "not verified: "),
      );
      const name = h("span", { class: "cut" }, sourceName(source));
      const how = evidence(source, source.verified ? stepOf(this.flow, source) : null);
      return h(
        "li",
        null,
        source.url && /^https?:/.test(source.url)
          ? h(
              "a",
              {
                class: "source-chip",
                href: source.url,
                target: "_blank",
                rel: "noopener noreferrer nofollow",
                title: `${source.url}\n${how}`,
              },
              mark,
              name,
            )
          : h("span", { class: "source-chip", title: how }, mark, name),
      );
    });
    return h(
      "div",
      { class: "answer-sources" },
      h(
        "ul",
        { class: "plain row wrap", "aria-label": "Sources" },
        chips,
        h(
          "li",
          null,
          h(
            "button",
            {
              type: "button",
              class: "button quiet small",
              on: {
                click: () => this.dispatchEvent(new CustomEvent("tab", { detail: "sources", bubbles: true })),
              },
            },
            sources.length > CHIPS ? `All ${sources.length} sources` : "About the sources",
          ),
        ),
      ),
    );
  }

  #foot(turn) {
    const { report } = turn;
    const { root } = this.flow;
    const facts = [
      duration(report.duration_ms / 1000),
      waited(root.paused(0, turn.over)),
      `${tokens(report.usage.input_tokens + report.usage.output_tokens)} tokens`,
      report.usage.cost === 0 ? "" : money(report.usage.cost),
      report.model,
      effort(report.effort),
    ];
    return h(
      "div",
      { class: "answer-foot small muted" },
      h("span", { class: "cut" }, facts.filter(Boolean).join(" · ")),
      h("span", { class: "grow" }),
      report.text && copyButton(() => report.text, "Copy"),
      h(
        "button",
        {
          type: "button",
          class: "button quiet small",
          title: "A new run that begins with everything up to here",
          on: {
            click: () => this.dispatchEvent(new CustomEvent("fork", { detail: turn.endPos, bubbles: true })),
          },
        },
        icon("fork"),
        "Fork",
      ),
    );
  }
}

/** How work ended that was done side by side: what was rejected or is not finished counts before what went well. */
function ended(items) {
  const outcomes = items.flatMap((item) => [item, ...(item.children ?? [])]).map((one) => one.outcome);
  for (const outcome of ["rejected", "refused", "incomplete"]) if (outcomes.includes(outcome)) return outcome;
  if (items.every((item) => (item.kind === "call" ? item.isError : item.outcome === "error"))) return "error";
  const children = items.flatMap((item) => (item.kind === "run" ? [item] : (item.children ?? [])));
  return children.some((child) => child.outcome === "error") ? "incomplete" : "completed";
}

customElements.define("r-chat", Chat);
