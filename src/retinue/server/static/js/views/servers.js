/* MCP servers: which there are, whose they are, whether they may start, what they offer. */

import { api } from "../api.js";
import { h, put, stylesheet } from "../dom.js";
import { troubleLine } from "../trouble.js";

export class ServersView extends HTMLElement {
  connectedCallback() {
    this.className = "page";
    this.body = h("div", { class: "stack" });
    put(
      this,
      h("header", null, h("h1", null, "MCP servers")),
      h(
        "p",
        { class: "muted" },
        "Programs and addresses whose tools agents use. One that came with a repository starts once ",
        h("code", null, "retinue mcp trust"),
        " has named it.",
      ),
      this.body,
    );
    this.#load();
  }

  async #load() {
    try {
      const [{ servers, problems }] = await Promise.all([api.servers(), stylesheet("lists")]);
      const none = h("p", { class: "muted" }, "There are none: 'retinue mcp add' writes one.");
      put(
        this.body,
        problems.map((text) => h("p", { class: "danger-text" }, text)),
        servers.length || problems.length ? servers.map(card) : none,
      );
    } catch (error) {
      put(
        this.body,
        troubleLine(error, () => this.#load()),
      );
    }
  }
}

function card(server) {
  return h(
    "section",
    { class: "card stack", data: { server: server.name } },
    h("h2", null, server.name, " ", h("span", { class: "small muted" }, `${server.trust} · ${server.state}`)),
    h("div", { class: "small mono" }, server.command),
    h("div", { class: "small muted" }, server.origin),
    h("div", { class: "small" }, server.trust_says),
    server.problem ? h("p", { class: "small danger-text" }, server.problem) : null,
    h(
      "div",
      { class: "small" },
      server.tools.length ? `${server.tools.length} tools: ${server.tools.join(", ")}` : "no tools known",
    ),
  );
}

customElements.define("r-servers", ServersView);
