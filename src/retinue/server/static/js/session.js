/* Who looks at the page, and what they may do. */

import { api } from "./api.js";

const LADDER = ["watch", "ask", "approve", "admin"];

export const session = { me: null };

export async function enter() {
  session.me = await api.me();
  return session.me;
}

export const may = (role) => LADDER.indexOf(session.me?.role ?? "watch") >= LADDER.indexOf(role);

/** Where a run worked, if that is not the folder of this server. */
export function elsewhere(folder) {
  return folder && folder !== session.me?.project ? `in ${folder.split("/").at(-1) || folder}` : "";
}
