/* Elements without markup. Text given to `h` is always text: no function here reads HTML. */

const SVG = "http://www.w3.org/2000/svg";

/** An element: `h("button", { class: "quiet", on: { click } }, "Cancel")`. */
export function h(tag, props, ...children) {
  return fill(document.createElement(tag), props, children);
}

/** An SVG element, made the same way. */
export function s(tag, props, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) set(element, name, value);
  add(element, children);
  return element;
}

function set(element, name, value) {
  if (value === undefined || value === null || value === false) return;
  if (name === "on")
    for (const [type, listener] of Object.entries(value)) element.addEventListener(type, listener);
  else if (name === "data") Object.assign(element.dataset, value);
  else if (name === "style")
    for (const [key, each] of Object.entries(value)) element.style.setProperty(key, each);
  else if (name === "value" || name === "checked" || name === "indeterminate") element[name] = value;
  else element.setAttribute(name, value === true ? "" : String(value));
}

function add(element, children) {
  for (const child of children) {
    if (Array.isArray(child)) add(element, child);
    else if (child !== null && child !== undefined && child !== false) element.append(child);
  }
}

/** A sentence with `names` in it, and the names as code. */
export const coded = (text) =>
  text.split(/`([^`]+)`/).map((part, index) => (index % 2 ? h("code", null, part) : part));

/** Put these in the place of whatever is inside. */
export function put(element, ...children) {
  const fragment = document.createDocumentFragment();
  add(fragment, children);
  element.replaceChildren(fragment);
  return element;
}

/** Change a text only if it differs: an equal write would still be announced and laid out again. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function attribute(element, name, value) {
  if (value === null || value === undefined || value === false) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, String(value));
}

/** A function that runs `work` once in the next frame, however often it is called before. */
export function perFrame(work) {
  let asked = 0;
  const ask = () => {
    asked ||= requestAnimationFrame(() => {
      asked = 0;
      work();
    });
  };
  ask.cancel = () => {
    cancelAnimationFrame(asked);
    asked = 0;
  };
  return ask;
}

/** The same, with a rest between two runs that is four times as long as the work took: however much there is to
 * draw, the page stays quick for whoever uses it. */
export function paced(work) {
  let ready = 0;
  let timer = 0;
  const frame = perFrame(() => {
    const began = performance.now();
    work();
    const ended = performance.now();
    ready = ended - began > 8 ? ended + (ended - began) * 4 : 0;
  });
  const ask = () => {
    const wait = ready - performance.now();
    if (wait <= 0) frame();
    else timer ||= setTimeout(() => ((timer = 0), frame()), wait);
  };
  ask.cancel = () => {
    frame.cancel();
    clearTimeout(timer);
    timer = 0;
  };
  return ask;
}

/** Keep the children of an element in step with a list: those that stay are moved, never made again. */
export function keyed(element, items, key, make, update) {
  const old = (element.keyedChildren ??= new Map());
  const kept = new Map();
  let place = element.firstChild;
  for (const item of items) {
    const name = key(item);
    let child = old.get(name);
    if (child === undefined) child = make(item);
    old.delete(name);
    kept.set(name, child);
    update?.(child, item);
    if (child === place) place = place.nextSibling;
    else element.insertBefore(child, place);
  }
  for (const gone of old.values()) gone.remove();
  element.keyedChildren = kept;
}

export function debounce(wait, work) {
  let timer = 0;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...given), wait);
  };
}

/** What is typed somewhere belongs there: shortcuts keep out. */
export function isTyping(target) {
  return (
    target instanceof HTMLElement &&
    (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName))
  );
}

let serial = 0;
export const newId = (prefix) => `${prefix}-${++serial}`;

/** Take an element out of the file that the view needs: its stylesheet, once. */
export function stylesheet(name) {
  const href = new URL(`../css/${name}.css`, import.meta.url).href;
  const there = [...document.querySelectorAll("link")].find((link) => link.rel === "stylesheet" && link.href === href);
  if (there) return there.sheet ? Promise.resolve() : loaded(there);
  const link = h("link", { rel: "stylesheet", href });
  const done = loaded(link);
  document.head.append(link);
  return done;
}

/** @returns {Promise<void>} */
function loaded(link) {
  return new Promise((resolve) => {
    link.addEventListener("load", () => resolve(), { once: true });
    link.addEventListener("error", () => (link.remove(), resolve()), { once: true }); // so that it is asked for again
  });
}
