// The studio on any pool or dataset: which view is shown, and its state in the address.

import { BlameView } from "./blame.js";
import { DemonstrationsView } from "./demonstrations.js";
import { button, byId, make, plural, show, tail } from "./dom.js";
import { HandsView } from "./hands.js";
import { ask } from "./net.js";
import { RetrievalView } from "./retrieval.js";
import { isFree, showShortcuts } from "./shortcuts.js";
import { CoverageView } from "./starts.js";

const VIEWS = {
  hands: ["Hand films", HandsView],
  demonstrations: ["Demonstrations", DemonstrationsView],
  retrieval: ["Retrieval", RetrievalView],
  coverage: ["Coverage", CoverageView],
  blame: ["Blame", BlameView],
};
const KEYS = [
  ["Space", "play or pause"],
  ["← →", "one step back or on; with Shift ten"],
  ["Home, End", "the first or last step"],
  ["J, K", "the next or previous demonstration"],
  ["/", "search"],
  ["?", "this list"],
];
const WRITE_MS = 250; // between two changes of the address: browsers allow only so many

class Explorer {
  constructor(about) {
    this.about = about;
    this.views = {};
    this.tell();
    addEventListener("hashchange", () => this.go());
    addEventListener("keydown", (event) => this.key(event));
    byId("help").addEventListener("click", () => this.help());
    document.querySelector(".skip").addEventListener("click", (event) => {
      event.preventDefault(); // the address names the view, not a place on it
      byId("main").focus();
    });
    this.go();
  }

  // #view?key=value
  go() {
    if (!this.about.n) return this.nothing();
    clearTimeout(this.writing);
    this.writing = null;
    const [name, query] = location.hash.slice(1).split("?");
    const chosen = this.about.views.includes(name) ? name : this.about.views[0];
    if (this.here !== chosen) {
      this.views[this.here]?.leave();
      for (const link of document.querySelectorAll("nav a")) {
        if (link.dataset.view === chosen) link.setAttribute("aria-current", "page");
        else link.removeAttribute("aria-current");
      }
      document.title = `${VIEWS[chosen][0]} · ${tail(this.about.place)} · ReCAP studio`;
      this.here = chosen;
      this.views[chosen] ||= new VIEWS[chosen][1](this);
      byId("main").replaceChildren(this.views[chosen].element);
      scrollTo(0, 0);
    }
    this.views[chosen].enter(new URLSearchParams(query || ""));
  }

  // Before the first demonstration.
  nothing() {
    const { place, kind } = this.about;
    const add = kind === "pool" ? [make("p", { text: "Add some, then reload this page:" }), make("pre", {}, make("code", { text: `recap pool add ${place} DATASET` }))] : [];
    byId("main").replaceChildren(make("section", { class: "card nothing-yet" }, make("h1", { text: "There are no demonstrations yet" }), ...add));
  }

  // Go to an address without a step in the history.
  open(address) {
    history.replaceState(null, "", address);
    this.go();
  }

  // The address that shows this again; what is empty is left out.
  link(view, given) {
    const kept = Object.entries(given).filter(([, value]) => value !== "" && value !== null && value !== undefined);
    return `#${view}?${new URLSearchParams(kept)}`;
  }

  // Write the state into the address, without a step in the history.
  remember(view, given) {
    this.wanted = [view, this.link(view, given)];
    if (this.writing) return;
    const from = location.hash; // a link that was followed since is not overwritten
    this.writing = setTimeout(() => {
      this.writing = null;
      const [whose, address] = this.wanted;
      if (this.here === whose && location.hash === from) history.replaceState(null, "", address);
    }, WRITE_MS);
  }

  tell() {
    const { place, kind, version, n, robot, notice, views } = this.about;
    byId("views").replaceChildren(
      ...(n ? views : []).map((view) => make("a", { href: `#${view}`, "data-view": view, text: VIEWS[view][0] })),
    );
    const words = [plural(n, "demonstration"), kind === "pool" ? `pool v${version}` : kind];
    if (robot) words.push(`${robot.name}, ${robot.hz} Hz`);
    byId("about").replaceChildren(
      make("span", { class: "dot", "aria-hidden": "true" }),
      make("span", { text: tail(place), title: place }),
      make("span", { text: words.join(" · ") }),
    );
    show(byId("notice"), notice);
  }

  key(event) {
    if (!isFree(event)) return;
    if (event.key === "?") this.help();
    else if (!document.querySelector("dialog[open]")) this.views[this.here]?.key?.(event);
  }

  help() {
    showShortcuts(KEYS);
  }

  announce(text) {
    byId("announcer").textContent = text;
  }

  toast(text) {
    clearTimeout(this.toastTimer);
    const box = byId("toast");
    const close = button("×", () => (box.hidden = true), { class: "close", "aria-label": "Close this message" });
    box.replaceChildren(make("span", { text }), close);
    box.hidden = false;
    this.toastTimer = setTimeout(() => (box.hidden = true), 12_000);
  }
}

async function begin() {
  for (;;) {
    try {
      const about = await ask("/api/explore/about");
      show(byId("gone"), "");
      new Explorer(about);
      return;
    } catch (error) {
      show(byId("gone"), `${error.message} Trying again…`);
      await new Promise((done) => setTimeout(done, 1500));
    }
  }
}

begin();
