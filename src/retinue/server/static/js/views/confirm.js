/* A question before something is done that cannot simply be done again: what will happen, then yes or no. */

import { h, put } from "../dom.js";
import { icon } from "../icons.js";

/**
 * Ask, and do it if a person says so. `deed` does it; what it raises is shown, and the question stays.
 * Resolves to what `deed` gave, or to null if it was not done, once the dialog is closed.
 * @param {{ title: string, about: unknown, yes?: string, no?: string, symbol?: string, deed?: () => Promise<unknown> }} asked
 * @returns {Promise<any>}
 */
export function confirm({ title, about, yes = "", no = "Leave it", symbol = "check", deed }) {
  let done = null;
  const failed = h("div", { role: "alert" });
  const leave = h("button", { class: "button", type: "button", on: { click: () => dialog.close() } }, no);
  const go = yes && h("button", { class: "button danger", type: "submit" }, icon(symbol), yes);
  const dialog = h(
    "dialog",
    { class: "form", "aria-labelledby": "confirm-title", "aria-describedby": "confirm-about" },
    h(
      "form",
      { method: "dialog", class: "inside stack", on: { submit } },
      h("h2", { id: "confirm-title" }, title),
      h("div", { id: "confirm-about", class: "stack tight" }, about),
      failed,
      h("div", { class: "row end" }, leave, go),
    ),
  );

  async function submit(event) {
    event.preventDefault();
    if (!go) return;
    go.disabled = leave.disabled = true;
    try {
      done = await deed();
      dialog.close();
    } catch (error) {
      go.disabled = leave.disabled = false;
      put(failed, h("p", { class: "notice error" }, icon("warning"), h("span", null, wordsOf(error))));
    }
  }

  document.body.append(dialog);
  dialog.showModal();
  leave.focus();
  return new Promise((resolve) =>
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(done);
    }),
  );
}

/** What the server said, and what to do about it. */
export const wordsOf = (error) => `${error.message}${error.fix ? ` (${error.fix})` : ""}`;
