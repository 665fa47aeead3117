/* Deleting a run: what goes and what stays, said before it is done. */

import { inbox } from "../inbox.js";
import { h, put } from "../dom.js";
import { icon } from "../icons.js";
import { tell } from "../toast.js";
import { children, oneLine } from "../words.js";

/** Ask, and delete if a person says so. Resolves to whether it was done, once the dialog is closed. */
export function confirmDelete(run) {
  const below = (run.total?.runs ?? 1) - 1;
  const failed = h("div", { role: "alert" });
  const no = h("button", { class: "button", type: "button", on: { click: () => dialog.close() } }, "Keep it");
  const yes = h("button", { class: "button danger", type: "submit" }, icon("trash"), "Delete for good");
  const dialog = h(
    "dialog",
    { class: "form", "aria-labelledby": "delete-title", "aria-describedby": "delete-about" },
    h(
      "form",
      { method: "dialog", class: "inside stack", on: { submit } },
      h("h2", { id: "delete-title" }, "Delete this run?"),
      h("p", { class: "delete-task" }, oneLine(run.label || run.task, 160)),
      h(
        "p",
        { id: "delete-about", class: "muted" },
        `Its steps, its answer and ${below > 0 ? `its ${children(below)}` : "all that is known of it"} are gone for good. Files it changed stay as they are.`,
      ),
      failed,
      h("div", { class: "row end" }, no, yes),
    ),
  );

  async function submit(event) {
    event.preventDefault();
    yes.disabled = no.disabled = true;
    try {
      await inbox.delete(run.run_id);
      dialog.close("deleted");
      tell("The run is deleted.");
    } catch (error) {
      yes.disabled = no.disabled = false;
      const why = `${error.message}${error.fix ? ` (${error.fix})` : ""}`;
      put(failed, h("p", { class: "notice error" }, icon("warning"), h("span", null, why)));
    }
  }

  document.body.append(dialog);
  dialog.showModal();
  no.focus();
  return new Promise((resolve) =>
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "deleted");
    }),
  );
}
