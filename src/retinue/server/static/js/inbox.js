/* What goes on and what waits, over all runs: the numbers in the title, the bar, the list of approvals.
 *
 * Of all tabs one holds the stream and tells the others; when it is closed, the next one takes over.
 */

import { api } from "./api.js";
import { Feed } from "./feed.js";
import { brief } from "./words.js";

class Inbox extends EventTarget {
  constructor() {
    super();
    this.approvals = new Map();
    this.running = new Map();
    /** Answered from here, and not yet gone from the news. */
    this.answered = new Set();
    this.known = false;
    this.lost = false;
    this.title = "";
    this.feed = null;
    this.channel = "BroadcastChannel" in globalThis ? new BroadcastChannel("retinue.news") : null;
  }

  start() {
    if (this.started) {
      this.feed?.hurry();
      return;
    }
    this.started = true;
    this.channel?.addEventListener("message", ({ data }) => this.#hear(data));
    if (this.channel && navigator.locks) {
      this.channel.postMessage({ type: "hello" });
      navigator.locks.request("retinue.news", () => {
        this.#lead();
        return new Promise(() => {});
      });
    } else {
      this.#lead();
    }
  }

  /** The questions that wait, oldest first. */
  get waiting() {
    return [...this.approvals.values()].filter((asked) => !this.answered.has(asked.approval_id));
  }

  #lead() {
    this.feed = new Feed(
      () => api.newsAddress(),
      (news) => this.#take(news, true),
      { whenHidden: "stay" },
    );
    this.feed.addEventListener("refused", () => api.me().catch(() => {})); // a token that ended is asked for anew
    this.feed.addEventListener("state", () => this.#connection(this.feed.state === "lost"));
    this.feed.open();
  }

  #hear(message) {
    if (message.type === "hello") {
      if (this.feed && this.known) this.channel.postMessage(this.#snapshot());
    } else if (message.type === "connection") {
      this.#setLost(message.lost);
    } else if (message.type === "deleted") {
      this.#forget(message.runId);
    } else if (!this.feed) {
      this.#take(message, false);
    }
  }

  #snapshot() {
    return { type: "snapshot", running: [...this.running.values()], waiting: [...this.approvals.values()] };
  }

  #connection(lost) {
    this.channel?.postMessage({ type: "connection", lost });
    this.#setLost(lost);
  }

  #setLost(lost) {
    if (lost === this.lost) return;
    this.lost = lost;
    this.dispatchEvent(new Event("connection"));
  }

  #take(news, first) {
    if (first) this.channel?.postMessage(news);
    const before = new Set(this.approvals.keys());
    if (news.type === "snapshot") {
      this.running = new Map(news.running.map((run) => [run.run_id, run]));
      this.approvals = new Map(news.waiting.map((asked) => [asked.approval_id, asked]));
      this.known = true;
      // What ended before the news began is in no news: whoever keeps a list reads it anew.
      this.dispatchEvent(new Event("snapshot"));
    } else if (news.type === "run") {
      if (news.change === "ended" || news.run.completed_at !== null) this.running.delete(news.run.run_id);
      else this.running.set(news.run.run_id, news.run);
      this.dispatchEvent(new CustomEvent("run", { detail: news.run }));
    } else if (news.type === "approval") {
      if (news.change === "asked") this.approvals.set(news.approval.approval_id, news.approval);
      else this.approvals.delete(news.approval_id);
    }
    for (const id of this.answered) if (!this.approvals.has(id)) this.answered.delete(id);
    const fresh = [...this.approvals.values()].filter((asked) => !before.has(asked.approval_id));
    this.#changed(fresh);
    if (first) fresh.forEach(notify);
  }

  #changed(fresh = []) {
    this.dispatchEvent(new CustomEvent("change", { detail: { fresh } }));
    this.#writeTitle();
  }

  /** Delete a whole workflow, and tell every view and every tab. */
  async delete(runId) {
    await api.remove(runId);
    this.channel?.postMessage({ type: "deleted", runId });
    this.#forget(runId);
  }

  #forget(runId) {
    this.running.delete(runId);
    this.dispatchEvent(new CustomEvent("deleted", { detail: runId }));
  }

  name(title) {
    this.title = title;
    this.#writeTitle();
  }

  #writeTitle() {
    const waiting = this.waiting.length;
    document.title = `${waiting ? `(${waiting}) ` : ""}${this.title ? `${this.title} · ` : ""}Retinue`;
  }

  /** Answer a question. Raises what the server said if it refuses, or if somebody else was faster. */
  async answer(asked, given) {
    try {
      const recorded = await api.answer(asked.approval_id, given);
      for (const id of [asked.approval_id, ...recorded.also]) this.answered.add(id);
      return recorded;
    } catch (error) {
      if (error.status === 409 || error.status === 404) this.approvals.delete(asked.approval_id);
      throw error;
    } finally {
      this.#changed();
    }
  }
}

export const inbox = new Inbox();

// -- notifications -----------------------------------------------------------

export const canNotify = () => "Notification" in globalThis && isSecureContext;

/** Whether to offer notifications at all: asked once, politely, and never again after a no. */
export const mayOfferNotifications = () =>
  canNotify() && Notification.permission === "default" && localStorage.getItem("retinue.notify") !== "no";

export async function allowNotifications() {
  const answer = await Notification.requestPermission();
  localStorage.setItem("retinue.notify", answer === "granted" ? "yes" : "no");
}

export const declineNotifications = () => localStorage.setItem("retinue.notify", "no");

function notify(asked) {
  if (!document.hidden || !canNotify() || Notification.permission !== "granted") return;
  const shown = new Notification(`${asked.path.at(-1)} waits for you`, {
    body: `${asked.tool} ${brief(asked.arguments, 140)}`,
    tag: asked.approval_id,
  });
  shown.addEventListener("click", () => {
    focus();
    location.hash = `/run/${asked.root_id}`;
    shown.close();
  });
}
