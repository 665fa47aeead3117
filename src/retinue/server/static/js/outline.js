/* A large workflow before its events are read: the root's own log, and one line for each run below it.
 *
 * The log of a thousand runs takes a while to send. What the views show first needs a hundredth of it, so that
 * comes first; the whole takes its place as soon as it is there.
 */

import { api } from "./api.js";
import { Workflow } from "./fold.js";
import { HANDLERS } from "./handlers.js";

const MOST = 5000;

/** The outline of a workflow with so many events; null if the root alone has too many for a first look. */
export async function outline(rootId, expected, signal) {
  const [tree, own] = await Promise.all([
    api.tree(rootId, signal),
    api.events(rootId, { own: true, limit: MOST, standing: true }, signal),
  ]);
  if (own.more) return null;
  const flow = new Workflow(rootId);
  for (const event of own.events) flow.apply(event);
  for (const row of tree.runs) if (row.parent_id) foresee(flow, row);
  flow.stand(own.standing ?? []);
  flow.expected = expected;
  return flow;
}

/** A run as its row in the list of runs has it. */
function foresee(flow, row) {
  const parent = flow.runs.get(row.parent_id);
  if (!parent) return;
  const at = row.created_at;
  if (!flow.runs.has(row.run_id))
    HANDLERS.child_started(flow, parent, { child_id: row.run_id, agent: row.agent, prompt: row.task, at });
  const run = flow.runs.get(row.run_id);
  Object.assign(run, {
    unread: true,
    label: row.label,
    prompt: row.task,
    model: row.model,
    began: at,
    failure: row.error,
  });
}
