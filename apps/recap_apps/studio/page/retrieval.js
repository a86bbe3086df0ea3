// Retrieval: choose a moment, see what the pool answers, and why not the next best.

import { button, draw, make, plural, put, show } from "./dom.js";
import { ask } from "./net.js";
import { frameAddress } from "./player.js";
import { plot, short } from "./series.js";

const WAIT_MS = 150; // after the last move of the scrubber
const LOOK_MS = 700; // between two looks at how far a first answer is
const SUGGESTED = 30;
const CHUNKS = 3; // matches whose chunk is drawn

export class RetrievalView {
  constructor(studio) {
    this.studio = studio;
    this.t = 0;
    this.names = make("datalist", { id: "retrieval-names" });
    this.name = make("input", {
      type: "search",
      list: "retrieval-names",
      "aria-label": "Demonstration",
      placeholder: "Demonstration",
      on: { input: () => this.suggest(), change: () => this.choose(this.name.value) },
    });
    this.way = make("select", { "aria-label": "Retrieval", on: { change: () => this.ask(0) } });
    this.slider = make("input", { type: "range", min: 0, max: 0, step: 1, "aria-label": "Step", on: { input: () => this.seek(Number(this.slider.value)) } });
    this.words = make("output", { class: "time" });
    this.problem = make("p", { class: "problem", role: "alert", hidden: true });
    this.body = make("div", { class: "answer" });
    const labelled = (text, control) => make("label", { class: "row" }, make("span", { text }), control);
    this.element = make(
      "section",
      { class: "retrieval", "aria-label": "Retrieval" },
      make("div", { class: "heading" }, make("h1", { text: "Retrieval" }), make("p", { class: "lead", text: "What is retrieved at a frame of a demonstration, with its own scene left out." })),
      make(
        "div",
        { class: "card ask" },
        make("div", { class: "asked" }, labelled("Demonstration", this.name), labelled("Retrieval", this.way), this.names),
        make("div", { class: "scrub" }, button("‹", () => this.seek(this.t - 1), { "aria-label": "Step back" }), this.slider, button("›", () => this.seek(this.t + 1), { "aria-label": "Step forward" }), this.words),
      ),
      this.problem,
      this.body,
    );
  }

  async enter(given) {
    this.wanted = given.get("retrieval") || this.wanted || "";
    const id = given.get("id") || this.id;
    const t = Number(given.get("t")) || 0;
    if (!id) {
      const told = await ask("/api/explore/list?limit=1").catch(() => ({ entries: [] }));
      if (told.entries[0]?.id) this.choose(told.entries[0].id, t);
      else put(this.body, make("p", { class: "soft empty-one", text: "There are no demonstrations to retrieve from." }));
    } else if (id !== this.id || t !== this.t || !this.told) {
      if (id !== this.id) this.told = null;
      Object.assign(this, { id, t });
      this.ask(0);
    }
    this.suggest();
  }

  leave() {
    clearTimeout(this.asking);
  }

  async suggest() {
    const q = this.name.value === this.id ? "" : this.name.value;
    const told = await ask(`/api/explore/list?${new URLSearchParams({ q, limit: SUGGESTED })}`).catch(() => null);
    if (told) this.names.replaceChildren(...told.entries.filter(({ id }) => id).map(({ id, task }) => make("option", { value: id, label: task })));
  }

  choose(id, t = 0) {
    if (!id || id === this.id) return;
    Object.assign(this, { id, t, told: null });
    this.ask(0);
  }

  seek(t) {
    const n = this.told?.query.n;
    if (!n) return;
    this.t = Math.max(0, Math.min(n - 1, t));
    this.mark();
    this.ask(WAIT_MS);
  }

  mark() {
    const { n, fps } = this.told.query;
    this.slider.max = n - 1;
    this.slider.value = this.t;
    this.words.textContent = `step ${this.t} of ${n - 1} · ${(this.t / fps).toFixed(2)} s`;
  }

  ask(wait) {
    if (document.activeElement !== this.name || wait === 0) this.name.value = this.id;
    clearTimeout(this.asking);
    this.asking = setTimeout(() => this.read(), wait);
  }

  async read() {
    if (this.reading) {
      this.again = true; // one question at a time; the newest one is asked next
      return;
    }
    this.reading = true;
    this.again = false;
    const { id, t } = this;
    const retrieval = this.way.value || this.wanted || "";
    this.studio.remember("retrieval", { id, t: t || "", retrieval });
    if (!this.told) this.wait();
    try {
      const told = await ask(`/api/explore/retrieve?${new URLSearchParams({ id, t, retrieval })}`);
      if (id === this.id) {
        this.told = told;
        this.t = this.again ? this.t : told.query.t;
        show(this.problem, "");
        this.draw();
      }
    } catch (error) {
      show(this.problem, error.message);
      if (!this.told) put(this.body);
    }
    clearInterval(this.waiting);
    this.reading = false;
    if (this.again) this.read();
  }

  // The first answer may take a while: every demonstration is described once.
  wait() {
    const words = make("p", { class: "soft", role: "status", text: "Reading the pool…" });
    put(this.body, words, make("div", { class: "skeleton films" }), make("div", { class: "skeleton chart" }));
    clearInterval(this.waiting);
    this.waiting = setInterval(async () => {
      const { done, total } = await ask("/api/explore/progress").catch(() => ({}));
      if (done) words.textContent = `Describing demonstrations: ${done} of ${total}`;
    }, LOOK_MS);
  }

  draw() {
    const { told } = this;
    this.way.replaceChildren(...told.choices.map(({ name, text }) => make("option", { value: name, text })));
    this.way.value = told.chosen;
    this.mark();
    const { matches, cameras, query } = told;
    const here = this.card({ ...query, cameras }, "Now", query.task);
    const cards = matches.map((match, i) => this.card(match, i === 0 ? "Retrieved" : `${i + 1}.`, match.task, told.moved?.[i]));
    if (told.paths) this.overlay(here, told.paths);
    put(
      this.body,
      make("div", { class: "match-row" }, here, ...cards),
      matches.length ? this.bars() : make("p", { class: "card soft", text: told.why }),
      matches.length > 1 ? this.gap() : null,
      told.chunk ? this.chunk() : null,
      told.chunk_problem ? make("p", { class: "problem", text: told.chunk_problem }) : null,
    );
  }

  card({ id, t, n, task, distance, cameras }, title, words, moved) {
    const images = cameras.map((camera) => make("img", { src: frameAddress(id, camera, t, 400), alt: `Camera ${camera}`, title: camera, loading: "lazy" }));
    const drawn = moved ? make("figure", { class: "moved" }, make("img", { src: moved, alt: "Moved into the present frame" }), make("figcaption", { text: "moved into the present frame" })) : null;
    return make(
      "article",
      { class: title === "Now" ? "match card now" : "match card" },
      make("header", {}, make("strong", { text: title }), distance === undefined ? null : make("span", { class: "figure", text: short(distance) })),
      make("div", { class: "match-films" }, ...images),
      drawn,
      make("a", { href: this.studio.link("demonstrations", { id, t: t || "" }), text: id, title: id, class: "match-id" }),
      make("p", { class: "soft tiny", text: `step ${t} of ${n - 1}${words && words !== this.told.query.task ? ` · ${words}` : ""}` }),
    );
  }

  // The ways that the matches' tools would take, drawn on the present picture of a calibrated camera.
  overlay(card, paths) {
    this.told.cameras.forEach((camera, number) => {
      const lines = paths[camera];
      if (!lines) return;
      const image = card.querySelectorAll(".match-films img")[number];
      const svg = draw("svg", { viewBox: "0 0 1 1", preserveAspectRatio: "none", class: "overlay", "aria-hidden": "true" });
      lines.slice(0, CHUNKS).forEach((tools, i) => {
        for (const flat of tools) {
          const points = Array.from({ length: flat.length / 2 }, (_, k) => `${flat[2 * k]},${flat[2 * k + 1]}`);
          svg.append(draw("polyline", { points: points.join(" "), class: `c${i % 8}` }));
        }
      });
      const holder = make("div", { class: "with-overlay" });
      image.replaceWith(holder);
      holder.append(image, svg);
    });
  }

  bars() {
    const { matches, terms, confidence, n_candidates, n_unusable } = this.told;
    const most = Math.max(...matches.map(({ total }) => total), 1e-12);
    const rows = matches.flatMap(({ costs, total, distance }, i) => {
      const parts = terms.map((term, k) => {
        const part = make("span", { class: `part c${k % 8}`, title: `${term}: ${short(costs[term])}` });
        part.style.width = `${(100 * Math.max(0, costs[term])) / most}%`;
        return part;
      });
      const label = `${i + 1}: ${terms.map((term) => `${term} ${short(costs[term])}`).join(", ")}; together ${short(total)}`;
      const off = Math.abs(distance ** 2 - total) > 1e-3 * Math.max(total, 1e-9) ? `, counted as ${short(distance ** 2)}` : "";
      return [
        make("dt", { text: i === 0 ? "Retrieved" : `${i + 1}.` }),
        make("dd", {}, make("span", { class: "stack", role: "img", "aria-label": label }, ...parts), make("span", { class: "figure", text: `${short(total)}${off}` })),
      ];
    });
    const sure = confidence === null ? "too few demonstrations for a confidence" : `confidence ${confidence.toFixed(2)}`;
    const left = n_unusable ? `; ${plural(n_unusable, "demonstration")} cannot be used` : "";
    return make(
      "section",
      { class: "card" },
      make("h2", { text: "Squared distance by term" }),
      make("p", { class: "soft tiny", text: `The parts of each bar add up to the number on the right. ${plural(n_candidates, "candidate")} from the first stage; ${sure}${left}.` }),
      make("ul", { class: "channels legend-row" }, ...terms.map((term, k) => make("li", { class: `c${k % 8}` }, make("span", { class: "stroke", "aria-hidden": "true" }), make("span", { text: term })))),
      make("dl", { class: "stacks" }, ...rows),
    );
  }

  gap() {
    const { matches, terms, why } = this.told;
    const [first, second] = matches;
    const gaps = terms.map((term) => [term, second.costs[term] - first.costs[term]]);
    const total = gaps.reduce((sum, [, gap]) => sum + gap, 0);
    const most = Math.max(...gaps.map(([, gap]) => Math.abs(gap)), 1e-12);
    const row = ([term, gap], k) => {
      const part = make("span", { class: `part c${k % 8} ${gap < 0 ? "minus" : "plus"}` });
      part.style.width = `${(50 * Math.abs(gap)) / most}%`;
      return [make("dt", { text: term }), make("dd", {}, make("span", { class: "diverging", "aria-hidden": "true" }, part), make("span", { class: "figure", text: `${gap > 0 ? "+" : ""}${short(gap, total * 1e-3)}` }))];
    };
    return make(
      "section",
      { class: "card" },
      make("h2", { text: "Why the first and not the second" }),
      make("p", { class: "soft tiny", text: why }),
      make("dl", { class: "stacks" }, ...gaps.flatMap(row), make("dt", { class: "sum", text: "together" }), make("dd", { class: "sum" }, make("span", {}), make("span", { class: "figure", text: `${total > 0 ? "+" : ""}${short(total)}` }))),
    );
  }

  chunk() {
    const { groups, fps, n } = this.told.chunk;
    const charts = groups.map(({ name, unit, channels, lines, matches }) => {
      const drawn = matches.slice(0, CHUNKS);
      const { svg, line } = plot(`${name}, next actions`, [...lines, ...drawn.flat()].flat(), (n - 1) / fps);
      lines.forEach((row) => svg.append(draw("path", { class: "line did", d: line(row) })));
      drawn.forEach((rows, i) => rows.forEach((row) => svg.append(draw("path", { class: `line action c${i}`, d: line(row) }))));
      return make("figure", { class: "series-chart" }, make("figcaption", {}, make("strong", { text: name }), make("span", { class: "soft", text: ` ${[unit, channels.length > 1 ? channels.join(", ") : ""].filter(Boolean).join(" · ")}` })), svg);
    });
    const names = ["this demonstration", "retrieved", "second", "third"].slice(0, 1 + Math.min(CHUNKS, this.told.matches.length));
    const key = names.map((text, i) => make("li", { class: i ? `c${i - 1}` : "did" }, make("span", { class: "stroke", "aria-hidden": "true" }), make("span", { text })));
    const moved = this.told.aligner === "world" ? "as they were recorded" : `moved into the present frame by the ${this.told.aligner} aligner`;
    return make(
      "section",
      { class: "card" },
      make("h2", { text: "Next actions" }),
      make("p", { class: "soft tiny", text: `The next ${n} actions of the matches, ${moved}, beside those of this demonstration.` }),
      make("ul", { class: "channels legend-row" }, ...key),
      make("div", { class: "series-grid" }, ...charts),
    );
  }

  key(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by || event.target.matches("input[type=range]")) return;
    event.preventDefault();
    this.seek(this.t + by * (event.shiftKey ? 10 : 1));
  }
}
