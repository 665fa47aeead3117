/* The keyboard shortcuts, from the same table that makes them work. */

import { h, stylesheet } from "../dom.js";
import { icon } from "../icons.js";
import { KEYS, LOCAL_KEYS, keysOn, switchKeys } from "../shortcuts.js";

const keys = (text) => text.split(" ").map((key) => [h("kbd", null, key), " "]);

function table(name, rows) {
  return h(
    "section",
    null,
    h("h3", null, name),
    h(
      "dl",
      { class: "keys" },
      rows.map(([key, about]) => [h("dt", null, keys(key)), h("dd", null, about)]),
    ),
  );
}

export async function showHelp() {
  await stylesheet("lists");
  const everywhere = KEYS.map(([key, about]) => [key.replace(/^[A-Z]$/, "Shift $&"), about]);
  const dialog = h(
    "dialog",
    { class: "help", "aria-labelledby": "help-title", on: { close: () => dialog.remove() } },
    h(
      "div",
      { class: "inside stack" },
      h(
        "div",
        { class: "row" },
        h("h2", { id: "help-title", class: "grow", tabindex: "-1" }, "Keyboard shortcuts"),
        h(
          "button",
          { class: "button quiet small only", "aria-label": "Close", on: { click: () => dialog.close() } },
          icon("close"),
        ),
      ),
      h(
        "label",
        { class: "row check" },
        h("input", {
          type: "checkbox",
          checked: keysOn(),
          on: { change: ({ target }) => switchKeys(target.checked) },
        }),
        "Single keys do things outside of text boxes",
      ),
      h(
        "div",
        { class: "columns" },
        table("Everywhere", everywhere),
        LOCAL_KEYS.map(([name, rows]) => table(name, rows)),
      ),
    ),
  );
  document.body.append(dialog);
  dialog.showModal();
  dialog.querySelector("h2").focus();
}
