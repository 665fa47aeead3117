/* Short messages in the corner: read out by screen readers, gone by themselves unless something failed. */

import { h } from "./dom.js";
import { icon } from "./icons.js";

let box = null;

function show(kind, symbol, parts, stay) {
  box ??= document.body.appendChild(h("div", { class: "toasts", role: "region", "aria-label": "Messages" }));
  const toast = h(
    "div",
    { class: `toast ${kind}`, role: kind === "error" ? "alert" : "status" },
    icon(symbol),
    h("div", { class: "grow" }, parts),
    h(
      "button",
      {
        class: "button quiet small only",
        "aria-label": "Dismiss this message",
        on: { click: () => toast.remove() },
      },
      icon("close"),
    ),
  );
  box.append(toast);
  while (box.children.length > 4) box.firstChild.remove();
  if (!stay) setTimeout(() => toast.remove(), 5000);
}

export const tell = (text) => show("info", "check", [text], false);

/** What went wrong, and what to do about it where the server said so. */
export function complain(error) {
  if (error?.name === "AbortError") return;
  show(
    "error",
    "warning",
    [h("div", null, error.message), error.fix && h("div", { class: "small muted" }, error.fix)],
    true,
  );
}
