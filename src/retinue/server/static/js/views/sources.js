/* Sources: what was really fetched and read, what was only cited, and what is wrong with the citations. */

import { h, paced, put } from "../dom.js";
import { icon } from "../icons.js";
import { count, moment } from "../words.js";
import { knowledgeBlock, problemsNotice, sourceName } from "./citing.js";

export class Sources extends HTMLElement {
  connectedCallback() {
    this.draw = paced(() => this.#draw());
    this.onChange = () => this.draw();
    this.only = false;
    if (this.flow) this.watch(this.flow);
  }

  disconnectedCallback() {
    this.draw.cancel();
    this.flow?.removeEventListener("change", this.onChange);
  }

  watch(flow) {
    this.flow = flow;
    if (!this.isConnected) return;
    flow.addEventListener("change", this.onChange);
    this.draw();
  }

  #draw() {
    const { sources, knowledge, root } = this.flow;
    const problems = root?.report?.problems ?? [];
    const signature = `${sources.length}|${sources.filter((one) => one.verified).length}|${problems.length}|${knowledge !== null}|${this.only}`;
    if (this.signature === signature) return;
    this.signature = signature;
    if (!sources.length && !knowledge) {
      put(
        this,
        h(
          "div",
          { class: "empty" },
          icon("sources"),
          h("h2", null, "No sources yet"),
          h(
            "p",
            null,
            "Pages that are fetched and files that are cited appear here, each checked against what was really read.",
          ),
        ),
      );
      return;
    }
    const doubtful = sources.filter((one) => !one.verified);
    const shown = this.only ? doubtful : sources;
    put(
      this,
      problems.length > 0 && problemsNotice(problems),
      knowledge && knowledgeBlock(knowledge),
      h(
        "div",
        { class: "row wrap" },
        h(
          "p",
          { class: "grow" },
          sources.length
            ? `${count(sources.length - doubtful.length, "source")} verified`
            : "The answer itself cites no source.",
          doubtful.length ? `, ${doubtful.length} not` : "",
        ),
        doubtful.length > 0 &&
          h(
            "button",
            {
              class: "button small",
              "aria-pressed": String(this.only),
              on: {
                click: () => {
                  this.only = !this.only;
                  this.draw();
                },
              },
            },
            "Only unverified",
          ),
      ),
      h("ul", { class: "plain source-list" }, shown.map(card)),
    );
  }
}

function card(source) {
  const name = sourceName(source);
  const safe = source.url && /^https?:/i.test(source.url);
  return h(
    "li",
    { class: "source" },
    h(
      "span",
      { class: `badge ${source.verified ? "completed" : "waiting"}` },
      icon(source.verified ? "check" : "warning", 12),
      source.verified ? "Verified" : "Not verified",
    ),
    h(
      "div",
      { class: "grow" },
      h(
        "div",
        { class: "source-title" },
        safe
          ? h("a", { href: source.url, target: "_blank", rel: "noopener noreferrer nofollow" }, name)
          : h("span", { class: source.path ? "mono" : "" }, name),
      ),
      source.url && h("div", { class: "small muted source-url" }, source.url),
      source.note && h("div", { class: "small source-note" }, source.note),
      h("div", { class: "small muted" }, about(source)),
    ),
  );
}

function about(source) {
  return [
    source.fetched_at ? `fetched ${moment(source.fetched_at)}` : "",
    source.status ? `status ${source.status}` : "",
    source.verified || source.note
      ? ""
      : source.url
        ? "cited, but never fetched in this run, or not as quoted"
        : "cited, but not read in this run, or not as quoted",
  ]
    .filter(Boolean)
    .join(" · ");
}

customElements.define("r-sources", Sources);
