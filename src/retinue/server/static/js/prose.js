/* Text of models. The server turns Markdown into clean HTML; what comes back is taken over tag by tag from a
 * short list, so that even a server that was fooled could not make the page run anything. Until it is there,
 * and wherever it cannot be had, the text is shown as it is. */

import { api } from "./api.js";
import { h, put } from "./dom.js";
import { icon } from "./icons.js";
import { clean } from "./words.js";

const TAGS = new Set(
  "A BLOCKQUOTE BR CODE DEL DIV EM H1 H2 H3 H4 H5 H6 HR LI OL P PRE S STRONG TABLE TBODY TD TH THEAD TR UL".split(
    " ",
  ),
);
const MOST_KEPT = 400;
const BATCH = 50;
const LONGEST = 200_000;

const kept = new Map();
let queue = [];

function rendered(text) {
  const found = kept.get(text);
  if (found !== undefined) return found;
  const answer = new Promise((resolve) => queue.push({ text, resolve }));
  if (queue.length === 1) queueMicrotask(flush);
  keep(text, answer);
  return answer;
}

function keep(text, html) {
  kept.delete(text);
  kept.set(text, html);
  if (kept.size > MOST_KEPT) kept.delete(kept.keys().next().value);
}

async function flush() {
  const asked = queue;
  queue = [];
  for (let start = 0; start < asked.length; start += BATCH) {
    const some = asked.slice(start, start + BATCH);
    try {
      const { html } = await api.render(some.map((one) => one.text));
      some.forEach((one, index) => {
        keep(one.text, html[index]);
        one.resolve(html[index]);
      });
    } catch {
      for (const one of some) {
        kept.delete(one.text);
        one.resolve(null);
      }
    }
  }
}

/** Show a text as Markdown. At once if it was rendered before, else as plain text until it is; then `done`. */
export function prose(element, text, done = null) {
  if (element.proseText === text) return element;
  element.proseText = text;
  element.classList.add("prose");
  const html = text.length > LONGEST || !text.trim() ? null : rendered(text);
  if (typeof html === "string") {
    take(element, html);
    done?.(element);
    return element;
  }
  put(element, h("div", { class: "as-it-is" }, clean(text)));
  html?.then((answer) => {
    if (answer === null || element.proseText !== text) return;
    take(element, answer);
    done?.(element);
  });
  return element;
}

function take(element, html) {
  const parsed = new DOMParser().parseFromString(html, "text/html");
  put(element, [...parsed.body.childNodes].map(copied));
}

function copied(node) {
  if (node.nodeType === Node.TEXT_NODE) return clean(node.data);
  if (node.nodeType !== Node.ELEMENT_NODE) return null;
  const inside = [...node.childNodes].map(copied);
  if (!TAGS.has(node.tagName)) return h("span", null, inside);
  // The page has its own headings: those of a text come below them.
  const tag = /^H[1-6]$/.test(node.tagName)
    ? `h${Math.min(6, Number(node.tagName[1]) + 2)}`
    : node.tagName.toLowerCase();
  const made = h(tag, attributes(node), inside);
  if (tag === "table")
    return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table" }, made);
  if (tag === "pre") return codeBlock(made);
  return made;
}

function attributes(node) {
  if (node.tagName === "A") {
    const href = node.getAttribute("href") ?? "";
    return /^(https?:|mailto:)/i.test(href)
      ? { href, target: "_blank", rel: "noopener noreferrer nofollow" }
      : {};
  }
  if (node.tagName === "OL" && node.hasAttribute("start")) return { start: node.getAttribute("start") };
  if (node.tagName === "TD" || node.tagName === "TH")
    return { class: `align-${/^(center|right)$/.exec(node.getAttribute("align") ?? "")?.[0] ?? "left"}` };
  return {};
}

function codeBlock(pre) {
  return h(
    "div",
    { class: "code" },
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Code" }, pre),
    copyButton(() => pre.textContent),
  );
}

/** Beside a text, never over it: nobody may miss a part of what they are asked to allow. */
export function copyButton(text, word = "") {
  const label = word ? [icon("copy"), word] : [icon("copy", 14)];
  const button = h(
    "button",
    {
      class: `button quiet small copy${word ? "" : " only"}`,
      type: "button",
      "aria-label": "Copy",
      title: "Copy",
      on: { click: copy },
    },
    label,
  );
  async function copy(event) {
    event.stopPropagation();
    try {
      await navigator.clipboard.writeText(text());
      put(button, icon("check", 14), word && "Copied");
    } catch {
      put(button, icon("cross", 14), word && "Not allowed");
    }
    setTimeout(() => put(button, label), 1500);
  }
  return button;
}

/** A text that still arrives: whole paragraphs as Markdown, the one that is being written as it is. */
export class Arriving {
  constructor(element) {
    this.element = element;
    this.text = "";
    this.done = h("div");
    this.tail = h("div", { class: "prose" }, h("p", { class: "as-it-is" }));
    put(element, this.done, this.tail);
  }

  show(text) {
    if (text === this.text) return;
    if (!text.startsWith(this.text)) put(this.done);
    this.text = text;
    const blocks = paragraphs(text);
    const open = blocks.pop() ?? "";
    for (let index = 0; index < blocks.length; index += 1) {
      const there = this.done.children[index] ?? this.done.appendChild(h("div"));
      prose(there, blocks[index]);
    }
    this.tail.firstChild.textContent = clean(open);
  }
}

/** Split at blank lines, but never inside a block of code. */
function paragraphs(text) {
  const found = [];
  let current = [];
  let fence = "";
  for (const line of text.split("\n")) {
    const mark = /^\s{0,3}(```+|~~~+)/.exec(line)?.[1];
    if (mark && !fence) fence = mark;
    else if (mark && mark.startsWith(fence)) fence = "";
    if (line.trim() === "" && !fence && current.length) {
      found.push(current.join("\n"));
      current = [];
    } else {
      current.push(line);
    }
  }
  found.push(current.join("\n"));
  return found;
}
