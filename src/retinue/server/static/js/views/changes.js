/* Changes: what a workflow changed in its project, taking it back, and copies that wait to be merged. */

import { api } from "../api.js";
import { coded, h, put } from "../dom.js";
import { icon } from "../icons.js";
import { elsewhere, may } from "../session.js";
import { tell } from "../toast.js";
import { troubleLine } from "../trouble.js";
import { clean, clock, count } from "../words.js";
import { confirm, wordsOf } from "./confirm.js";
import { diffBlock, textBlock } from "./step-detail.js";

/** Characters of diffs that are open from the start. */
const OPEN_AT_FIRST = 20_000;
const LISTED = 20;

export class ChangesTab extends HTMLElement {
  connectedCallback() {
    this.onChange = () => this.#look();
    if (this.flow) this.watch(this.flow);
  }

  disconnectedCallback() {
    this.flow?.removeEventListener("change", this.onChange);
  }

  watch(flow) {
    this.flow = flow;
    if (!this.isConnected) return;
    flow.addEventListener("change", this.onChange);
    this.#look(true); // files may have changed while nobody looked
  }

  /** Ask again when the log says that something has changed; one question at a time. */
  async #look(again = false) {
    const { flow } = this;
    const signature = `${flow.rootId}|${flow.changeCount}|${flow.over}`;
    if (this.asking || (this.signature === signature && !again)) return;
    this.asking = true;
    this.signature = signature;
    try {
      const [found, { worktrees }] = await Promise.all([api.changes(flow.rootId), api.worktrees(flow.rootId)]);
      if (this.flow === flow) this.#draw(found, worktrees);
    } catch (error) {
      if (error.name !== "AbortError") put(this, troubleLine(error, () => this.#look(true)));
    } finally {
      this.asking = false;
    }
    if (this.isConnected) this.#look(); // whatever came meanwhile
  }

  #draw(found, copies) {
    const room = { left: OPEN_AT_FIRST };
    put(
      this,
      this.refusal && notice("error", this.refusal),
      copies.length > 0 && [
        h("h2", null, "Not merged yet"),
        copies.map((copy) => this.#copy(copy, room)),
        h("h2", null, "In the project"),
      ],
      this.#summary(found),
      found.unfinished &&
        notice("warning", "A command was cut off: what anyone changed since it began is among these."),
      found.left_out.length > 0 && leftOut("Not recorded, so it cannot be taken back:", found.left_out),
      h("div", { class: "changes" }, found.changes.map((change) => changed(change, room, this.flow.rootId))),
      found.more > 0 &&
        h("p", { class: "muted small" }, coded(`${count(found.more, "more path")}: \`retinue runs diff ${found.run_id}\` lists all of them.`)),
      this.flow.undone.length > 0 && this.flow.undone.map(takenBack),
    );
  }

  #summary({ changes, more, run_id: id }) {
    if (!changes.length)
      return h("p", { class: "muted" }, this.flow.undone.length ? "Nothing is left of what it changed." : "It changed nothing in the project.");
    const [added, removed] = ["added", "removed"].map((what) => changes.reduce((sum, one) => sum + one[what], 0));
    const kept = changes.filter((one) => one.stands === "refused").length;
    const said = `${count(changes.length + more, "path")} changed, ${count(added, "line")} added, ${removed.toLocaleString("en")} removed`;
    return h(
      "div",
      { class: "row wrap" },
      h("p", { class: "grow" }, said, kept > 0 && `; ${kept === 1 ? "one is" : `${kept} are`} no longer as it was left`),
      changes.length > kept + changes.filter((one) => one.stands === "as_before").length && this.#undoButton(id),
    );
  }

  #undoButton(id) {
    const there = elsewhere(this.flow.root.cwd);
    if (there) return h("span", { class: "small muted" }, coded(`It worked ${there}: \`retinue runs undo ${id}\` takes it back.`));
    if (!may("approve")) return null;
    if (!this.flow.over && this.flow.outcome !== "interrupted")
      return h("span", { class: "small muted" }, "It can be taken back when the run has ended.");
    return h("button", { class: "button", type: "button", on: { click: () => this.#undo() } }, icon("undo"), "Undo");
  }

  /** Say what would be taken back and what would not; then do it if it is wanted. */
  async #undo() {
    const { rootId } = this.flow;
    this.refusal = "";
    try {
      const [planned, { changes }] = await Promise.all([api.undo(rootId, { dry_run: true }), api.changes(rootId)]);
      const made = new Set(changes.filter(({ what }) => what === "created" || what === "renamed").map(({ path }) => path));
      const done = await confirm(question(planned, made, () => takeBack(rootId, planned.refused.length > 0)));
      if (done) tell(`${count(done.paths.length, "path")} taken back.`);
    } catch (error) {
      this.refusal = wordsOf(error);
    }
    this.#look(true);
  }

  #copy(copy, room) {
    const { conflicts, changes } = copy;
    const deeds = may("approve") && !elsewhere(this.flow.root.cwd);
    const rest = conflicts.length > 0;
    return h(
      "section",
      { class: "worktree stack tight", "aria-label": `What ${copy.agent} made of its copy` },
      h(
        "div",
        { class: "row wrap" },
        h("p", { class: "grow" }, h("strong", null, copy.agent), " worked in a copy of the project, ", h("code", { class: "path", title: copy.path }, copy.branch || copy.path.split("/").at(-1)), "."),
        deeds && h("button", { class: "button", type: "button", on: { click: () => this.#discard(copy) } }, icon("trash"), "Discard"),
        deeds &&
          changes.length > 0 &&
          h(
            "button",
            { class: "button primary", type: "button", on: { click: (event) => this.#merge(event.currentTarget, copy, rest) } },
            icon("check"),
            rest ? "Merge the rest" : "Merge",
          ),
      ),
      copy.left_out.length > 0 && leftOut("Not merged:", copy.left_out),
      conflicts.map((one) => [notice("warning", `${one.path}: ${one.why}`), one.text && textBlock(one.text)]),
      h("div", { class: "changes" }, changes.map((change) => changed(change, room, ""))),
      copy.more > 0 && h("p", { class: "muted small" }, `${count(copy.more, "more path")}.`),
    );
  }

  async #merge(button, copy, rest) {
    button.disabled = true;
    this.refusal = "";
    try {
      const { text } = await api.merge(copy.run_id, { rest });
      tell(text.split("\n")[0]);
    } catch (error) {
      this.refusal = wordsOf(error);
    }
    this.#look(true);
  }

  async #discard(copy) {
    const gone = count(copy.changes.length + copy.more + copy.conflicts.length, "changed path");
    await confirm({
      title: "Throw this copy away?",
      about: h("p", { class: "muted" }, `What ${copy.agent} made of it, ${gone}, is gone for good. The project stays as it is.`),
      yes: "Throw it away",
      no: "Keep it",
      symbol: "trash",
      deed: () => api.merge(copy.run_id, { discard: true }),
    });
    this.#look(true);
  }
}

/** Whole or, where something is refused and that was said, the rest. If files changed just now, say so. */
async function takeBack(rootId, rest) {
  const done = await api.undo(rootId, { rest });
  if (done.paths.length || !done.refused.length) return done;
  const [{ path, why }] = done.refused;
  throw new Error(`Nothing was touched: ${path}: ${why}`);
}

/** `made`: paths that the run made, which are gone when it is taken back. */
function question({ paths, refused }, made, deed) {
  const gone = paths.filter((path) => made.has(path));
  const back = paths.filter((path) => !made.has(path));
  return {
    title: paths.length ? "Take back these changes?" : "Nothing can be taken back",
    about: [
      back.length > 0 && [h("p", null, "As they were before the run:"), listed(back)],
      gone.length > 0 && [h("p", null, "Removed, since the run made them:"), listed(gone)],
      refused.length > 0 && [
        h("p", null, "Left as they are:"),
        listed(refused.map(({ path, why }) => `${path}: ${why}`)),
      ],
      !paths.length && !refused.length && h("p", null, "All of it is as it was before."),
    ],
    yes: paths.length ? (refused.length ? "Take back the rest" : "Take back") : "",
    no: paths.length ? "Leave them" : "Close",
    symbol: "undo",
    deed,
  };
}

function listed(lines) {
  const more = lines.length - LISTED;
  return h(
    "ul",
    { class: "tight mono small paths" },
    lines.slice(0, LISTED).map((line) => h("li", null, clean(line))),
    more > 0 && h("li", null, `and ${more.toLocaleString("en")} more`),
  );
}

const notice = (tone, text) =>
  h("p", { class: `notice ${tone}`, role: tone === "error" ? "alert" : null }, icon("warning"), h("span", null, clean(text)));

const leftOut = (words, lines) =>
  h("div", { class: "notice warning" }, icon("warning"), h("div", { class: "grow" }, words, listed(lines)));

const takenBack = ({ by, at, paths, left }) =>
  h(
    "details",
    { class: "small muted" },
    h("summary", null, `${count(paths.length, "path")} taken back by ${by}, ${clock(at)}${left.length ? `; ${left.length} left as ${left.length === 1 ? "it was" : "they were"}` : ""}`),
    listed([...paths, ...left]),
  );

const STANDS = { as_before: ["completed", "as before"], refused: ["waiting", "undo leaves it"] };

/** One path, to be opened. The first ones are, as long as they are short. */
function changed(change, room, rootId) {
  const open = change.diff.length > 0 && change.diff.length <= room.left;
  if (open) room.left -= change.diff.length;
  const [tone, word] = STANDS[change.stands] ?? [];
  const who = (change.agents ?? []).filter(Boolean).join(", ");
  const box = h(
    "details",
    { class: "change", open },
    h(
      "summary",
      null,
      h("span", { class: "twist", "aria-hidden": "true" }, icon("chevron", 12)),
      h("span", { class: "what" }, change.what),
      h("span", { class: "path mono" }, clean(change.was ? `${change.was} → ${change.path}` : change.path)),
      change.diff && h("span", { class: "num lines" }, h("ins", null, `+${change.added}`), " ", h("del", null, `−${change.removed}`)),
      who && h("span", { class: "muted small" }, who),
      word && h("span", { class: `badge ${tone}` }, word),
    ),
  );
  // Made when it is looked at: a workflow may have changed hundreds of files.
  const fill = () => box.open && box.children.length === 1 && box.append(inside(change, rootId));
  box.addEventListener("toggle", fill);
  fill();
  return box;
}

function inside({ note, diff, cut, why }, rootId) {
  return h(
    "div",
    { class: "stack tight" },
    why && notice("warning", `Undo leaves it as it is: ${why}.`),
    note && h("p", { class: "small" }, clean(note)),
    diff && diffBlock(diff.replace(/\n$/, "")),
    cut && h("p", { class: "small muted" }, coded(rootId ? `There is more: \`retinue runs diff ${rootId}\` shows all of it.` : "There is more of it.")),
    !diff && !note && !cut && h("p", { class: "small muted" }, "No line differs."),
  );
}

customElements.define("r-changes", ChangesTab);
