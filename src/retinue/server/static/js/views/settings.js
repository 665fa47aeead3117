/* Settings: every one of them, its value, where it comes from, and changing it. */

import { agents, api, forget } from "../api.js";
import { coded, debounce, h, newId, put, say, stylesheet } from "../dom.js";
import { icon } from "../icons.js";
import { may } from "../session.js";
import { can } from "../shortcuts.js";
import { tell } from "../toast.js";
import { trouble } from "../trouble.js";
import { count } from "../words.js";

/** What was written and not saved yet, by name: it outlives the view, and the tab asks before it closes. */
const drafts = new Map();

function keepDraft(name, text) {
  if (text === null) drafts.delete(name);
  else drafts.set(name, text);
  (drafts.size ? addEventListener : removeEventListener)("beforeunload", warn);
}

const warn = (event) => event.preventDefault();

export class SettingsView extends HTMLElement {
  async connectedCallback() {
    this.className = "page";
    this.undo = can("search", () => this.search?.focus());
    put(
      this,
      h(
        "div",
        { class: "skeleton", role: "status", "aria-label": "Loading" },
        [1, 2, 3, 4, 5].map(() => h("i")),
      ),
    );
    try {
      const [found, { agents: known }] = await Promise.all([api.settings(), agents(), stylesheet("lists")]);
      this.#build({ ...found, known });
    } catch (error) {
      put(this, trouble("The settings cannot be read", error));
    }
  }

  disconnectedCallback() {
    this.undo();
    if (drafts.size) tell(`${count(drafts.size, "change")} not saved yet: kept under Settings.`);
  }

  #build(found) {
    this.rows = new Map();
    this.file = found.file;
    const names = found.known.map((one) => one.name);
    this.offers = {
      model: found.models,
      small_model: found.models,
      default_agent: names,
      "knowledge.agent": names,
    };
    this.search = h("input", {
      class: "field",
      type: "search",
      placeholder: "Search settings",
      "aria-label": "Search settings",
      on: { input: debounce(100, () => this.#filter()) },
    });
    this.changed = h("input", { type: "checkbox", on: { change: () => this.#filter() } });
    this.warnings = h("div", { class: "stack tight" });
    this.unsaved = h("div", { class: "notice", role: "status", hidden: true, id: "unsaved" });
    this.none = h("div", { class: "empty", hidden: true }, icon("search"), h("h2", null, "No setting fits"));
    const groups = new Map();
    for (const setting of found.settings) {
      const [table] = setting.name.includes(".") ? setting.name.split(".") : [""];
      if (!groups.has(table)) groups.set(table, []);
      groups.get(table).push(setting);
    }
    const shown = found.groups.filter(({ name }) => groups.has(name));
    this.sections = shown.map(({ name: table, title, about }) => {
      return h(
        "section",
        { class: "card setting-group", data: { table } },
        h("div", { class: "group-head" }, h("h2", null, title), h("span", { class: "small muted" }, about)),
        groups.get(table).map((one) => this.#row(one)),
      );
    });
    put(
      this,
      h(
        "header",
        null,
        h("h1", null, "Settings"),
        h("label", { class: "row check small" }, this.changed, "Only what is not a default"),
        h("div", { class: "search-box" }, this.search),
      ),
      h(
        "p",
        { class: "muted small" },
        "Changes are kept in ",
        h("code", null, found.file),
        " and count for runs that start from then on. Keys of providers are no settings: they come from the environment alone.",
      ),
      this.unsaved,
      this.warnings,
      this.sections,
      this.none,
    );
    this.#warn(found.warnings);
    this.#countUnsaved();
  }

  /** How much is written and not saved, where nobody has to look for it. */
  #countUnsaved() {
    const names = [...drafts.keys()].filter((name) => this.rows.has(name));
    this.unsaved.hidden = names.length === 0;
    if (!names.length) return;
    put(
      this.unsaved,
      icon("pencil"),
      h(
        "span",
        { class: "grow" },
        `${count(names.length, "change")} not saved yet: `,
        names.map((name, index) => [index > 0 && ", ", h("code", null, name)]),
      ),
      h(
        "button",
        {
          class: "button small",
          type: "button",
          on: { click: () => names.forEach((name) => this.#show(this.rows.get(name))) },
        },
        "Undo",
      ),
      h(
        "button",
        { class: "button small primary", type: "button", on: { click: () => this.#saveAll(names) } },
        names.length > 1 ? "Save all" : "Save",
      ),
    );
  }

  async #saveAll(names) {
    for (const name of names) await this.#save(this.rows.get(name));
  }

  #warn(warnings) {
    put(
      this.warnings,
      warnings.map((text) => h("div", { class: "notice warning" }, icon("warning"), h("span", null, text))),
    );
  }

  #filter() {
    const words = this.search.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
    let any = false;
    for (const [, row] of this.rows) {
      const { setting } = row;
      const fits = words.every((word) =>
        `${setting.name} ${setting.description}`.toLowerCase().includes(word),
      );
      row.element.hidden = !fits || (this.changed.checked && setting.origin === "default");
    }
    for (const section of this.sections) {
      section.hidden = ![...section.querySelectorAll(".setting")].some((row) => !row.hidden);
      any ||= !section.hidden;
    }
    this.none.hidden = any;
  }

  // -- one setting -------------------------------------------------------------------

  #row(setting) {
    const ids = { box: newId("setting"), about: newId("about"), failed: newId("failed") };
    const allowed = may(setting.needs);
    const input = control(
      setting,
      { id: ids.box, disabled: !allowed, "aria-describedby": `${ids.about} ${ids.failed}` },
      this.offers[setting.name],
    );
    const origin = h("span", { class: "badge" });
    const failed = h("div", { class: "setting-failed small", id: ids.failed, role: "alert" });
    const save = h("button", { class: "button primary small", type: "submit", hidden: true }, "Save");
    const undo = h(
      "button",
      { class: "button quiet small", type: "button", hidden: true, on: { click: () => this.#show(row) } },
      "Undo",
    );
    const reset = h(
      "button",
      {
        class: "button quiet small",
        type: "button",
        hidden: true,
        title: "Take it out of your file",
        on: { click: () => this.#put(row, null) },
      },
      "Reset",
    );
    const element = h(
      "form",
      {
        class: "setting",
        on: {
          submit: (event) => {
            event.preventDefault();
            this.#save(row);
          },
        },
      },
      h(
        "div",
        { class: "setting-words" },
        h("label", { for: ids.box, class: "mono" }, setting.name),
        h(
          "div",
          { class: "small muted", id: ids.about },
          coded(setting.description || ""),
          setting.restart ? `${setting.description ? "; " : ""}counts after a restart` : "",
          allowed ? "" : ` (needs the role ${setting.needs})`,
        ),
      ),
      h("div", { class: "setting-value" }, input.element, input.list, origin, reset, undo, save, failed),
    );
    const row = { setting, element, input, origin, failed, save, undo, reset, allowed };
    input.element.addEventListener(input.event, () => this.#edited(row));
    this.rows.set(setting.name, row);
    const draft = drafts.get(setting.name);
    this.#show(row);
    if (draft !== undefined && allowed) {
      input.element.value = draft;
      this.#edited(row);
    }
    return element;
  }

  #show(row) {
    const { setting, input } = row;
    input.set(setting.value);
    const own = setting.origin !== "default" && setting.origin !== "environment" && setting.origin !== "flag";
    say(row.origin, own ? (setting.origin === this.file ? "your file" : "a file") : setting.origin);
    row.origin.classList.toggle("running", setting.origin !== "default");
    row.origin.title = `From ${setting.origin}. Or set ${setting.variable} in the environment. The default is ${JSON.stringify(setting.default)}.`;
    row.save.hidden = row.undo.hidden = true;
    row.reset.hidden = !own || !row.allowed;
    input.element.removeAttribute("aria-invalid");
    put(row.failed);
    row.text = input.element.value;
    keepDraft(setting.name, null);
    this.#countUnsaved();
  }

  #edited(row) {
    const text = row.input.element.value;
    if (text === row.text) {
      this.#show(row);
      return;
    }
    keepDraft(row.setting.name, text);
    this.#countUnsaved();
    row.save.hidden = row.undo.hidden = false;
    row.reset.hidden = true;
    put(row.failed);
  }

  #save(row) {
    let value;
    try {
      value = row.input.get();
    } catch (error) {
      this.#failed(row, error);
      return null;
    }
    return this.#put(row, value);
  }

  async #put(row, value) {
    try {
      const found = await api.change({ [row.setting.name]: value });
      forget("settings");
      forget("agents");
      for (const setting of found.settings) {
        const other = this.rows.get(setting.name);
        if (!other) continue;
        const edited = !other.save.hidden && other !== row;
        other.setting = setting;
        if (!edited) this.#show(other);
      }
      this.#warn(found.warnings);
      tell(value === null ? `${row.setting.name} has its default again.` : `${row.setting.name} is saved.`);
    } catch (error) {
      this.#failed(row, error);
    }
  }

  #failed(row, error) {
    row.input.element.setAttribute("aria-invalid", "true");
    put(
      row.failed,
      h(
        "span",
        { class: "error-words" },
        icon("warning", 14),
        error.message,
        error.fix ? ` (${error.fix})` : "",
      ),
    );
    row.input.element.focus();
  }
}

/** The box that fits a setting's schema: how it is shown, read and written. */
function control(setting, props, offers) {
  const schema = setting.arguments;
  const kinds = schema.anyOf ?? [schema];
  const choices = kinds.flatMap((one) => one.enum ?? (one.const !== undefined ? [one.const] : []));
  const types = new Set(kinds.map((one) => one.type));
  if (types.has("boolean"))
    return chosen(props, [
      [true, "on"],
      [false, "off"],
    ]);
  if (choices.length && types.size <= 1)
    return chosen(
      props,
      choices.map((one) => [one, one]),
    );
  if (types.has("array"))
    return written(
      "textarea",
      { ...props, rows: 1, placeholder: "none; one per line" },
      (value) => [value ?? []].flat().join("\n"),
      (text) =>
        text
          .split("\n")
          .map((line) => line.trim())
          .filter(Boolean),
    );
  if (types.has("object"))
    return written(
      "textarea",
      { ...props, rows: 1, placeholder: "{}" },
      (value) => (value && Object.keys(value).length ? JSON.stringify(value, null, 2) : ""),
      (text) => object(text),
    );
  const number = types.has("number") || types.has("integer");
  const placeholder = types.has("null") ? "not set" : "";
  const list =
    offers &&
    h(
      "datalist",
      { id: newId("offers") },
      offers.map((value) => h("option", { value })),
    );
  if (!number)
    return written(
      "input",
      { ...props, placeholder, spellcheck: "false", list: list?.id },
      (value) => value ?? "",
      (text) => text || null,
      list,
    );
  return written(
    "input",
    { ...props, placeholder, inputmode: "decimal" },
    (value) => (value === null ? "" : String(value)),
    (text) => (text === "" ? null : Number.isNaN(Number(text)) ? text : Number(text)),
  );
}

function object(text) {
  if (!text.trim()) return {};
  try {
    return JSON.parse(text);
  } catch {
    throw new Error("this is not valid JSON");
  }
}

function chosen(props, options) {
  const element = h(
    "select",
    { class: "field", ...props },
    options.map(([value, name]) => h("option", { value: String(value) }, String(name))),
  );
  return {
    element,
    event: "change",
    set: (value) => (element.value = String(value)),
    get: () => options.find(([value]) => String(value) === element.value)[0],
  };
}

function written(tag, props, show, read, list) {
  const element = h(tag, { class: "field", ...props });
  const set = (value) => {
    element.value = show(value);
    if (tag === "textarea") element.rows = Math.min(8, Math.max(1, element.value.split("\n").length));
  };
  return { element, list, event: "input", set, get: () => read(element.value.trim()) };
}

customElements.define("r-settings", SettingsView);
