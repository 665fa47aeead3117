/* Keys. One table: what works is what the help shows. Keys without a modifier can be switched off. */

import { isTyping } from "./dom.js";

const PREFERENCE = "retinue.keys";

/** [keys, what it does, where it counts]. Views register what they can do under the same names. */
export const KEYS = [
  ["g a", "Ask something new", "go", "/"],
  ["g r", "Runs", "go", "/runs"],
  ["g p", "Approvals", "go", "/approvals"],
  ["g s", "Agents", "go", "/agents"],
  ["g t", "Stats", "go", "/stats"],
  ["g ,", "Settings", "go", "/settings"],
  ["/", "Search, or write a question", "do", "search"],
  ["r", "Review what waits for you", "do", "review"],
  ["[", "Previous tab of a run", "do", "tab-before"],
  ["]", "Next tab of a run", "do", "tab-after"],
  ["w", "Jump to the step that waits", "do", "waiting"],
  ["f", "Follow what happens, or stop following", "do", "follow"],
  ["x", "Expand or collapse all steps", "do", "expand"],
  ["C", "Cancel the run", "do", "cancel"],
  ["d", "Light, dark, or as the system", "do", "theme"],
  ["?", "These shortcuts", "do", "help"],
];

/** Keys that lists and dialogs have of their own, for the help. */
export const LOCAL_KEYS = [
  [
    "Steps",
    [
      ["↑ ↓", "previous, next"],
      ["← →", "collapse or to the parent, expand or to the first child"],
      ["Enter", "open or close"],
      ["Home End", "first, last"],
    ],
  ],
  [
    "Writing",
    [
      ["Enter", "send"],
      ["Shift Enter", "new line"],
      ["@", "choose an agent"],
      ["Esc", "leave the box"],
    ],
  ],
  [
    "Approval",
    [
      ["A", "approve"],
      ["T", "approve for the rest of the run"],
      ["E", "edit the arguments"],
      ["R", "reject with a reason"],
      ["Esc", "decide later"],
    ],
  ],
  [
    "Timeline",
    [
      ["+ −", "closer, wider"],
      ["← →", "earlier, later"],
      ["0", "everything"],
    ],
  ],
];

export const keysOn = () => localStorage.getItem(PREFERENCE) !== "off";
export const switchKeys = (on) => localStorage.setItem(PREFERENCE, on ? "on" : "off");

const deeds = new Map();

/** Say what a name does as long as an element is shown. Returns the function that takes it back. */
export function can(name, work) {
  const before = deeds.get(name);
  deeds.set(name, work);
  return () => {
    if (deeds.get(name) !== work) return;
    if (before) deeds.set(name, before);
    else deeds.delete(name);
  };
}

export const act = (name) => deeds.get(name)?.();

let pending = "";
let timer = 0;

export function listen(go) {
  addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || !keysOn()) return;
    if (isTyping(event.target) || document.querySelector("dialog[open]")) return;
    const keys = pending ? `${pending} ${event.key}` : event.key;
    clearTimeout(timer);
    pending = "";
    const found = KEYS.find(([name]) => name === keys);
    if (found) {
      const [, , kind, what] = found;
      if (kind === "do" && !deeds.has(what)) return;
      event.preventDefault();
      if (kind === "go") go(what);
      else act(what);
    } else if (KEYS.some(([name]) => name.startsWith(`${keys} `))) {
      pending = keys;
      timer = setTimeout(() => (pending = ""), 1200);
    }
  });
}
