/* Who looks at the page, and what they may do. */

import { api } from "./api.js";

const LADDER = ["watch", "ask", "approve", "admin"];

export const session = { me: null };

export async function enter() {
  session.me = await api.me();
  return session.me;
}

export const may = (role) => LADDER.indexOf(session.me?.role ?? "watch") >= LADDER.indexOf(role);
