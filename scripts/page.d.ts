/* What the page's scripts say to each other without importing it. For `tsc` alone: no browser is sent this. */

type Place = ReturnType<typeof import("../src/retinue/server/static/js/router.js").place>;

/** Of the page's own elements, which carry their facts in `detail`. */
interface HTMLElementEventMap {
  fork: CustomEvent;
  send: CustomEvent;
  show: CustomEvent;
  tab: CustomEvent;
}

interface HTMLElement {
  /** Where the page is: the shell gives it to a view before it is shown. */
  place: Place;
}

/** Of the inbox. */
interface EventTarget {
  addEventListener(type: "change" | "deleted" | "run", listener: (event: CustomEvent) => void): void;
  removeEventListener(type: "deleted", listener: (event: CustomEvent) => void): void;
}
