/* Fork: a new run that begins with the events of another, up to a place, and goes on differently. */

import { api, settings } from "../api.js";
import { h, newId, put } from "../dom.js";
import { go, runPath } from "../router.js";
import { clock } from "../words.js";

export async function showFork(flow, at) {
  const ids = { message: newId("message"), model: newId("model") };
  const atEnd = flow.over && (at === null || at >= flow.pos);
  const message = h("textarea", {
    class: "field",
    id: ids.message,
    rows: 3,
    required: atEnd,
    placeholder: atEnd ? "How should it go on?" : "Leave empty to go on as it did",
  });
  const model = h("select", { class: "field", id: ids.model }, h("option", { value: "" }, "the same model"));
  const failed = h("div", { role: "alert" });
  const first = at === 1 ? "event" : `${(at ?? 0).toLocaleString("en")} events`;
  const place = at === null ? "everything that happened so far" : `the first ${first}${timeAt(flow, at)}`;
  const dialog = h(
    "dialog",
    { class: "form", "aria-labelledby": "fork-title" },
    h(
      "form",
      {
        method: "dialog",
        class: "inside stack",
        on: {
          submit: (event) => {
            event.preventDefault();
            start();
          },
        },
      },
      h("h2", { id: "fork-title" }, "Fork this run"),
      h("p", { class: "muted" }, `A new run begins with ${place}. This one stays as it is.`),
      h("label", { for: ids.message }, atEnd ? "What to do next" : "What to tell it (optional)"),
      message,
      h("label", { for: ids.model }, "Model"),
      model,
      failed,
      h(
        "div",
        { class: "row end" },
        h("button", { class: "button quiet", type: "button", on: { click: () => dialog.close() } }, "Cancel"),
        h("button", { class: "button primary", type: "submit" }, "Fork"),
      ),
    ),
  );
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  message.focus();
  settings()
    .then(({ models }) => model.append(...models.map((name) => h("option", { value: name }, name))))
    .catch(() => {});

  async function start() {
    try {
      const { run_id: id } = await api.fork(flow.rootId, {
        at,
        message: message.value.trim() || null,
        model: model.value || null,
      });
      dialog.close();
      go(runPath(id));
    } catch (error) {
      put(failed, h("p", { class: "notice error" }, `${error.message}${error.fix ? ` (${error.fix})` : ""}`));
    }
  }
}

function timeAt(flow, at) {
  const event = flow.log.find((one) => one.pos === at);
  return event ? `, until ${clock(event.at)}` : "";
}
