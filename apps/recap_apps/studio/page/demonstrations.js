// Demonstrations: a list that is read page by page, and the one that is chosen.

import { button, make, plural, put, show } from "./dom.js";
import { ask } from "./net.js";
import { Player } from "./player.js";
import { Series } from "./series.js";

const PAGE = 50;
const LOOK_MS = 2500; // between two looks at a list that is still being read
const SHOWN = [
  ["all", "all"],
  ["findings", "with findings"],
  ["unreadable", "that cannot be read"],
  ["quarantine", "in quarantine"],
  ["unsuccessful", "not successful"],
];

export class DemonstrationsView {
  constructor(studio) {
    this.studio = studio;
    this.entries = [];
    this.id = null;
    const later = () => {
      clearTimeout(this.typing);
      this.typing = setTimeout(() => this.filter(), 200);
    };
    this.search = make("input", { type: "search", placeholder: "Search names and tasks", "aria-label": "Search", on: { input: later } });
    this.task = make("select", { "aria-label": "Task", on: { change: () => this.filter() } });
    this.show = make(
      "select",
      { "aria-label": "Show", on: { change: () => this.filter() } },
      ...SHOWN.map(([value, text]) => make("option", { value, text: value === "all" ? "Show: all" : text })),
    );
    this.status = make("p", { class: "soft tiny", role: "status" });
    this.problem = make("p", { class: "problem", role: "alert", hidden: true });
    this.list = make("ul", { class: "entries", "aria-label": "Demonstrations" });
    // A row that is replaced while it is pressed would not be followed.
    this.list.addEventListener("pointerdown", () => (this.pressed = true));
    for (const event of ["pointerup", "pointercancel"])
      addEventListener(event, () =>
        setTimeout(() => {
          this.pressed = false;
          if (this.undrawn) this.draw(this.undrawn);
        }),
      );
    this.more = button("Show more", () => this.read(this.entries.length), { class: "quiet", hidden: true });
    const form = make("form", { class: "entry-filters", role: "search", on: { submit: (event) => event.preventDefault() } }, this.search, this.task, this.show);
    this.detail = make("section", { class: "one", "aria-label": "Demonstration" });
    this.element = make(
      "div",
      { class: "explore" },
      make("section", { class: "card list", "aria-label": "List" }, form, this.status, this.problem, this.list, this.more),
      this.detail,
    );
    this.explain = make("a", { class: "go quiet small", text: "What is retrieved here?" });
    this.player = new Player({ moved: (t) => this.moved(t) });
  }

  enter(given) {
    this.search.value = given.get("q") || "";
    this.wantedTask = given.get("task") || "";
    const wanted = given.get("show");
    this.show.value = SHOWN.some(([value]) => value === wanted) ? wanted : "all";
    const filters = this.filters();
    if (filters !== this.read_for) this.read(0);
    const id = given.get("id");
    const t = Number(given.get("t")) || 0;
    if (id && id !== this.id) this.open(id, t);
    else if (id && t !== this.player.t) this.player.seek(t);
    else if (!id && !this.id) this.detail.replaceChildren(make("p", { class: "soft empty-one", text: "Choose a demonstration." }));
    this.element.classList.toggle("chosen", Boolean(id));
  }

  leave() {
    clearTimeout(this.looking);
    this.player.pause();
    this.read_for = null;
  }

  filters() {
    return JSON.stringify([this.search.value, this.task.value || this.wantedTask, this.show.value]);
  }

  state(t = this.player.t) {
    return { q: this.search.value, task: this.task.value, show: this.show.value === "all" ? "" : this.show.value, id: this.id, t: this.id && t ? t : "" };
  }

  filter() {
    this.wantedTask = this.task.value;
    this.studio.remember("demonstrations", this.state());
    this.read(0);
  }

  async read(offset) {
    clearTimeout(this.looking);
    this.read_for = this.filters();
    const task = this.task.value || this.wantedTask || "";
    const query = new URLSearchParams({ offset, limit: PAGE, q: this.search.value, task, show: this.show.value });
    const turn = (this.turn = (this.turn || 0) + 1);
    if (!this.entries.length) this.list.replaceChildren(...Array.from({ length: 6 }, () => make("li", { class: "skeleton line" })));
    let told;
    try {
      told = await ask(`/api/explore/list?${query}`);
    } catch (error) {
      if (turn === this.turn) {
        show(this.problem, error.message);
        this.looking = setTimeout(() => this.read(0), LOOK_MS);
      }
      return;
    }
    if (turn !== this.turn) return; // asked again since
    show(this.problem, "");
    this.entries = offset ? [...this.entries.slice(0, offset), ...told.entries] : told.entries;
    this.offer(told.tasks);
    this.tell(told);
    this.draw(told);
    if (told.n_examined < told.n && this.studio.here === "demonstrations" && this.entries.length <= PAGE)
      this.looking = setTimeout(() => this.read(0), LOOK_MS);
    if (!this.id && this.entries.length && matchMedia("(min-width: 861px)").matches) this.go(this.entries[0]);
  }

  offer(tasks) {
    const chosen = this.task.value || this.wantedTask || "";
    const options = tasks.map(({ name, n }) => make("option", { value: name, text: `${name || "no task"} (${n})` }));
    if (chosen && !tasks.some(({ name }) => name === chosen)) options.unshift(make("option", { value: chosen, text: chosen }));
    this.task.replaceChildren(make("option", { value: "", text: plural(tasks.length, "task") }), ...options);
    this.task.value = chosen;
    this.task.hidden = tasks.length < 2 && !chosen;
  }

  tell({ total, n, n_examined, n_findings, n_unreadable }) {
    const words = [total === n ? plural(n, "demonstration") : `${total} of ${n}`];
    if (n_findings) words.push(`${n_findings} with findings`);
    if (n_unreadable) words.push(`${n_unreadable} cannot be read`);
    if (n_examined < n) words.push(`${n_examined} of ${n} looked at so far`);
    this.status.textContent = words.join(" · ");
  }

  draw(told) {
    this.undrawn = this.pressed ? told : null;
    if (this.pressed) return;
    const { total } = told;
    if (!this.entries.length) this.list.replaceChildren(make("li", { class: "nothing soft", text: total ? "…" : "No demonstration matches these filters." }));
    else this.list.replaceChildren(...this.entries.map((entry) => this.row(entry)));
    this.more.hidden = this.entries.length >= total;
    this.more.textContent = `Show more (${total - this.entries.length} left)`;
    this.mark();
  }

  row(entry) {
    const marks = [];
    const worst = entry.findings?.some(([severity]) => severity === "error") ? "bad" : "warn";
    if (entry.damage) marks.push(make("span", { class: "pill bad", text: "cannot be read", title: entry.damage }));
    if (entry.findings?.length) marks.push(make("span", { class: `pill ${worst}`, text: plural(entry.findings.length, "finding") }));
    if (entry.quarantine) marks.push(make("span", { class: "pill warn", text: "quarantine" }));
    if (entry.read && !entry.success) marks.push(make("span", { class: "pill", text: "not successful" }));
    const length = `${plural(entry.n_frames, "step")}${entry.seconds ? `, ${entry.seconds.toFixed(1)} s` : ""}`;
    const name = entry.id || `number ${entry.number}`;
    return make(
      "li",
      {},
      make(
        "a",
        { href: this.studio.link("demonstrations", { ...this.state(0), id: entry.id }), class: "entry", "data-id": entry.id },
        make("span", { class: "title", text: name, title: name }),
        make("span", { class: "soft", text: [length, entry.task].filter(Boolean).join(" · ") }),
        entry.damage ? make("span", { class: "bad-line", text: entry.damage }) : null,
        marks.length ? make("span", { class: "marks" }, ...marks) : null,
      ),
    );
  }

  mark() {
    for (const link of this.list.querySelectorAll("a")) {
      if (link.dataset.id && link.dataset.id === this.id) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
  }

  go(entry) {
    if (!entry?.id) return;
    this.studio.open(this.studio.link("demonstrations", { ...this.state(0), id: entry.id, t: "" }));
  }

  async open(id, t) {
    this.id = id;
    this.mark();
    this.player.pause();
    this.detail.replaceChildren(make("h1", { text: id }), make("div", { class: "skeleton films" }), make("div", { class: "skeleton chart" }));
    let told;
    try {
      told = await ask(`/api/explore/one?${new URLSearchParams({ id })}`);
    } catch (error) {
      if (id === this.id) this.detail.replaceChildren(this.back(), make("h1", { text: id }), make("p", { class: "problem", role: "alert", text: error.message }));
      return;
    }
    if (id !== this.id) return;
    this.series = new Series(told.series, (step) => this.player.seek(step));
    this.player.load(told, t);
    put(
      this.detail,
      this.back(),
      make("div", { class: "heading" }, make("h1", { text: told.id }), make("p", { class: "lead", text: told.task || "no task is said" }), this.explain),
      this.player.element,
      findings(told),
      this.held(told),
      this.series.element,
      facts(told),
    );
    this.player.seek(t);
    this.studio.announce(`${told.id}, ${plural(told.n_frames, "step")}`);
  }

  // Out of retrieval and back, where the pool may be changed.
  held({ id, quarantine }) {
    const words = quarantine ? make("p", { text: "In quarantine: it is never retrieved." }) : null;
    const { writable } = this.studio.about;
    if (!writable) return words;
    const act = button(quarantine ? "Use it again" : "Quarantine", async () => {
      try {
        const { version } = await ask("/api/explore/quarantine", { method: "POST", body: { id, undo: quarantine } });
        this.studio.toast(`${id} is ${quarantine ? "used again" : "in quarantine"}, version ${version}.`);
        await this.read(0);
        this.open(id, this.player.t);
      } catch (error) {
        this.studio.toast(error.message);
      }
    });
    return make("div", { class: "held" }, words, act);
  }

  back() {
    const href = this.studio.link("demonstrations", { ...this.state(0), id: "", t: "" });
    const go = () => {
      this.id = null;
      this.mark();
    };
    return make("a", { class: "back", href, text: "‹ All demonstrations", on: { click: go } });
  }

  moved(t) {
    this.series?.mark(t);
    this.explain.href = this.studio.link("retrieval", { id: this.id, t: t || "" });
    if (this.studio.here === "demonstrations") this.studio.remember("demonstrations", this.state(t));
  }

  key(event) {
    const by = { j: 1, k: -1 }[event.key];
    if (by) {
      const at = this.entries.findIndex(({ id }) => id === this.id);
      this.go(this.entries[at + by]);
      this.list.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest" });
    } else if (event.key === "/") {
      event.preventDefault();
      this.search.focus();
    } else this.player.key(event);
  }
}

function findings({ findings, damage }) {
  if (damage) return make("p", { class: "problem", text: damage });
  if (!findings?.length) return null;
  const lines = findings.map(([severity, text]) => make("li", { class: severity, text }));
  return make("ul", { class: "findings", "aria-label": "Findings" }, ...lines);
}

function facts(told) {
  const rows = [
    ["Length", `${plural(told.n_frames, "step")} at ${told.fps} Hz, ${told.seconds.toFixed(1)} s`],
    ["Embodiment", told.embodiment],
    ["Successful", told.success ? "yes" : "no"],
    ["Cameras", told.cameras.join(", ") || "none"],
    ["Action", told.action_space],
    ["Scene", told.scene],
    ["Made by", told.source],
    ...Object.entries(told.attributes),
  ].filter(([, value]) => value);
  return make("dl", { class: "facts card" }, ...rows.flatMap(([key, value]) => [make("dt", { text: key }), make("dd", { text: value })]));
}
