/* Addresses after the #: which view an address means, and going there. Views are loaded when first shown. */

/** @type {[RegExp, string, () => Promise<unknown>, string][]} */
const VIEWS = [
  [/^\/?$/, "r-ask", () => import("./views/ask.js"), "Ask"],
  [/^\/run\/(?<id>[\w-]+)(?:\/(?<tab>\w+))?$/, "r-run", () => import("./views/run.js"), "Run"],
  [/^\/runs$/, "r-runs", () => import("./views/runs.js"), "Runs"],
  [/^\/compare\/(?<a>[\w-]+)\/(?<b>[\w-]+)$/, "r-compare", () => import("./views/compare.js"), "Compare"],
  [/^\/approvals$/, "r-approvals", () => import("./views/approvals.js"), "Approvals"],
  [/^\/agents(?:\/(?<name>[\w.-]+))?$/, "r-agents", () => import("./views/agents.js"), "Agents"],
  [/^\/servers$/, "r-servers", () => import("./views/servers.js"), "MCP servers"],
  [/^\/stats$/, "r-stats", () => import("./views/stats.js"), "Stats"],
  [/^\/settings$/, "r-settings", () => import("./views/settings.js"), "Settings"],
];

export function place() {
  const [path, query = ""] = location.hash.slice(1).split("?");
  for (const [pattern, tag, load, title] of VIEWS) {
    const found = pattern.exec(path);
    if (found)
      return { path, tag, load, title, params: { ...found.groups }, query: new URLSearchParams(query) };
  }
  return { path, tag: null, load: null, title: "Not found", params: {}, query: new URLSearchParams() };
}

export function go(path, { replace = false } = {}) {
  if (replace) {
    history.replaceState(null, "", `#${path}`);
    dispatchEvent(new HashChangeEvent("hashchange"));
  } else {
    location.hash = path;
  }
}

export const runPath = (id, tab) => `/run/${id}${tab ? `/${tab}` : ""}`;

/** Write what a view shows into its address, without going anywhere. */
export function remember(query) {
  const [path] = location.hash.slice(1).split("?");
  const written = query.toString();
  history.replaceState(null, "", `#${path}${written ? `?${written}` : ""}`);
}
