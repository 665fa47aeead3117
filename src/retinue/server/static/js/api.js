/* The public API, and nothing else: the page can do what any other client can. */

import { emoji } from "./emoji.js";

const BASE = new URL("api/v1/", document.baseURI);

export class ApiError extends Error {
  constructor(status, facts) {
    super(facts.message ?? `the server answered ${status}`);
    this.status = status;
    this.code = facts.code ?? "refused";
    this.fix = facts.fix ?? "";
    this.details = facts.details ?? {};
  }

  /** Nothing came back at all: the server is away, or the network is. */
  get offline() {
    return this.status === 0;
  }
}

/** Told of every refusal for want of a token, so that the page can ask for one. */
export const access = new EventTarget();

export function address(path, query = {}) {
  const url = new URL(path, BASE);
  for (const [name, value] of Object.entries(query))
    if (value !== undefined && value !== null && value !== "" && value !== false)
      url.searchParams.set(name, value);
  return url.href;
}

async function send(method, path, { query = {}, body = undefined, signal = undefined } = {}) {
  /** @type {RequestInit & { headers: Record<string, string> }} */
  const options = { method, signal, headers: { Accept: "application/json" }, credentials: "same-origin" };
  if (method !== "GET") {
    options.headers["Content-Type"] = "application/json";
    options.headers["X-Retinue"] = "1";
    options.body = JSON.stringify(body ?? {});
  }
  let response;
  try {
    response = await fetch(address(path, query), options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, { code: "offline", message: "the server cannot be reached" });
  }
  const answer = response.status === 204 ? null : await response.json().catch(() => null);
  if (response.ok) return answer;
  if (response.status === 401) access.dispatchEvent(new Event("needed"));
  throw new ApiError(response.status, answer?.error ?? {});
}

export const get = (path, query, signal) => send("GET", path, { query, signal });
export const post = (path, body, signal) => send("POST", path, { body, signal });
export const put = (path, body) => send("PUT", path, { body });
export const remove = (path) => send("DELETE", path);

const run = (id, what = "") => `runs/${encodeURIComponent(id)}${what}`;

/** @type {PageApi} */
export const api = {
  me: () => get("me"),
  login: (token) => post("login", { token }),
  logout: () => post("logout"),
  start: (given) => post("runs", given),
  runs: (query, signal) => get("runs", query, signal),
  run: (id, signal) => get(run(id), {}, signal),
  tree: (id, signal) => get(run(id, "/tree"), {}, signal),
  events: (id, query, signal) => get(run(id, "/events"), query, signal),
  streamAddress: (id, after) => address(run(id, "/stream"), { after, standing: true }),
  report: (id) => get(run(id, "/report")),
  cancel: (id, reason = "") => post(run(id, "/cancel"), { reason }),
  resume: (id, given = {}) => post(run(id, "/resume"), given),
  fork: (id, given = {}) => post(run(id, "/fork"), given),
  message: (id, text) => post(run(id, "/message"), { text }),
  changes: (id) => get(run(id, "/changes")),
  undo: (id, given = {}) => post(run(id, "/undo"), given),
  worktrees: (id) => get(run(id, "/worktrees")),
  merge: (id, given = {}) => post(run(id, "/merge"), given),
  remove: (id) => remove(run(id)),
  exportAddress: (id, format) => address(run(id, "/export"), { format }),
  approvals: (signal) => get("approvals", {}, signal),
  answer: (id, given) => post(`approvals/${encodeURIComponent(id)}`, given),
  newsAddress: () => address("stream"),
  agents: async () => {
    const found = await get("agents");
    for (const one of found.agents) one.icon = emoji(one.icon);
    return found;
  },
  agent: (name) => get(`agents/${encodeURIComponent(name)}`),
  tools: () => get("tools"),
  skills: () => get("skills"),
  servers: () => get("mcp"),
  settings: () => get("settings"),
  change: (settings) => put("settings", { settings }),
  stats: (query) => get("stats", query),
  compare: (a, b) => get("compare", { a, b }),
  render: (texts) => post("render", { texts }),
};

const kept = new Map();

/** Something that hardly changes, asked for once and again after a minute.
 * @template T @param {string} name @param {() => Promise<T>} ask @returns {Promise<T>} */
export function once(name, ask) {
  const held = kept.get(name);
  if (held && performance.now() - held.at < 60_000) return held.answer;
  const answer = ask().catch((error) => {
    kept.delete(name);
    throw error;
  });
  kept.set(name, { at: performance.now(), answer });
  return answer;
}

export const agents = () => once("agents", api.agents);
export const settings = () => once("settings", api.settings);
export const forget = (name) => kept.delete(name);
