/* Sources: what was really fetched and read, what was only cited, and what is wrong with the citations. */

import { h, put } from "../dom.js";
import { icon } from "../icons.js";
import { copyButton } from "../prose.js";
import { count } from "../words.js";
import { claimsBlock } from "./claims.js";
import { evidence, knowledgeBlock, problemsNotice, sourceName, stepOf } from "./citing.js";
import { FlowView } from "./flow-view.js";

export class Sources extends FlowView {
  connectedCallback() {
    this.only = false;
    this.begin(() => this.#draw());
  }

  #draw() {
    const { sources, knowledge, root } = this.flow;
    const problems = root?.report?.problems ?? [];
    const signature = `${sources.length}|${sources.filter((one) => one.verified).length}|${problems.length}|${root?.report?.claims?.length}|${knowledge !== null}|${this.only}|${this.flow.expected}`;
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
      claimsBlock(root?.report),
      knowledge && knowledgeBlock(knowledge),
      h(
        "div",
        { class: "row wrap" },
        h(
          "p",
          { class: "grow" },
          sources.length
            ? `${count(sources.length, "source")}: ${doubtful.length ? `${sources.length - doubtful.length} verified, ${doubtful.length} not` : "verified"}`
            : "The answer itself cites no source.",
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
      h(
        "p",
        { class: "small muted" },
        "Verified: a step of this run really fetched the page or read these lines. Whether a page says what is claimed, the claims above say.",
      ),
      h("ul", { class: "plain source-list" }, shown.map((one) => card(one, this.flow))),
    );
  }
}

function card(source, flow) {
  const name = sourceName(source);
  const safe = source.url && /^https?:/i.test(source.url);
  const step = source.verified ? stepOf(flow, source) : null;
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
      source.url && source.title && h("div", { class: "small muted source-url" }, source.url),
      !source.verified && source.note && h("div", { class: "small source-note" }, sentence(source.note)),
      (source.verified || !source.note) && h("div", { class: "small" }, `${evidence(source, step)}.`),
      facts(source),
    ),
    step && toStep(step),
  );
}

const sentence = (text) => `${text[0].toUpperCase()}${text.slice(1)}.`;

/** What came back, for whoever wants to look again. */
function facts(source) {
  const known = [
    source.status && [`Answer ${source.status}`],
    source.saved_as && ["kept as ", h("code", null, source.saved_as)],
    source.sha256 && [
      "SHA-256 ",
      h("code", { title: source.sha256 }, `${source.sha256.slice(0, 12)}…`),
      copyButton(() => source.sha256),
    ],
  ].filter(Boolean);
  return (
    known.length > 0 &&
    h(
      "div",
      { class: "small muted source-facts" },
      known.map((one) => h("span", null, one)),
    )
  );
}

const toStep = (step) =>
  h(
    "button",
    {
      class: "button quiet small",
      type: "button",
      on: {
        click: ({ target }) => target.dispatchEvent(new CustomEvent("show", { detail: step, bubbles: true })),
      },
    },
    icon("steps"),
    "Its step",
  );

customElements.define("r-sources", Sources);
