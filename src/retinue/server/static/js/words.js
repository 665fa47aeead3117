/* Facts as short words: times, tokens, money, arguments. Pure functions, the same words as in the terminal. */

export function duration(seconds) {
  seconds = Math.max(0, seconds);
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  const two = (number) => String(number).padStart(2, "0");
  if (whole < 3600) return `${Math.floor(whole / 60)} m ${two(whole % 60)} s`;
  return `${Math.floor(whole / 3600)} h ${two(Math.floor((whole % 3600) / 60))} m`;
}

export const count = (number, noun, many = `${noun}s`) =>
  `${number.toLocaleString("en")} ${number === 1 ? noun : many}`;

/** Runs that another run started: the one word for them. */
export const children = (number) => count(number, "child", "children");

/** Time in which a person was asked: never part of the time that something took. */
export const waited = (seconds, still = false) =>
  seconds >= 0.05 ? `${still ? "waiting" : "waited"} ${duration(seconds)}` : "";

/** How hard a model was asked to think; nothing where it was told nothing. */
export const effort = (level) => (level ? `${level} effort` : "");

/** A server with one model is asked for no name: until it has answered, nobody knows what it is called. */
export const modelName = (name) => (name.endsWith(":") ? `${name.slice(0, -1)}, its only model` : name);

export function tokens(number) {
  if (number < 1000) return String(number);
  if (number < 999_500) return `${(number / 1000).toFixed(number < 99_950 ? 1 : 0)}k`;
  return `${(number / 1_000_000).toFixed(1)}M`;
}

/** US dollars, with as many digits as it takes to see something. Null is not zero: the price is not known. */
export function money(cost) {
  if (cost === null || cost === undefined) return "cost unknown";
  if (cost === 0) return "$0";
  if (cost < 0.0001) return "<$0.0001";
  if (cost < 0.01) return `$${cost.toFixed(4)}`;
  if (cost < 1) return `$${cost.toFixed(3)}`;
  return `$${cost.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 })}`;
}

export function size(bytes) {
  if (bytes < 1000) return count(bytes, "byte");
  for (const unit of ["KB", "MB"]) {
    bytes /= 1000;
    if (bytes < 1000) return `${bytes.toFixed(bytes < 10 ? 1 : 0)} ${unit}`;
  }
  return `${(bytes / 1000).toFixed(1)} GB`;
}

/** @type {[number, number, string][]} */
const AGES = [
  [90, 1, "s"],
  [5400, 60, "min"],
  [129_600, 3600, "h"],
  [1_209_600, 86_400, "d"],
];

export function ago(at, now = Date.now() / 1000) {
  const past = Math.max(0, now - at);
  if (past < 10) return "just now";
  for (const [limit, unit, name] of AGES)
    if (past < limit) return `${Math.round(past / unit)} ${name} ago`;
  return day(at);
}

export const day = (at) => new Date(at * 1000).toLocaleDateString("en-CA");
export const clock = (at) =>
  new Date(at * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
export const moment = (at) => `${day(at)} ${clock(at)}`;

/** A day for a heading: today and yesterday by name. */
export function dayName(at) {
  const now = Date.now() / 1000;
  if (day(at) === day(now)) return "Today";
  if (day(at) === day(now - 86_400)) return "Yesterday";
  return new Date(at * 1000).toLocaleDateString("en", {
    weekday: "long",
    day: "numeric",
    month: "long",
    year: "numeric",
  });
}

// Marks that reorder text on the screen: with them a command could read as another one.
const REORDERING = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
const CONTROLS = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f]/g;

/** Text of others, as it is: what would change how it reads is shown, not obeyed. */
export function clean(text) {
  return text
    .replace(REORDERING, (mark) => `⟨U+${mark.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`)
    .replace(CONTROLS, (mark) =>
      mark === "\u007f" ? "␡" : String.fromCharCode(0x2400 + mark.charCodeAt(0)),
    );
}

export function oneLine(text, most = 200) {
  const flat = clean(
    text
      .slice(0, most * 4)
      .replace(/\s+/g, " ")
      .trim(),
  );
  return flat.length <= most ? flat : `${flat.slice(0, most - 1)}…`;
}

/** The words of Markdown without its marks, for where there is only one line. */
export const unmarked = (text) =>
  text
    .replace(/^\s*(#{1,6}|[-*>])\s+/gm, "")
    .replace(/\*\*(\S|\S.*?\S)\*\*/g, "$1")
    .replace(/`+/g, "");

/** The arguments of a call as an object, or null if they are none. */
export function parsed(raw) {
  try {
    const value = JSON.parse(raw || "{}");
    return value !== null && typeof value === "object" && !Array.isArray(value) ? value : null;
  } catch {
    return null;
  }
}

// What says most about a call, in the order it is looked for.
const TELLING = [
  "command",
  "pattern",
  "query",
  "path",
  "file_path",
  "url",
  "label",
  "name",
  "agent",
  "agent_id",
  "prompt",
  "task_prompt",
  "task",
  "question",
  "target",
  "expression",
  "code",
];

/** The arguments of a call in a few words. */
export function brief(raw, most = 160) {
  const given = parsed(raw);
  if (given === null) return oneLine(raw, most);
  const told = TELLING.find((name) => typeof given[name] === "string" && given[name].trim());
  if (told !== undefined) return oneLine(given[told] + aside(given, told), most);
  const some = Object.entries(given).filter(([, value]) => value !== null && value !== "");
  return oneLine(some.map(([name, value]) => `${name}=${plain(value)}`).join(" "), most);
}

function aside(given, told) {
  if (told !== "pattern" && told !== "query") return "";
  const where = given.path || given.scope || given.glob;
  return typeof where === "string" && where !== "." ? ` in ${where}` : "";
}

export const plain = (value) => (typeof value === "string" ? value : JSON.stringify(value));
