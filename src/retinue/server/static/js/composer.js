/* Where a person writes: the question, files, the agent and the model. Used to ask and to go on.
 *
 * Sends a `send` event with { prompt, agent, model, attachments }; whoever listens says what becomes of it.
 */

import { agents, forget, settings } from "./api.js";
import { h, keyed, newId, put } from "./dom.js";
import { icon } from "./icons.js";
import { complain } from "./toast.js";
import { modelName, oneLine, size } from "./words.js";

const MOST_BYTES = 8_000_000;
const MOST_FILES = 20;
const OTHER = "\u0000other";

export class Composer extends HTMLElement {
  /** `chooses`: an agent and a model can be chosen, as for a new run. */
  constructor({ label = "", placeholder = "", chooses = false, files = false } = {}) {
    super();
    this.options = { label, placeholder, chooses, files };
    this.files = [];
    this.agents = [];
    this.offered = [];
    this.picked = 0;
    this.#build();
  }

  connectedCallback() {
    if (this.options.chooses && !this.agents.length) this.#load();
  }

  #build() {
    const { label, placeholder, chooses, files } = this.options;
    const list = newId("offers");
    this.box = h("textarea", {
      class: "field",
      rows: 1,
      "aria-label": label,
      placeholder,
      "aria-autocomplete": chooses ? "list" : null,
      "aria-controls": chooses ? list : null,
      on: {
        input: () => this.#typed(),
        keydown: (event) => this.#key(event),
        paste: (event) => this.#paste(event),
        blur: () => this.#close(),
      },
    });
    this.offers = h("ul", {
      class: "offers plain",
      id: list,
      role: "listbox",
      "aria-label": "Agents",
      hidden: true,
    });
    this.chips = h("ul", { class: "chips plain", "aria-label": "Attached files" });
    this.sendButton = h(
      "button",
      {
        class: "button primary only send",
        type: "button",
        "aria-label": "Send",
        title: "Send (Enter)",
        on: { click: () => this.#send() },
      },
      icon("send"),
    );
    const input = h("input", {
      type: "file",
      multiple: true,
      class: "unseen",
      tabindex: "-1",
      "aria-hidden": "true",
      on: { change: () => this.#attach([...input.files]).then(() => (input.value = "")) },
    });
    this.tools = h(
      "div",
      { class: "tools" },
      files &&
        h(
          "button",
          {
            class: "button quiet only",
            type: "button",
            "aria-label": "Attach files",
            title: "Attach files: text, PDF, pictures, spreadsheets",
            on: { click: () => input.click() },
          },
          icon("clip"),
        ),
      files && input,
      chooses && this.#choices(),
      h("span", { class: "grow" }),
      this.sendButton,
    );
    put(this, this.offers, h("div", { class: "box" }, this.chips, this.box, this.tools));
    if (files) this.#drops();
    this.#typed();
  }

  #choices() {
    this.agent = h("select", { class: "field pick", "aria-label": "Agent", title: "The agent that answers" });
    this.model = h("select", {
      class: "field pick",
      "aria-label": "Model",
      title: "The model it uses",
      on: { change: () => this.#otherModel() },
    });
    this.modelName = h("input", {
      class: "field pick",
      "aria-label": "Name of the model",
      placeholder: "provider:model",
      hidden: true,
    });
    return [this.agent, this.model, this.modelName];
  }

  async #load() {
    try {
      const [{ agents: known }, { model, models }] = await Promise.all([agents(), settings()]);
      this.agents = known;
      const before = [this.agent.value, this.model.value];
      put(
        this.agent,
        known.map((one) =>
          h("option", { value: one.name, title: oneLine(one.description) }, `${one.icon} ${one.name}`.trim()),
        ),
      );
      const usual = known.find((one) => one.default) ?? known[0];
      this.agent.value = before[0] || this.wanted || (usual?.name ?? "");
      const others = models.filter((name) => name !== model);
      put(
        this.model,
        h("option", { value: "" }, `${modelName(model)} (default)`),
        others.map((name) => h("option", { value: name }, name)),
        h("option", { value: OTHER }, "Another model…"),
      );
      this.model.value = before[1];
      if (this.box === document.activeElement) this.#typed(); // an @ may have been written meanwhile
    } catch (error) {
      if (error.status !== 401) complain(error);
    }
  }

  #otherModel() {
    this.modelName.hidden = this.model.value !== OTHER;
    if (!this.modelName.hidden) this.modelName.focus();
  }

  choose(name) {
    this.wanted = name;
    if (this.agent) this.agent.value = name;
  }

  set busy(busy) {
    this.sendButton.disabled = busy || !this.box.value.trim();
    this.isBusy = busy;
  }

  focusBox() {
    this.box.focus();
  }

  clear() {
    this.box.value = "";
    this.files = [];
    this.#drawFiles();
    this.#typed();
  }

  set value(text) {
    this.box.value = text;
    this.#typed();
  }

  // -- writing -----------------------------------------------------------------

  #typed() {
    this.sendButton.disabled = this.isBusy || !this.box.value.trim();
    if (this.options.chooses) this.#offer();
  }

  #key(event) {
    if (event.isComposing) return;
    if (!this.offers.hidden && this.#offerKey(event)) {
      event.preventDefault();
      return;
    }
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      this.#send();
    } else if (event.key === "Escape") {
      this.box.blur();
    }
  }

  async #send() {
    const text = this.box.value.trim();
    if (!text || this.isBusy) return;
    const named = this.options.chooses ? /^@([\w.-]+)\s+([\s\S]+)$/.exec(text) : null;
    this.busy = true;
    const known = named && (await this.#knows(named[1]));
    this.busy = false;
    const chosen = this.model?.value === OTHER ? this.modelName.value.trim() : this.model?.value;
    const detail = {
      prompt: known ? named[2] : text,
      agent: known ? named[1] : this.agent?.value,
      model: chosen || null,
      attachments: this.files.map(({ name, data }) => ({ name, data })),
    };
    this.dispatchEvent(new CustomEvent("send", { detail }));
  }

  /** Whether there is such an agent: asked again if it is not known, since its file may be new. */
  async #knows(name) {
    const there = () => this.agents.some((one) => one.name === name);
    if (there()) return true;
    forget("agents");
    await this.#load();
    return there();
  }

  // -- @agent ------------------------------------------------------------------

  /** While the first word begins with @, the agents that fit are offered. */
  #offer() {
    const word = /^@([\w.-]*)$/.exec(this.box.value.slice(0, this.box.selectionStart));
    this.offered = word ? this.agents.filter((one) => one.name.includes(word[1].toLowerCase())) : [];
    if (!this.offered.length) {
      this.#close();
      return;
    }
    this.picked = Math.min(this.picked, this.offered.length - 1);
    const prefix = this.offers.id;
    put(
      this.offers,
      this.offered.map((one, index) =>
        h(
          "li",
          {
            role: "option",
            id: `${prefix}-${index}`,
            "aria-selected": String(index === this.picked),
            on: {
              mousedown: (event) => {
                event.preventDefault();
                this.#pick(index);
              },
            },
          },
          h("span", { class: "agent-icon", "aria-hidden": "true" }, one.icon),
          h("strong", null, one.name),
          h("span", { class: "cut muted" }, oneLine(one.description, 120)),
        ),
      ),
    );
    this.offers.hidden = false;
    this.box.setAttribute("aria-activedescendant", `${prefix}-${this.picked}`);
  }

  #offerKey(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      this.picked = (this.picked + step + this.offered.length) % this.offered.length;
      this.#offer();
      return true;
    }
    if (event.key === "Enter" || event.key === "Tab") {
      this.#pick(this.picked);
      return true;
    }
    if (event.key === "Escape") {
      this.#close();
      return true;
    }
    return false;
  }

  #pick(index) {
    this.box.setRangeText(`@${this.offered[index].name} `, 0, this.box.selectionStart, "end");
    this.agent.value = this.offered[index].name;
    this.#close();
    this.#typed();
    this.box.focus();
  }

  #close() {
    this.offers.hidden = true;
    this.picked = 0;
    this.box.removeAttribute("aria-activedescendant");
  }

  // -- files -------------------------------------------------------------------

  #drops() {
    this.addEventListener("dragover", (event) => {
      if (![...event.dataTransfer.types].includes("Files")) return;
      event.preventDefault();
      this.classList.add("over");
    });
    this.addEventListener("dragleave", () => this.classList.remove("over"));
    this.addEventListener("drop", (event) => {
      this.classList.remove("over");
      if (!event.dataTransfer.files.length) return;
      event.preventDefault();
      this.#attach([...event.dataTransfer.files]);
    });
  }

  #paste(event) {
    const pasted = [...(event.clipboardData?.files ?? [])];
    if (!this.options.files || !pasted.length) return;
    event.preventDefault();
    this.#attach(pasted);
  }

  async #attach(files) {
    for (const file of files) {
      const all = this.files.reduce((total, one) => total + one.size, file.size);
      if (this.files.length >= MOST_FILES) {
        complain({ message: `At most ${MOST_FILES} files can be attached.` });
        break;
      }
      if (all > MOST_BYTES) {
        complain({
          message: `${file.name} has ${size(file.size)}; together at most ${size(MOST_BYTES)} can be attached.`,
        });
        continue;
      }
      this.files.push({ id: newId("file"), name: file.name, size: file.size, data: await base64(file) });
    }
    this.#drawFiles();
  }

  #drawFiles() {
    keyed(
      this.chips,
      this.files,
      (one) => one.id,
      (one) =>
        h(
          "li",
          { class: "chip" },
          icon("file"),
          h("span", { class: "cut" }, one.name),
          h("span", { class: "muted" }, size(one.size)),
          h(
            "button",
            {
              class: "button quiet small only",
              type: "button",
              "aria-label": `Remove ${one.name}`,
              on: {
                click: () => {
                  this.files = this.files.filter((each) => each !== one);
                  this.#drawFiles();
                  this.box.focus();
                },
              },
            },
            icon("close"),
          ),
        ),
    );
    this.chips.hidden = !this.files.length;
  }
}

function base64(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.addEventListener("load", () => {
      const url = String(reader.result);
      resolve(url.slice(url.indexOf(",") + 1));
    });
    reader.addEventListener("error", () => reject(reader.error));
    reader.readAsDataURL(file);
  });
}

customElements.define("r-composer", Composer);
