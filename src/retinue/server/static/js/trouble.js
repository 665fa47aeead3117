/* In the place of something that could not be shown: why, and a button that tries again.
 *
 * When a lost connection is back, the frame presses all of these buttons that are in sight.
 */

import { h } from "./dom.js";
import { icon } from "./icons.js";

const offline = (error) => (error.offline ? "The server cannot be reached. Is it still running?" : error.message);

const button = (again, size = "") =>
  h("button", { class: `button${size}`, data: { again: "" }, on: { click: again } }, "Try again");

/** `again`: what the button does; left out, the whole view is made anew. */
export function trouble(title, error, again = anew) {
  return h(
    "div",
    { class: "empty", role: "alert" },
    icon("warning"),
    h("h1", null, title),
    h("p", null, offline(error)),
    error.fix && h("p", { class: "muted" }, error.fix),
    button(again),
  );
}

/** The same in one line, where the rest of the view is there. */
export function troubleLine(error, again) {
  return h(
    "div",
    { class: "notice error", role: "alert" },
    icon("warning"),
    h("span", { class: "grow" }, offline(error)),
    button(again, " small"),
  );
}

function anew({ target }) {
  target.dispatchEvent(new Event("again", { bubbles: true }));
}

export function tryAgain(inside) {
  for (const one of inside.querySelectorAll("[data-again]")) one.click();
}
