/* A token, where the server wants one. It is exchanged for a cookie that no script can read. */

import { api } from "../api.js";
import { h, newId, put, stylesheet } from "../dom.js";
import { icon } from "../icons.js";

export function showLogin(place, entered) {
  if (place.querySelector(".login")) return; // somebody may be typing
  stylesheet("lists");
  const id = newId("token");
  const box = h("input", {
    class: "field mono",
    id,
    type: "password",
    autocomplete: "current-password",
    required: true,
    spellcheck: "false",
  });
  const failed = h("div", { role: "alert" });
  const form = h(
    "form",
    { class: "login card", on: { submit: send } },
    h(
      "div",
      { class: "inside stack" },
      icon("approvals", 28),
      h("h1", null, "This server wants a token"),
      h(
        "p",
        { class: "muted" },
        "It was printed when the server was started; whoever runs the server can give you one.",
      ),
      h("label", { for: id }, "Token"),
      box,
      failed,
      h("button", { class: "button primary", type: "submit" }, "Enter"),
    ),
  );
  put(place, form);
  box.focus();

  async function send(event) {
    event.preventDefault();
    try {
      await api.login(box.value.trim());
      entered();
    } catch (error) {
      put(
        failed,
        h(
          "p",
          { class: "notice error" },
          icon("warning"),
          h("span", null, `${error.message}${error.fix ? ` (${error.fix})` : ""}`),
        ),
      );
      box.select();
    }
  }
}
