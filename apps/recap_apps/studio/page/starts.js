// Coverage: where demonstrations start, where none does, and what to record next.

import { draw, make, plural, put, show } from "./dom.js";
import { ask } from "./net.js";
import { short } from "./series.js";

const W = matchMedia("(max-width: 560px)").matches ? 380 : 720;
const PAD = { left: 64, right: 14, top: 12, bottom: 44 };
const LEVELS = [
  [1, "near"],
  [2, "fair"],
  [4, "far"],
  [Infinity, "bare"],
]; // times the typical distance between two starts

const level = (away, usual) => LEVELS.find(([most]) => away <= most * usual)[1];

export class CoverageView {
  constructor(studio) {
    this.studio = studio;
    this.axes = make("select", { "aria-label": "Map by", on: { change: () => this.read() } });
    this.task = make("select", { "aria-label": "Task", on: { change: () => this.read() } });
    this.problem = make("p", { class: "problem", role: "alert", hidden: true });
    this.body = make("div", { class: "starts-body" });
    this.element = make(
      "section",
      { class: "retrieval", "aria-label": "Coverage" },
      make("div", { class: "heading" }, make("h1", { text: "Coverage" }), make("p", { class: "lead", text: "Where demonstrations start, and where they are missing." })),
      make("div", { class: "card asked" }, make("label", { class: "row" }, make("span", { text: "Map by" }), this.axes), make("label", { class: "row" }, make("span", { text: "Task" }), this.task)),
      this.problem,
      this.body,
    );
  }

  enter(given) {
    this.wanted = { by: given.get("by") || "", task: given.get("task") || "" };
    if (!this.told || this.wanted.by !== this.told.chosen || this.wanted.task !== this.told.task) this.read(this.wanted);
  }

  leave() {}

  async read(wanted = { by: this.axes.value, task: this.task.value }) {
    const turn = (this.turn = (this.turn || 0) + 1);
    put(this.body, make("div", { class: "skeleton films" }));
    let told;
    try {
      told = await ask(`/api/explore/starts?${new URLSearchParams(wanted)}`);
    } catch (error) {
      if (turn === this.turn) {
        show(this.problem, error.message);
        put(this.body);
      }
      return;
    }
    if (turn !== this.turn) return;
    show(this.problem, "");
    this.told = told;
    this.draw();
    this.studio.remember("coverage", { by: told.chosen, task: told.task });
  }

  draw() {
    const { told } = this;
    if (!told.choices.length) {
      put(this.body, make("p", { class: "soft empty-one", text: "There is no demonstration." }));
      return;
    }
    this.axes.replaceChildren(...told.choices.map(({ name, text }) => make("option", { value: name, text })));
    this.axes.value = told.chosen;
    this.task.replaceChildren(make("option", { value: "", text: "all" }), ...told.tasks.map((text) => make("option", { value: text, text: text || "no task" })));
    this.task.value = told.task;
    put(this.body, make("div", { class: "card map-card" }, this.map(), this.keys()), make("div", { class: "card" }, make("h2", { text: "Record this next" }), this.next()));
  }

  // Room for all points, places and cells, with the same scale on both axes where both are lengths.
  frame() {
    const { points, grid, next, unit } = this.told;
    const all = [...points, ...next];
    const lowX = grid ? grid.low[0] : Math.min(...all.map(({ x }) => x));
    const lowY = grid ? grid.low[1] : Math.min(...all.map(({ y }) => y));
    const sizeX = (grid ? grid.size[0] : Math.max(...all.map(({ x }) => x)) - lowX) || 1;
    const sizeY = (grid ? grid.size[1] : Math.max(...all.map(({ y }) => y)) - lowY) || 1;
    const inner = W - PAD.left - PAD.right;
    const tall = Math.max(220, Math.min(560, (inner * sizeY) / sizeX));
    const scale = Math.min(inner / sizeX, tall / sizeY);
    const wide = sizeX * scale;
    const high = sizeY * scale;
    const down = unit === "px"; // as pictures have it
    const y = (v) => PAD.top + (down ? (v - lowY) * scale : high - (v - lowY) * scale);
    return { lowX, lowY, sizeX, sizeY, wide, high, down, x: (v) => PAD.left + (v - lowX) * scale, y };
  }

  map() {
    const { points, grid, cells, next, usual, labels, unit, lonely } = this.told;
    if (!points?.length) return make("p", { class: "soft", text: "Too few demonstrations for this map." });
    const at = this.frame();
    const svg = draw("svg", { class: "starts-map", viewBox: `0 0 ${at.wide + PAD.left + PAD.right} ${at.high + PAD.top + PAD.bottom}`, role: "group", "aria-label": "Starts of demonstrations" });
    if (grid) {
      const [w, h] = [at.wide / grid.nx, at.high / grid.ny];
      cells.forEach((away, k) => {
        if (away === null) return;
        const [i, j] = [k % grid.nx, Math.floor(k / grid.nx)];
        svg.append(draw("rect", { class: `cell ${level(away, usual || 1)}`, x: PAD.left + i * w, y: PAD.top + (at.down ? j * h : at.high - (j + 1) * h), width: w + 0.3, height: h + 0.3 }));
      });
    }
    for (const share of [0, 0.5, 1]) {
      const [vx, vy] = [at.lowX + share * at.sizeX, at.lowY + share * at.sizeY];
      svg.append(
        draw("text", { class: "axis", x: at.x(vx), y: PAD.top + at.high + 18, "text-anchor": share === 0 ? "start" : share === 1 ? "end" : "middle", text: short(vx, at.sizeX) }),
        draw("text", { class: "axis", x: PAD.left - 7, y: at.y(vy) + 4, "text-anchor": "end", text: short(vy, at.sizeY) }),
      );
    }
    const named = labels.map((label) => (unit ? `${label}, ${unit}` : label));
    svg.append(
      draw("text", { class: "axis", x: PAD.left + at.wide / 2, y: PAD.top + at.high + 38, "text-anchor": "middle", text: named[0] }),
      draw("text", { class: "axis", x: 14, y: PAD.top + at.high / 4, "text-anchor": "middle", transform: `rotate(-90 14 ${PAD.top + at.high / 4})`, text: named[1] }),
    );
    const alone = new Set((lonely || []).map(({ id }) => id));
    for (const { id, x, y } of points)
      svg.append(draw("a", { href: this.studio.link("demonstrations", { id }), "aria-label": id }, draw("circle", { cx: at.x(x), cy: at.y(y), r: alone.has(id) ? 7 : 4.5, class: alone.has(id) ? "alone" : "" }), draw("title", { text: id })));
    next.forEach(({ x, y }, i) => svg.append(draw("circle", { class: "place", cx: at.x(x), cy: at.y(y), r: 11 }), draw("text", { class: "place-number", x: at.x(x), y: at.y(y) + 5, "text-anchor": "middle", text: i + 1 })));
    return svg;
  }

  keys() {
    const { usual, unit, n, every, grid, share } = this.told;
    const said = [plural(n, "start")];
    if (every > 1) said.push(`every ${every}th is drawn`);
    if (usual !== null && usual !== undefined) said.push(`typical distance to the nearest other start ${short(usual)}${unit ? ` ${unit}` : ""}`);
    if (share) said.push(`the two axes explain ${Math.round(100 * share)} % of the variance`);
    const words = ["≤ typical", "≤ 2×", "≤ 4×", "> 4×"];
    const keys = grid ? LEVELS.map(([, kind], i) => make("span", {}, make("i", { class: `swatch ${kind}`, "aria-hidden": "true" }), words[i])) : [];
    return make("div", {}, make("p", { class: "soft tiny", text: `${said.join(", ")}.` }), keys.length ? make("p", { class: "keys" }, "Distance to the nearest start: ", ...keys) : null);
  }

  next() {
    const { next, lonely, labels, unit, usual } = this.told;
    const u = unit ? ` ${unit}` : "";
    if (next?.length)
      return make(
        "ol",
        { class: "next-places" },
        ...next.map(({ x, y, away }, i) =>
          make("li", {}, make("span", { class: "number-mark", text: i + 1 }), make("div", {}, make("strong", { text: `${labels[0]} ${short(x)}${u}, ${labels[1]} ${short(y)}${u}` }), make("p", { class: "soft tiny", text: `${short(away)}${u} from the nearest start, ${(away / (usual || away)).toFixed(1)} times the typical distance` }))),
        ),
      );
    if (lonely?.length)
      return make(
        "ol",
        { class: "next-places" },
        ...lonely.map(({ id, away }) =>
          make("li", {}, make("div", {}, make("a", { href: this.studio.link("demonstrations", { id }), text: id }), make("p", { class: "soft tiny", text: `Record another start like this one: its nearest neighbour is ${short(away)} away, typically ${short(usual)}` }))),
        ),
      );
    if (this.told.n > 2 && usual === null) return make("p", { class: "soft", text: "All demonstrations start at the same place. Choose another map." });
    return make("p", { class: "soft", text: this.told.n < 3 ? "This map needs at least three starts." : "No gap found: starts are spread evenly." });
  }
}
