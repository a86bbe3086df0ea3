// Hand films: what was seen of the hand, drawn over the film, and whether it becomes a demonstration.

import { button, draw, make, put, show, tail } from "./dom.js";
import { ask } from "./net.js";
import { Player } from "./player.js";
import { short } from "./series.js";

const TRAIL = 45; // frames of the tool's way that are drawn
const FINGERS = [1, 5, 9, 13, 17].map((first) => [0, first, first + 1, first + 2, first + 3]);

export class HandsView {
  constructor(studio) {
    this.studio = studio;
    this.list = make("ul", { class: "entries", "aria-label": "Films" });
    this.status = make("p", { class: "soft tiny", role: "status" });
    this.problem = make("p", { class: "problem", role: "alert", hidden: true });
    this.detail = make("section", { class: "one", "aria-label": "Film" });
    this.player = new Player({ moved: (t) => this.moved(t) });
    this.element = make("div", { class: "explore" }, make("section", { class: "card list", "aria-label": "List" }, this.status, this.problem, this.list), this.detail);
  }

  async enter(given) {
    await this.read();
    const name = given.get("name") || this.name || this.films?.[0]?.name;
    const t = Number(given.get("t")) || 0;
    if (name && name !== this.name) this.open(name, t);
    else if (t !== this.player.t) this.player.seek(t);
    this.element.classList.toggle("chosen", Boolean(given.get("name")));
  }

  leave() {
    this.player.pause();
  }

  async read() {
    let told;
    try {
      told = await ask("/api/explore/hands");
    } catch (error) {
      show(this.problem, error.message);
      return;
    }
    show(this.problem, "");
    Object.assign(this, told);
    this.status.title = this.into || "";
    this.status.textContent = this.into ? `Accepted films are added to the pool ${tail(this.into)}.` : "Start with --into POOL to accept films here.";
    put(this.list, ...this.films.map((film) => this.row(film)));
    this.mark();
  }

  row({ name, task, coverage, state, problem }) {
    const marks = [];
    if (problem) marks.push(make("span", { class: "pill bad", text: "cannot be read" }));
    if (state) marks.push(make("span", { class: state === "accepted" ? "pill good" : "pill", text: state }));
    const seen = coverage === null ? "" : `hand in ${Math.round(100 * coverage)} % of the frames`;
    return make(
      "li",
      {},
      make(
        "a",
        { class: "entry", href: this.studio.link("hands", { name }), "data-name": name },
        make("span", { class: "title", text: name, title: name }),
        make("span", { class: "soft", text: [task, seen].filter(Boolean).join(" · ") }),
        problem ? make("span", { class: "bad-line", text: problem }) : null,
        marks.length ? make("span", { class: "marks" }, ...marks) : null,
      ),
    );
  }

  mark() {
    for (const link of this.list.querySelectorAll("a")) {
      if (link.dataset.name === this.name) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
  }

  async open(name, t) {
    this.name = name;
    this.told = null;
    this.mark();
    put(this.detail, make("h1", { text: name }), make("div", { class: "skeleton films" }));
    let told;
    try {
      told = await ask(`/api/explore/hand?${new URLSearchParams({ name })}`);
    } catch (error) {
      if (name === this.name) put(this.detail, make("h1", { text: name }), make("p", { class: "problem", role: "alert", text: error.message }));
      return;
    }
    if (name !== this.name) return;
    this.told = told;
    const film = `/api/explore/hand-film?${new URLSearchParams({ name })}`;
    this.player.load({ id: name, cameras: ["film"], n_frames: told.n_frames, fps: told.fps, films: { film } }, t);
    this.overlay = draw("svg", { class: "overlay", viewBox: `0 0 ${told.size[1]} ${told.size[0]}`, "aria-hidden": "true" });
    this.lost = make("p", { class: "lost", text: "no hand", hidden: true });
    this.player.films[0].figure.querySelector(".screen").append(this.overlay, this.lost);
    this.said = make("p", { class: "problem", role: "alert", hidden: true });
    put(
      this.detail,
      make("a", { class: "back", href: "#hands", text: "‹ All films" }),
      make("div", { class: "heading" }, make("h1", { text: name }), make("p", { class: "lead", text: told.task || "no task given" })),
      this.player.element,
      this.strip(),
      this.decide(),
      this.said,
      ...Object.entries(told.quality.hands || {}).map(([side, quality]) => figures(side, quality)),
    );
    this.player.seek(t);
  }

  // Gaps, grasps and releases along the film.
  strip() {
    const { times, quality } = this.told;
    const last = times.at(-1) || 1;
    const svg = draw("svg", { viewBox: "0 0 1000 40", preserveAspectRatio: "none", class: "strip", role: "img", "aria-label": "Where the hand is seen, and when it grasps and releases" });
    svg.append(draw("rect", { class: "seen", x: 0, y: 12, width: 1000, height: 16 }));
    let n = 0;
    for (const { gaps_s = [], grasps_s = [], releases_s = [] } of Object.values(quality.hands || {})) {
      n += gaps_s.length;
      for (const [from, to] of gaps_s) svg.append(draw("rect", { class: "gap", x: (1000 * from) / last, y: 12, width: Math.max(2, (1000 * (to - from)) / last), height: 16 }));
      for (const [when, kind] of [...grasps_s.map((s) => [s, "grasp"]), ...releases_s.map((s) => [s, "release"])])
        svg.append(draw("line", { class: kind, x1: (1000 * when) / last, x2: (1000 * when) / last, y1: 2, y2: 38 }));
    }
    this.needle = draw("line", { class: "needle", y1: 0, y2: 40 });
    svg.append(this.needle);
    svg.addEventListener("click", (event) => {
      const box = svg.getBoundingClientRect();
      this.player.seek(((event.clientX - box.left) / box.width) * (times.length - 1));
    });
    const key = (kind, text) => make("span", {}, make("i", { class: `swatch ${kind}`, "aria-hidden": "true" }), text);
    return make("div", { class: "card" }, svg, make("p", { class: "keys" }, key("seen", "hand seen"), key("gap", n === 1 ? "1 gap" : `${n} gaps`), key("grasp", "grasps"), key("release", "releases")));
  }

  decide() {
    const { state, problem } = this.told;
    if (problem) return make("p", { class: "problem", text: problem });
    if (state === "accepted") return make("p", { class: "done", text: `Added to ${tail(this.into)}.` });
    const accept = button("Accept: add it to the pool", () => this.send("accept"), { class: "primary", disabled: !this.into });
    const reject = button(state === "rejected" ? "Rejected" : "Reject", () => this.send("reject"), { disabled: state === "rejected" });
    return make("div", { class: "actions" }, accept, reject, this.into ? null : make("p", { class: "soft tiny", text: "Start the studio with --into POOL to accept films." }));
  }

  async send(what) {
    const { name } = this;
    try {
      const told = await ask(`/api/explore/${what}`, { method: "POST", body: { name } });
      this.studio.toast(what === "accept" ? `Added ${told.added} to ${tail(told.into)}, version ${told.version}.` : `${name} was rejected; no file was deleted.`);
      await this.read();
      const next = this.films.find(({ state, problem }) => !state && !problem);
      if (next) this.studio.open(this.studio.link("hands", { name: next.name }));
      else this.open(name, this.player.t);
    } catch (error) {
      show(this.said, error.message);
    }
  }

  moved(t) {
    if (!this.told) return;
    const { hands, size, n_frames } = this.told;
    const [high, wide] = size;
    const lines = [];
    let seen = true;
    Object.values(hands).forEach(({ marks, tool }, number) => {
      const at = (flat, k) => `${flat[2 * k] * wide},${flat[2 * k + 1] * high}`;
      const way = [];
      for (let k = Math.max(0, t - TRAIL); k <= t; k++) way.push(tool[k]);
      for (const run of runs(way)) lines.push(draw("polyline", { class: "way", points: run.map((flat) => at(flat, 0)).join(" ") }));
      const now = marks[t];
      if (!now) {
        seen = false;
        return;
      }
      for (const finger of FINGERS) lines.push(draw("polyline", { class: `bone c${number}`, points: finger.map((k) => at(now, k)).join(" ") }));
      for (let k = 0; k < 21; k++) lines.push(draw("circle", { class: `knuckle c${number}`, cx: now[2 * k] * wide, cy: now[2 * k + 1] * high, r: wide / 160 }));
      lines.push(draw("circle", { class: "tool", cx: tool[t][0] * wide, cy: tool[t][1] * high, r: wide / 90 }));
    });
    this.overlay.replaceChildren(...lines);
    this.lost.hidden = seen;
    const x = (1000 * t) / Math.max(1, n_frames - 1);
    this.needle.setAttribute("x1", x);
    this.needle.setAttribute("x2", x);
    if (this.studio.here === "hands") this.studio.remember("hands", { name: this.name, t: t || "" });
  }

  key(event) {
    const by = { j: 1, k: -1 }[event.key];
    const next = by && this.films[this.films.findIndex(({ name }) => name === this.name) + by];
    if (next) this.studio.open(this.studio.link("hands", { name: next.name }));
    else if (!by) this.player.key(event);
  }
}

// Stretches without a gap.
function runs(points) {
  const found = [[]];
  for (const point of points) {
    if (point) found.at(-1).push(point);
    else found.push([]);
  }
  return found.filter((run) => run.length > 1);
}

function figures(side, quality) {
  const mm = (value) => (value === null || value === undefined ? "–" : `${short(value)} mm`);
  const rows = [
    ["Seen in", `${(100 * quality.coverage).toFixed(1)} % of the frames`],
    ["Gaps", `${quality.gaps_s.length}, ${quality.bridged_frames} frames bridged`],
    ["Jitter", `${mm(quality.jitter_mm)}, ${short(quality.jitter_deg)}°`],
    ["Reprojection", quality.error_px === null ? "–" : `${short(quality.error_px)} px`],
    ["Palm", `${mm(quality.palm_mm)}, spread ${Math.round(100 * quality.palm_spread)} %`],
    ["Fingers", `${quality.opening_mm.map((value) => short(value)).join(" to ")} mm apart`],
    ["Grasps, releases", `${quality.grasps_s.length}, ${quality.releases_s.length}`],
    ["Left and right exchanged", `${quality.swaps} frames`],
  ];
  return make("section", { class: "card" }, make("h2", { text: side === "hand" ? "How well the hand was seen" : `How well the ${side} hand was seen` }), make("dl", { class: "facts" }, ...rows.flatMap(([key, value]) => [make("dt", { text: key }), make("dd", { text: value })])));
}
