/* One workflow, read from its beginning and then followed: pages of the log first, then the stream.
 *
 * A large one is shown in outline while its log is read, so that nobody looks at an empty page.
 *
 * The cursor is the workflow's own place, so a dropped connection, a restarted server or a hidden tab cost
 * nothing: whatever was missed comes first, and nothing counts twice.
 */

import { api } from "./api.js";
import { Feed } from "./feed.js";
import { Workflow } from "./fold.js";
import { outline } from "./outline.js";

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

  /** As much as it takes to show something, of so many events. Raises what the server said if there is no such run. */
  async open(expected) {
    this.expected = expected;
    if (expected <= PAGE) return this.read();
    const found = await outline(this.flow.rootId, expected, this.aborter.signal);
    if (found) this.flow.become(found);
    return undefined;
  }

  /** Read what there is, then follow. Called again after a failure, it goes on where it was. */
  async read() {
    if (this.loaded) return;
    const whole = (this.whole ??= new Workflow(this.flow.rootId));
    let next = this.#page(whole.pos);
    while (next) {
      const page = await next;
      // The next page is on its way while this one is taken in.
      next = page.more ? this.#page(page.next) : null;
      for (const event of page.events) whole.apply(event);
      if (page.standing) whole.stand(page.standing);
      this.progress = whole.pos;
      if (page.more) this.dispatchEvent(new Event("progress"));
    }
    this.flow.become(whole);
    this.whole = null;
    this.loaded = true;
    this.dispatchEvent(new Event("progress"));
    if (!this.aborter.signal.aborted) this.feed.open();
  }

  #page(after) {
    return api.events(this.flow.rootId, { after, limit: PAGE, standing: true }, this.aborter.signal);
  }

  /** Ask how its runs stand. That nobody works on them any more no event says. */
  async look() {
    const { standing } = await this.#page(this.flow.pos);
    if (standing) this.flow.stand(standing);
  }

  #take(event) {
    if (event.type === "deleted") {
      this.deleted = true;
      this.close();
      this.dispatchEvent(new Event("connection"));
      return;
    }
    if (event.type === "standing") this.flow.stand([event]);
    else this.flow.apply(event);
  }

  close() {
    this.aborter.abort();
    this.feed.close();
  }
}
