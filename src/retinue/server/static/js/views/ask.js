/* Ask: the first thing a person sees. One box, and what the agents are good at. */

import { agents, api, settings } from "../api.js";
import { Composer } from "../composer.js";
import { inbox } from "../inbox.js";
import { h, put } from "../dom.js";
import { icon } from "../icons.js";
import { go, runPath } from "../router.js";
import { may, session } from "../session.js";
import { can } from "../shortcuts.js";
import { complain } from "../toast.js";
import { modelName } from "../words.js";

const EXAMPLES = [
  ["general", "Give me a tour of this project: what it does, how it is built, where to begin reading."],
  ["code-search", "Where are errors handled, and what happens to those that nobody expects?"],
  ["code-review", "Review the code that was written last for bugs and missing tests."],
  ["planner", "Plan the smallest change that would make start-up faster."],
];

export class Ask extends HTMLElement {
  connectedCallback() {
    inbox.name("");
    this.composer = new Composer({
      label: "Your question",
      placeholder: "Ask anything. @ chooses an agent.",
      chooses: true,
      files: true,
    });
    this.composer.addEventListener("send", ({ detail }) => this.#start(detail));
    this.undo = can("search", () => this.composer.focusBox());
    this.examples = h("ul", { class: "examples plain" });
    put(
      this,
      h("h1", null, "What shall we find out?"),
      h(
        "p",
        { class: "muted lead" },
        "One agent answers. It gives parts of the work to others, its children, and asks you before it changes anything.",
      ),
      may("ask")
        ? this.composer
        : h(
            "div",
            { class: "notice" },
            icon("note"),
            h("span", { class: "grow" }, `Your role, ${session.me.role}, may watch but not ask.`),
            h("a", { href: "#/runs" }, "See the runs"),
          ),
      this.examples,
      (this.state = h("p", { class: "small muted state" })),
    );
    if (may("ask")) this.#suggest();
    this.composer.isConnected && this.composer.focusBox();
  }

  disconnectedCallback() {
    this.undo();
  }

  route(place) {
    const agent = place.query.get("agent");
    if (agent) this.composer.choose(agent);
    if (this.composer.isConnected) this.composer.focusBox();
  }

  async #suggest() {
    try {
      const [{ agents: known }, { model }] = await Promise.all([agents(), settings()]);
      const byName = new Map(known.map((one) => [one.name, one]));
      put(
        this.examples,
        EXAMPLES.filter(([name]) => byName.has(name)).map(([name, text]) =>
          h(
            "li",
            null,
            h(
              "button",
              {
                type: "button",
                class: "example",
                on: {
                  click: () => {
                    this.composer.choose(name);
                    this.composer.value = text;
                    this.composer.focusBox();
                  },
                },
              },
              h(
                "span",
                { class: "row small muted" },
                byName.get(name).icon && h("span", { "aria-hidden": "true" }, byName.get(name).icon),
                name,
              ),
              h("span", null, text),
            ),
          ),
        ),
      );
      put(
        this.state,
        model === "offline"
          ? [
              "No model is set up, so the ",
              h("strong", null, "offline"),
              " rules answer: they search and quote, and cost nothing. ",
              h("a", { href: "#/settings" }, "Choose a model"),
              ".",
            ]
          : [`${session.me.project.split("/").at(-1)} · ${modelName(model)}`],
      );
    } catch {
      // The box works without examples; what failed is said where it matters.
    }
  }

  async #start(given) {
    this.composer.busy = true;
    try {
      const { run_id: id } = await api.start({
        prompt: given.prompt,
        agent: given.agent || null,
        model: given.model,
        attachments: given.attachments,
      });
      go(runPath(id));
    } catch (error) {
      complain(error);
      this.composer.busy = false;
    }
  }
}

customElements.define("r-ask", Ask);
