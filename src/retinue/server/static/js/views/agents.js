/* Agents: who they are, what they may use, where they come from, and a box to try one. */

import { agents, api, forget } from "../api.js";
import { Composer } from "../composer.js";
import { coded, debounce, h, put, stylesheet } from "../dom.js";
import { EFFECT_ICONS, icon } from "../icons.js";
import { prose } from "../prose.js";
import { go, runPath } from "../router.js";
import { may } from "../session.js";
import { can } from "../shortcuts.js";
import { complain } from "../toast.js";
import { trouble } from "../trouble.js";
import { clean, count, duration } from "../words.js";

const SCOPES = { project: "this project", user: "your own", builtin: "built in", code: "from code" };

export class Agents extends HTMLElement {
  async connectedCallback() {
    this.className = "page";
    this.undo = can("search", () => this.search?.focus());
    put(
      this,
      h(
        "div",
        { class: "skeleton", role: "status", "aria-label": "Loading" },
        [1, 2, 3, 4].map(() => h("i")),
      ),
    );
    try {
      forget("agents");
      const [found, tools, skills] = await Promise.all([
        agents(),
        api.tools(),
        api.skills(),
        stylesheet("lists"),
      ]);
      this.tools = new Map(tools.tools.map((tool) => [tool.name, tool]));
      this.waiting = tools.waiting;
      this.skills = skills;
      this.agents = found.agents;
      this.problems = found.problems;
      this.loaded = true;
      this.#draw(this.place.params.name);
    } catch (error) {
      put(this, trouble("The agents cannot be listed", error));
    }
  }

  disconnectedCallback() {
    this.undo();
  }

  route(place) {
    this.place = place;
    if (this.loaded) this.#draw(place.params.name);
  }

  #draw(name) {
    const agent = name && this.agents.find((one) => one.name === name);
    if (agent) this.#one(agent);
    else this.#all();
  }

  #all() {
    this.grid = h("ul", { class: "agent-grid plain" });
    this.search = h("input", {
      class: "field",
      type: "search",
      placeholder: "Search agents and tools",
      "aria-label": "Search agents and tools",
      on: { input: debounce(100, () => this.#cards()) },
    });
    put(
      this,
      h("header", null, h("h1", null, "Agents"), h("div", { class: "search-box" }, this.search)),
      h(
        "p",
        { class: "muted" },
        "Each is a Markdown file. Put your own into ",
        h("code", null, ".retinue/agents"),
        " and it is here too. The tools of ",
        h("a", { href: "#/servers" }, "MCP servers"),
        " are theirs as well.",
      ),
      this.problems.length > 0 &&
        h("section", { class: "stack tight", "aria-label": "Problems" }, this.problems.map(finding)),
      this.grid,
      ownTools([...this.tools.values()], this.waiting),
      skillList(this.skills),
    );
    this.#cards();
  }

  #cards() {
    const words = this.search.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (one) =>
      words.every((word) =>
        `${one.name} ${one.description} ${(one.tools ?? []).join(" ")}`.toLowerCase().includes(word),
      );
    const shown = this.agents.filter(fits);
    put(
      this.grid,
      shown.length
        ? shown.map((one) => this.#card(one))
        : h("li", { class: "empty" }, icon("search"), h("h2", null, "No agent fits")),
    );
  }

  #card(agent) {
    const warnings = agent.findings.filter((one) => one.level !== "note").length;
    return h(
      "li",
      { class: "agent-card card" },
      h(
        "a",
        { href: `#/agents/${agent.name}` },
        h(
          "div",
          { class: "row" },
          h(
            "span",
            { class: "agent-face", "aria-hidden": "true" },
            agent.icon || agent.name[0].toUpperCase(),
          ),
          h(
            "div",
            { class: "grow" },
            h("h2", { class: "cut" }, agent.name),
            h(
              "div",
              { class: "small muted" },
              SCOPES[agent.scope] + (agent.default ? " · answers by default" : ""),
            ),
          ),
          warnings > 0 && h("span", { class: "badge waiting" }, icon("warning", 12), String(warnings)),
        ),
        h("p", { class: "agent-about" }, coded(agent.description)),
        h(
          "div",
          { class: "small muted cut" },
          [
            agent.tools === null ? "all tools" : count(agent.tools.length, "tool"),
            agent.max_turns ? count(agent.max_turns, "turn") : "",
            agent.model === "inherit" ? "" : agent.model,
          ]
            .filter(Boolean)
            .join(" · "),
        ),
      ),
    );
  }

  // -- one agent ---------------------------------------------------------------------

  async #one(agent) {
    const prompt = h("div", { class: "agent-prompt" });
    const box =
      may("ask") &&
      new Composer({
        label: `Try ${agent.name}`,
        placeholder: `Try ${agent.name}: what should it do?`,
        files: true,
      });
    box && box.addEventListener("send", ({ detail }) => this.#try(agent, box, detail));
    put(
      this,
      h(
        "nav",
        { class: "crumbs small", "aria-label": "Where this is" },
        h("a", { href: "#/agents" }, "Agents"),
        " › ",
        agent.name,
      ),
      h(
        "header",
        { class: "row" },
        h(
          "span",
          { class: "agent-face large", "aria-hidden": "true" },
          agent.icon || agent.name[0].toUpperCase(),
        ),
        h(
          "div",
          { class: "grow" },
          h("h1", null, agent.name),
          h(
            "div",
            { class: "small muted" },
            SCOPES[agent.scope],
            agent.file && [" · ", h("span", { class: "mono" }, agent.file)],
          ),
        ),
      ),
      h("p", null, coded(agent.description)),
      agent.findings.length > 0 &&
        h("section", { class: "stack tight", "aria-label": "Problems" }, agent.findings.map(finding)),
      box && h("section", { class: "stack tight" }, h("h2", null, "Try it"), box),
      h(
        "div",
        { class: "two" },
        h(
          "section",
          { class: "card" },
          h("div", { class: "inside stack tight" }, h("h2", null, "Limits"), this.#limits(agent)),
        ),
        h(
          "section",
          { class: "card" },
          h("div", { class: "inside stack tight" }, h("h2", null, "Tools"), this.#tools(agent)),
        ),
      ),
      agent.input_schema &&
        h(
          "section",
          { class: "card" },
          h(
            "div",
            { class: "inside stack tight" },
            h("h2", null, "What it is given"),
            fields(agent.input_schema),
          ),
        ),
      h(
        "section",
        { class: "card" },
        h("div", { class: "inside stack tight" }, h("h2", null, "System prompt"), prompt),
      ),
    );
    try {
      prose(prompt, (await api.agent(agent.name)).prompt);
    } catch (error) {
      put(prompt, h("p", { class: "muted" }, error.message));
    }
  }

  #limits(agent) {
    const own = Object.entries(agent.limits)
      .filter(([, value]) => value !== null)
      .map(([name, value]) => [name.replaceAll("_", " "), String(value)]);
    const pairs = [
      ["Model", agent.model === "inherit" ? "its parent's" : agent.model],
      ["Turns", agent.max_turns ? String(agent.max_turns) : "as the settings say"],
      ["Time", agent.timeout ? duration(agent.timeout) : "as the settings say"],
      ["Answers in", agent.output_format],
      ["Thinks", agent.effort ? `with ${agent.effort} effort` : "as hard as its parent"],
      ["Skills", agent.skills === null ? "all, if it is the main agent" : agent.skills.join(", ") || "none"],
      ...(agent.isolation ? [["Writes in", "a copy of the project, which is merged later"]] : []),
      ["Works with", agent.mode === "code" ? "code in a sandbox" : "tool calls"],
      ["Keeps notes", agent.memory ? "yes, between runs" : "no"],
      ["In the background", agent.background ? "yes" : "no"],
      ...own,
    ];
    return h(
      "dl",
      { class: "facts roomy" },
      pairs.map(([name, value]) => [h("dt", null, name), h("dd", null, value)]),
    );
  }

  #tools(agent) {
    if (agent.tools === null) return h("p", { class: "muted" }, "Every tool of whoever calls it.");
    if (!agent.tools.length) return h("p", { class: "muted" }, "None: it answers from its prompt alone.");
    return h(
      "ul",
      { class: "plain tool-list" },
      agent.tools.map((name) => {
        const tool = this.tools.get(name);
        return h(
          "li",
          { title: tool?.description ?? "" },
          icon(EFFECT_ICONS[tool?.effect] ?? "note"),
          h("code", null, name),
          tool && h("span", { class: "small muted" }, tool.effect),
        );
      }),
      agent.disallowed_tools.length > 0 &&
        h("li", { class: "small muted" }, `never ${agent.disallowed_tools.join(", ")}`),
    );
  }

  async #try(agent, box, given) {
    box.busy = true;
    try {
      const { run_id: id } = await api.start({
        agent: agent.name,
        prompt: given.prompt,
        attachments: given.attachments,
      });
      go(runPath(id));
    } catch (error) {
      complain(error);
      box.busy = false;
    }
  }
}

function finding(one) {
  return h(
    "div",
    { class: `notice ${one.level === "error" ? "error" : one.level === "warning" ? "warning" : ""}` },
    icon(one.level === "note" ? "note" : "warning"),
    h(
      "div",
      null,
      h("div", null, h("strong", null, `${one.level}: `), clean(one.message)),
      one.fix && h("div", { class: "small" }, clean(one.fix)),
      h("div", { class: "small muted mono" }, one.file, one.line ? `:${one.line}` : ""),
    ),
  );
}

/** Tools of files of the person's own, and the files that nobody trusted yet. */
function ownTools(tools, waiting) {
  const own = tools.filter((tool) => tool.origin);
  return h(
    "section",
    { class: "card", "aria-label": "Your own tools" },
    h(
      "div",
      { class: "inside stack tight" },
      h("h2", null, "Your own tools"),
      !own.length &&
        !waiting.length &&
        h(
          "p",
          { class: "muted" },
          "None. Functions of ",
          h("code", null, ".retinue/tools/*.py"),
          " are tools once you trust the file.",
        ),
      own.length > 0 &&
        h(
          "ul",
          { class: "plain tool-list" },
          own.map((tool) =>
            h(
              "li",
              null,
              icon(EFFECT_ICONS[tool.effect] ?? "note"),
              h("code", null, tool.name),
              h("span", { class: "small muted" }, `${tool.effect} · `, h("span", { class: "mono" }, tool.origin)),
            ),
          ),
        ),
      waiting.map((file) =>
        h(
          "div",
          { class: "notice warning" },
          icon("warning"),
          h(
            "div",
            null,
            h("div", null, clean(file.why)),
            h("div", { class: "small muted" }, `not there: ${clean(file.names.join(", ")) || "no tools"}`),
          ),
        ),
      ),
    ),
  );
}

/** The skills there are, and those that cannot be used. */
function skillList({ skills, problems }) {
  return h(
    "section",
    { class: "card", "aria-label": "Skills" },
    h(
      "div",
      { class: "inside stack tight" },
      h("h2", null, "Skills"),
      !skills.length &&
        !problems.length &&
        h("p", { class: "muted" }, "None. A skill is a folder in ", h("code", null, ".agents/skills"), "."),
      problems.map(finding),
      skills.length > 0 &&
        h(
          "dl",
          { class: "facts roomy" },
          skills.map((one) => [
            h("dt", { class: "mono" }, clean(one.name)),
            h(
              "dd",
              null,
              clean(one.description),
              h(
                "div",
                { class: "small muted" },
                SCOPES[one.scope],
                one.hidden ? " · only for agents that name it" : "",
                one.allowed_tools.length ? " · its allowed-tools grant nothing" : "",
                one.files.length ? ` · ${count(one.files.length, "file")}` : "",
                " · ",
                h("span", { class: "mono" }, one.folder),
              ),
            ),
          ]),
        ),
    ),
  );
}

function fields(schema) {
  const required = new Set(schema.required ?? []);
  return h(
    "dl",
    { class: "facts roomy" },
    Object.entries(schema.properties ?? {}).map(([name, about]) => [
      h("dt", { class: "mono" }, name, required.has(name) ? "" : "?"),
      h("dd", null, about.description ?? about.type ?? "", about.enum ? ` (${about.enum.join(", ")})` : ""),
    ]),
  );
}

customElements.define("r-agents", Agents);
