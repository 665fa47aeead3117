/* What the page's scripts say to each other without importing it. For `tsc` alone: no browser is sent this. */

type Place = ReturnType<typeof import("../src/retinue/server/static/js/router.js").place>;

/** Of the page's own elements, which carry their facts in `detail`. */
interface HTMLElementEventMap {
  fork: CustomEvent;
  send: CustomEvent;
  show: CustomEvent;
  speak: CustomEvent;
  tab: CustomEvent;
}

interface HTMLElement {
  /** Where the page is: the shell gives it to a view before it is shown. */
  place: Place;
}

/** Of the inbox. */
interface EventTarget {
  addEventListener(type: "change" | "deleted" | "run", listener: (event: CustomEvent) => void): void;
  removeEventListener(type: "deleted", listener: (event: CustomEvent) => void): void;
}

/** What `api.js` asks the server, and what it is answered (scripts/page_api.d.ts, which the server's description is written to). */
interface PageApi {
  me(): Promise<Api.Answers["GET /me"]>;
  login(token: string): Promise<Api.Answers["POST /login"]>;
  logout(): Promise<Api.Answers["POST /logout"]>;
  start(given: object): Promise<Api.Answers["POST /runs"]>;
  runs(query?: object, signal?: AbortSignal): Promise<Api.Answers["GET /runs"]>;
  run(id: string, signal?: AbortSignal): Promise<Api.Answers["GET /runs/{run_id}"]>;
  tree(id: string, signal?: AbortSignal): Promise<Api.Answers["GET /runs/{run_id}/tree"]>;
  events(id: string, query?: object, signal?: AbortSignal): Promise<Api.Answers["GET /runs/{run_id}/events"]>;
  streamAddress(id: string, after: number): string;
  report(id: string): Promise<Api.Answers["GET /runs/{run_id}/report"]>;
  cancel(id: string, reason?: string): Promise<Api.Answers["POST /runs/{run_id}/cancel"]>;
  resume(id: string, given?: object): Promise<Api.Answers["POST /runs/{run_id}/resume"]>;
  fork(id: string, given?: object): Promise<Api.Answers["POST /runs/{run_id}/fork"]>;
  message(id: string, text: string): Promise<Api.Answers["POST /runs/{run_id}/message"]>;
  changes(id: string): Promise<Api.Answers["GET /runs/{run_id}/changes"]>;
  undo(id: string, given?: object): Promise<Api.Answers["POST /runs/{run_id}/undo"]>;
  worktrees(id: string): Promise<Api.Answers["GET /runs/{run_id}/worktrees"]>;
  merge(id: string, given?: object): Promise<Api.Answers["POST /runs/{run_id}/merge"]>;
  remove(id: string): Promise<Api.Answers["DELETE /runs/{run_id}"]>;
  exportAddress(id: string, format: string): string;
  approvals(signal?: AbortSignal): Promise<Api.Answers["GET /approvals"]>;
  answer(id: string, given: object): Promise<Api.Answers["POST /approvals/{approval_id}"]>;
  newsAddress(after?: number): string;
  agents(): Promise<Api.Answers["GET /agents"]>;
  agent(name: string): Promise<Api.Answers["GET /agents/{name}"]>;
  tools(): Promise<Api.Answers["GET /tools"]>;
  skills(): Promise<Api.Answers["GET /skills"]>;
  servers(): Promise<Api.Answers["GET /mcp"]>;
  settings(): Promise<Api.Answers["GET /settings"]>;
  change(settings: object): Promise<Api.Answers["PUT /settings"]>;
  stats(query: object): Promise<Api.Answers["GET /stats"]>;
  compare(a: string, b: string): Promise<Api.Answers["GET /compare"]>;
  render(texts: string[]): Promise<Api.Answers["POST /render"]>;
}
