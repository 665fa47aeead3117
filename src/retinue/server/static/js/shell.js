/* The frame around every view: navigation, recent runs, what waits, the connection, and the view itself. */

import { access, api } from "./api.js";
import { inbox } from "./inbox.js";
import { h, keyed, put, say } from "./dom.js";
import { icon, statusMark } from "./icons.js";
import { go, place, runPath } from "./router.js";
import { enter, session } from "./session.js";
import { act, can, listen } from "./shortcuts.js";
import { complain } from "./toast.js";
import { trouble, tryAgain } from "./trouble.js";
import { brief, modelName, oneLine } from "./words.js";

const PLACES = [
  ["/", "Ask", "ask", "r-ask"],
  ["/runs", "Runs", "runs", "r-runs"],
  ["/approvals", "Approvals", "approvals", "r-approvals"],
  ["/agents", "Agents", "agents", "r-agents"],
  ["/stats", "Stats", "stats", "r-stats"],
  ["/settings", "Settings", "settings", "r-settings"],
];
const RECENT = 30;

export class Shell extends HTMLElement {
  connectedCallback() {
    this.view = null;
    this.recent = new Map();
    this.#build();
    this.#keys();
    access.addEventListener("needed", () => this.#login());
    inbox.addEventListener("change", ({ detail }) => this.#waiting(detail.fresh));
    inbox.addEventListener("connection", () => this.#connection());
    inbox.addEventListener("run", ({ detail }) => this.#remember(detail));
    inbox.addEventListener("snapshot", () => this.#loadRecent());
    inbox.addEventListener("deleted", ({ detail }) => {
      this.heard?.add(detail);
      if (this.recent.delete(detail)) this.#drawRecent();
    });
    // Not before the server has said who this is: `#begin` shows the place then.
    addEventListener("hashchange", () => session.me && this.#show());
    this.addEventListener("again", () => {
      this.view = null;
      this.#show();
    });
    this.#begin();
  }

  async #begin() {
    place().load?.().catch(() => {}); // its script is on its way while the server says who this is
    try {
      await enter();
    } catch (error) {
      if (error.status === 401) return;
      this.#failed(error, () => this.#begin());
      return;
    }
    say(
      this.who,
      session.me.open ? session.me.project.split("/").at(-1) : `${session.me.name} · ${session.me.role}`,
    );
    this.leave.hidden = session.me.open;
    this.who.title = `${session.me.project} · ${modelName(session.me.model)} · version ${session.me.version}`;
    inbox.start();
    this.#show();
    this.#loadRecent();
  }

  #build() {
    this.links = PLACES.map(([path, name, symbol, tag]) =>
      h("a", { href: `#${path}`, data: { tag } }, icon(symbol), h("span", null, name)),
    );
    this.count = h("span", { class: "count", hidden: true });
    this.links[2].append(this.count);
    this.recentList = h("nav", { class: "recent", "aria-label": "Recent runs" });
    this.who = h("span", { class: "who cut" });
    const menu = h(
      "button",
      {
        class: "button quiet only menu-button",
        "aria-label": "Menu",
        "aria-expanded": "false",
        "aria-controls": "drawer",
        on: { click: () => this.#drawer() },
      },
      icon("menu"),
    );
    this.menu = menu;
    this.side = h(
      "header",
      { class: "side" },
      h("a", { class: "brand", href: "#/", "aria-label": "Retinue, ask something" }, brand(), "Retinue"),
      h(
        "button",
        {
          class: "button quiet only only-narrow",
          hidden: true,
          "aria-label": "Approvals that wait",
          on: { click: () => go("/approvals") },
        },
        icon("approvals"),
      ),
      menu,
      h(
        "div",
        { class: "drawer", id: "drawer" },
        h("nav", { class: "nav", "aria-label": "Main" }, this.links),
        this.recentList,
        h(
          "div",
          { class: "foot" },
          this.who,
          (this.leave = h(
            "button",
            {
              class: "button quiet small only",
              hidden: true,
              "aria-label": "Log out",
              title: "Log out",
              on: { click: () => this.#logout() },
            },
            icon("leave"),
          )),
          h(
            "button",
            {
              class: "button quiet small only",
              "aria-label": "Keyboard shortcuts",
              title: "Keyboard shortcuts (?)",
              on: { click: () => act("help") },
            },
            icon("keyboard"),
          ),
          (this.themeButton = h("button", {
            class: "button quiet small only",
            on: { click: () => act("theme") },
          })),
        ),
      ),
    );
    this.banner = h("div", { class: "banner", role: "region", "aria-label": "Notices" });
    this.offlineBar = h("div", { class: "bar error", role: "status", hidden: true });
    this.waitingBar = h("div", { class: "bar", role: "status", hidden: true });
    this.banner.append(this.offlineBar, this.waitingBar);
    this.main = h("main", { class: "main", id: "main", tabindex: "-1" });
    put(this, this.banner, this.side, this.main);
    this.#theme(localStorage.getItem("retinue.theme") ?? "system");
  }

  #keys() {
    listen(go);
    can("theme", () => {
      const order = ["system", "light", "dark"];
      const now = localStorage.getItem("retinue.theme") ?? "system";
      this.#theme(order[(order.indexOf(now) + 1) % 3]);
    });
    can("help", async () => (await import("./views/help.js")).showHelp());
    can("review", () => this.review());
    addEventListener("click", ({ target }) => closeMenus(target));
    addEventListener("keydown", (event) => event.key === "Escape" && closeMenus(null));
    document.querySelector(".skip").addEventListener("click", (event) => {
      event.preventDefault();
      this.main.focus();
    });
  }

  #theme(name) {
    if (name === "system") {
      localStorage.removeItem("retinue.theme");
      delete document.documentElement.dataset.theme;
    } else {
      localStorage.setItem("retinue.theme", name);
      document.documentElement.dataset.theme = name;
    }
    put(this.themeButton, icon({ system: "screen", light: "sun", dark: "moon" }[name]));
    const said = { system: "Colours: as the system", light: "Colours: light", dark: "Colours: dark" }[name];
    this.themeButton.setAttribute("aria-label", said);
    this.themeButton.title = `${said} (d)`;
  }

  #drawer(open = !this.side.classList.contains("open")) {
    this.side.classList.toggle("open", open);
    this.menu.setAttribute("aria-expanded", String(open));
  }

  // -- views -------------------------------------------------------------------

  async #show() {
    const now = place();
    const token = (this.showing = {});
    this.#drawer(false);
    for (const link of this.links)
      if (link.dataset.tag === now.tag || (link.dataset.tag === "r-runs" && now.tag === "r-compare"))
        link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    this.#drawRecent(now.params.id);
    this.#waiting([]);
    for (const dialog of document.querySelectorAll("dialog")) if (dialog.open) dialog.close();
    if (now.tag === null) {
      this.view = null;
      put(
        this.main,
        h(
          "div",
          { class: "empty" },
          icon("question"),
          h("h1", null, "There is nothing here"),
          h("a", { href: "#/" }, "Ask something"),
        ),
      );
      return;
    }
    if (this.view?.localName === now.tag && this.view.route) {
      this.view.route(now);
      return;
    }
    if (!customElements.get(now.tag)) this.main.setAttribute("aria-busy", "true");
    try {
      await now.load();
    } catch {
      // Loaded anew: a browser may remember that a module failed, for as long as the page lives.
      this.#failed({ offline: true }, () => location.reload());
      return;
    } finally {
      this.main.removeAttribute("aria-busy");
    }
    if (token !== this.showing) return;
    inbox.name(now.tag === "r-ask" ? "" : now.title);
    this.view = document.createElement(now.tag);
    this.view.place = now;
    this.main.scrollTop = 0;
    put(this.main, this.view);
    this.view.route?.(now);
    // The new view is where the keyboard goes on, unless it has taken the focus itself.
    if (this.arrived && !this.main.contains(document.activeElement)) this.main.focus({ preventScroll: true });
    this.arrived = true;
  }

  #failed(error, again) {
    this.view = null;
    put(this.main, trouble("This cannot be shown", error, again));
  }

  async #login() {
    const { showLogin } = await import("./views/login.js");
    this.view = null;
    showLogin(this.main, () => this.#begin());
  }

  async #logout() {
    try {
      await api.logout();
      location.reload(); // nothing of what was shown stays
    } catch (error) {
      complain(error);
    }
  }

  // -- what goes on ------------------------------------------------------------

  async #loadRecent() {
    const heard = (this.heard = new Set()); // while the list is on its way: newer than what it will say
    try {
      const { runs } = await api.runs({ limit: RECENT });
      if (heard !== this.heard) return; // asked again meanwhile
      for (const run of runs) if (!heard.has(run.run_id)) this.recent.set(run.run_id, run);
      this.#drawRecent();
    } catch (error) {
      if (!error.offline) complain(error);
    }
  }

  #remember(run) {
    if (run.parent_id) return;
    this.heard?.add(run.run_id);
    this.recent.set(run.run_id, run);
    this.#drawRecent();
  }

  #drawRecent(current = place().params.id) {
    const newest = [...this.recent.values()]
      .sort((one, other) => other.created_at - one.created_at)
      .slice(0, RECENT);
    if (newest.length && !this.recentBox) {
      this.recentBox = h("div");
      put(this.recentList, h("h2", null, "Recent"), this.recentBox);
    }
    if (!this.recentBox) return;
    keyed(
      this.recentBox,
      newest,
      (run) => run.run_id,
      (run) =>
        h(
          "a",
          { href: `#${runPath(run.run_id)}` },
          statusMark(run.outcome),
          h("span", { class: "cut" }, oneLine(run.label || run.task, 80)),
        ),
      (link, run) => {
        if (link.dataset.status !== run.outcome) link.firstChild.replaceWith(statusMark(run.outcome));
        link.dataset.status = run.outcome;
        link.title = oneLine(run.task, 300);
        if (run.run_id === current) link.setAttribute("aria-current", "page");
        else link.removeAttribute("aria-current");
      },
    );
  }

  #waiting(fresh) {
    const waiting = inbox.waiting;
    this.count.hidden = waiting.length === 0;
    put(this.count, String(waiting.length), h("span", { class: "unseen" }, " waiting"));
    this.#drawRecent();
    this.waitingBar.hidden = waiting.length === 0 || place().tag === "r-approvals";
    if (waiting.length) {
      const first = waiting[0];
      const more = waiting.length > 1 ? ` and ${waiting.length - 1} more` : "";
      put(
        this.waitingBar,
        statusMark("waiting", { labelled: false }),
        h(
          "span",
          { class: "grow cut" },
          h("strong", null, `${first.path.at(-1)} waits for you`),
          `: ${first.tool} ${brief(first.arguments, 100)}${more}`,
        ),
        h(
          "button",
          { class: "button small primary", on: { click: () => this.review() } },
          waiting.length > 1 ? `Review ${waiting.length}` : "Review",
        ),
      );
    }
    this.view?.asked?.(fresh);
  }

  /** The approvals that wait, in a dialog; those of the run on the screen first. */
  async review(first = null) {
    if (!inbox.waiting.length) return;
    const { showApprovals } = await import("./views/approval-dialog.js");
    showApprovals(first ?? place().params.id ?? null);
  }

  #connection() {
    this.offlineBar.hidden = !inbox.lost;
    if (inbox.lost)
      put(
        this.offlineBar,
        icon("warning"),
        h(
          "span",
          { class: "grow" },
          h("strong", null, "Connection lost."),
          " What is shown may be old; trying again.",
        ),
      );
    else tryAgain(this.main);
  }
}

/** A menu closes when something in it is chosen, when something else is clicked, and with Escape. */
function closeMenus(target) {
  for (const menu of document.querySelectorAll("details")) {
    const head = menu.querySelector("summary");
    if (!menu.open || !menu.classList.contains("menu") || (target && head.contains(target))) continue;
    const inside = menu.contains(target ?? document.activeElement);
    menu.open = false;
    if (inside) head.focus();
  }
}

function brand() {
  const mark = icon("delegate", 20);
  mark.setAttribute("class", "icon");
  return mark;
}
