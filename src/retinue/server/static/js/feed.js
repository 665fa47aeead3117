/* A stream of server-sent events that survives everything: it comes back from where it left off.
 *
 * The address is made anew for every try, so the cursor in it is always the newest. While the page is hidden a
 * feed may be closed and opened again later: browsers allow six connections to a server, for all tabs together.
 */

const FIRST_WAIT = 400;
const LONGEST_WAIT = 8000;

export class Feed extends EventTarget {
  /** `state`: closed, connecting, live, lost. */
  constructor(address, take, { whenHidden = "close" } = {}) {
    super();
    this.address = address;
    this.take = take;
    this.whenHidden = whenHidden;
    this.state = "closed";
    this.wanted = false;
    this.tries = 0;
    this.timer = 0;
    this.source = null;
    this.onVisibility = () => this.#see();
    this.onOnline = () => this.hurry();
  }

  open() {
    if (this.wanted) return;
    this.wanted = true;
    document.addEventListener("visibilitychange", this.onVisibility);
    addEventListener("online", this.onOnline);
    this.#connect();
  }

  close() {
    this.wanted = false;
    document.removeEventListener("visibilitychange", this.onVisibility);
    removeEventListener("online", this.onOnline);
    this.#drop();
    this.#become("closed");
  }

  #connect() {
    this.#drop();
    if (this.whenHidden === "close" && document.hidden) {
      this.#become("closed");
      return;
    }
    if (this.state !== "lost") this.#become("connecting");
    const source = (this.source = new EventSource(this.address()));
    source.addEventListener("open", () => {
      this.tries = 0;
      this.#become("live");
    });
    source.addEventListener("message", (message) => this.take(JSON.parse(message.data)));
    source.addEventListener("error", () => this.#lost());
  }

  #lost() {
    this.#drop();
    if (!this.wanted) return;
    this.tries += 1;
    this.#become("lost");
    // A stream does not say why it was refused; whoever minds asks elsewhere.
    if (this.tries > 1) this.dispatchEvent(new Event("refused"));
    const wait = Math.min(LONGEST_WAIT, FIRST_WAIT * 2 ** Math.min(this.tries - 1, 6));
    this.timer = setTimeout(() => this.#connect(), wait * (0.75 + Math.random() / 2));
  }

  #see() {
    if (!this.wanted || this.whenHidden !== "close") return;
    if (document.hidden) {
      this.#drop();
      this.#become("closed");
    } else if (!this.source) {
      this.#connect();
    }
  }

  /** Do not wait any longer. */
  hurry() {
    if (this.wanted && this.state === "lost") this.#connect();
  }

  #drop() {
    clearTimeout(this.timer);
    this.source?.close();
    this.source = null;
  }

  #become(state) {
    if (this.state === state) return;
    this.state = state;
    this.dispatchEvent(new Event("state"));
  }
}
