// Blame: which demonstrations led robots astray, and a way to take them out of retrieval.

import { button, make, plural, put, show } from "./dom.js";
import { ask } from "./net.js";

export class BlameView {
  constructor(studio) {
    this.studio = studio;
    this.problem = make("p", { class: "problem", role: "alert", hidden: true });
    this.lead = make("p", { class: "lead" });
    this.body = make("div", {});
    this.element = make("section", { class: "retrieval", "aria-label": "Blame" }, make("div", { class: "heading" }, make("h1", { text: "Blame" }), this.lead), this.problem, this.body);
  }

  enter() {
    this.read();
  }

  leave() {}

  async read() {
    if (!this.told) put(this.body, make("div", { class: "skeleton films" }));
    try {
      this.told = await ask("/api/explore/blame");
    } catch (error) {
      show(this.problem, error.message);
      if (!this.told) put(this.body);
      return;
    }
    show(this.problem, "");
    this.draw();
  }

  draw() {
    const { rows, n, n_runs, n_ended, n_failed } = this.told;
    this.lead.textContent = `Demonstrations after which robots ended up far from the retrieved path, over ${plural(n_runs, "episode")}. ${n_failed} of the ${n_ended} episodes with a known outcome failed.`;
    if (!rows.length) {
      put(this.body, make("p", { class: "card soft empty-one", text: "No demonstration of this pool was used in these logs." }));
      return;
    }
    const head = ["Demonstration", "Off course", "p", "Failed [95 %]", "", ""];
    put(
      this.body,
      make(
        "div",
        { class: "card scroll" },
        make("table", {}, make("thead", {}, make("tr", {}, ...head.map((text) => make("th", { scope: "col", text })))), make("tbody", {}, ...rows.map((row) => this.row(row)))),
        n > rows.length ? make("p", { class: "soft tiny", text: `and ${n - rows.length} more` }) : null,
      ),
      make("p", { class: "soft tiny blame-note", text: "A demonstration is accused when robots leave its path more often than that of the others (Fisher's exact test with the Benjamini-Hochberg correction). Episode outcomes are shown but not used." }),
    );
  }

  row({ episode_id, n_runs, n_astray, p_astray, n_failed, n_ended, failed, accused, quarantine }) {
    const { writable } = this.studio.about;
    const act = writable ? button(quarantine ? "Use it again" : "Quarantine", () => this.send(episode_id, quarantine), { class: accused && !quarantine ? "danger" : "", "aria-label": `${quarantine ? "Use again" : "Quarantine"} ${episode_id}` }) : null;
    const state = quarantine ? make("span", { class: "pill warn", text: "quarantine" }) : accused ? make("span", { class: "pill bad", text: "accused" }) : null;
    return make(
      "tr",
      {},
      make("th", { scope: "row" }, make("a", { href: this.studio.link("demonstrations", { id: episode_id }), text: episode_id })),
      make("td", { class: "figure", text: `${n_astray} of ${n_runs}` }),
      make("td", { class: "figure", text: p_astray.toPrecision(2) }),
      make("td", { class: "figure", text: n_ended ? `${n_failed} of ${n_ended} ${failed}` : "–" }),
      make("td", {}, state),
      make("td", {}, act),
    );
  }

  async send(id, undo) {
    try {
      const { version } = await ask("/api/explore/quarantine", { method: "POST", body: { id, undo } });
      this.studio.toast(`${id} is ${undo ? "used again" : "in quarantine"}, version ${version}.`);
    } catch (error) {
      this.studio.toast(error.message);
    }
    await this.read();
  }
}
