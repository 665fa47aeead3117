/* One workflow, read from its beginning and then followed: pages of the log first, then the stream.
 *
 * The cursor is the workflow's own place, so a dropped connection, a restarted server or a hidden tab cost
 * nothing: whatever was missed comes first, and nothing counts twice.
 */

import { api } from "./api.js";
import { Feed } from "./feed.js";
import { Workflow } from "./fold.js";

const PAGE = 4000;

export class Watching extends EventTarget {
  constructor(rootId) {
    super();
    this.flow = new Workflow(rootId);
    this.loaded = false;
    this.deleted = false;
    this.aborter = new AbortController();
    this.feed = new Feed(
      () => api.streamAddress(rootId, this.flow.pos),
      (event) => this.#take(event),
    );
    this.feed.addEventListener("state", () => {
      if (this.feed.state !== "live") this.flow.forgetStreamed();
      this.dispatchEvent(new Event("connection"));
    });
  }

  get lost() {
    return this.feed.state === "lost";
  }

  /** Read what there is, then follow. Raises what the server said if there is no such run. */
  async open() {
    let next = this.#page(0);
    while (next) {
      const page = await next;
      // The next page is on its way while this one is taken in.
      next = page.more ? this.#page(page.next) : null;
      for (const event of page.events) this.flow.apply(event);
      if (page.more) this.dispatchEvent(new Event("progress"));
    }
    this.loaded = true;
    this.dispatchEvent(new Event("loaded"));
    if (!this.aborter.signal.aborted) this.feed.open();
  }

  #page(after) {
    return api.events(this.flow.rootId, { after, limit: PAGE }, this.aborter.signal);
  }

  #take(event) {
    if (event.type === "deleted") {
      this.deleted = true;
      this.close();
      this.dispatchEvent(new Event("connection"));
      return;
    }
    this.flow.apply(event);
  }

  close() {
    this.aborter.abort();
    this.feed.close();
  }
}
