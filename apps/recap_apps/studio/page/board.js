// The board, drawn from numbers: goal, block, pusher, ways and chunks.

import { draw } from "./dom.js";

const MARGIN = 6;
const DEGREES = 180 / Math.PI;
const calm = window.matchMedia("(prefers-reduced-motion: reduce)");

const points = (way) => way.map(([x, y]) => `${x},${y}`).join(" ");
const placed = ([x, y, angle]) => `translate(${x} ${y}) rotate(${angle * DEGREES})`;

const rules = (size) =>
  Array.from({ length: 7 }, (_, i) => ((i + 1) * size) / 8)
    .map((at) => `M${at} 0V${size}M0 ${at}H${size}`)
    .join("");

export class Board {
  constructor(shapes, { label, pusher = "disc" }) {
    this.shapes = shapes;
    const size = shapes.size;
    const box = `${-MARGIN} ${-MARGIN} ${size + 2 * MARGIN} ${size + 2 * MARGIN}`;
    this.goal = draw("path", { class: "goal" });
    this.trail = draw("polyline", { class: "trail" });
    this.ghosts = draw("g", { class: "ghosts" });
    this.block = draw("path", { class: "block" });
    this.retrieved = draw("g", { class: "retrieved" });
    this.executed = draw("g", { class: "executed" });
    this.cross = draw("g", { class: "cross", visibility: "hidden" }, draw("circle", { r: 7 }));
    this.pusher =
      pusher === "disc"
        ? draw(
            "g",
            { class: "pusher" },
            draw("circle", { class: "halo", r: shapes.disc_radius }),
            draw("circle", { class: "disc", r: shapes.disc_radius }),
          )
        : draw("polygon", { class: "pusher triangle", points: points(shapes.triangle) });
    this.element = draw(
      "svg",
      { class: "board", viewBox: box, role: "img", "aria-label": label },
      draw("rect", { class: "felt", x: 0, y: 0, width: size, height: size, rx: 6 }),
      draw("path", { class: "rules", d: rules(size) }),
      this.goal,
      this.trail,
      this.ghosts,
      this.block,
      this.pusher,
      this.retrieved,
      this.executed,
      this.cross,
    );
    this.now = null;
    this.glide = 0;
  }

  set(block, goal) {
    const outline = `M${points(this.shapes.blocks[block].outline)}Z`;
    this.block.setAttribute("d", outline);
    this.goal.setAttribute("d", outline);
    this.goal.setAttribute("transform", placed(goal));
  }

  // At once, or gliding there within so many milliseconds.
  show(moment, within = 0) {
    cancelAnimationFrame(this.glide);
    const from = this.now;
    if (!within || !from || calm.matches) {
      this.put(moment);
      return;
    }
    const began = performance.now();
    const turn = Math.atan2(
      Math.sin(moment.block[2] - from.block[2]),
      Math.cos(moment.block[2] - from.block[2]),
    );
    const step = () => {
      const share = Math.min(1, (performance.now() - began) / within);
      const mix = (a, b) => a + (b - a) * share;
      this.put({
        pusher: [mix(from.pusher[0], moment.pusher[0]), mix(from.pusher[1], moment.pusher[1])],
        block: [
          mix(from.block[0], moment.block[0]),
          mix(from.block[1], moment.block[1]),
          from.block[2] + turn * share,
        ],
      });
      if (share < 1) this.glide = requestAnimationFrame(step);
    };
    step();
  }

  put(moment) {
    this.now = moment;
    this.block.setAttribute("transform", placed(moment.block));
    this.pusher.setAttribute("transform", `translate(${moment.pusher[0]} ${moment.pusher[1]})`);
  }

  target(place) {
    this.cross.setAttribute("visibility", place ? "visible" : "hidden");
    if (place) this.cross.setAttribute("transform", `translate(${place[0]} ${place[1]})`);
  }

  way(places) {
    this.trail.setAttribute("points", points(places));
  }

  // Where the block was: faint outlines.
  past(block, poses) {
    const outline = `M${points(this.shapes.blocks[block].outline)}Z`;
    this.ghosts.replaceChildren(
      ...poses.map((pose) => draw("path", { d: outline, transform: placed(pose) })),
    );
  }

  chunks(retrieved, executed) {
    for (const [layer, way, radius] of [
      [this.retrieved, retrieved, 4],
      [this.executed, executed, 2.4],
    ]) {
      layer.replaceChildren();
      if (!way || !way.length) continue;
      layer.append(draw("polyline", { points: points(way) }));
      for (const [cx, cy] of way) layer.append(draw("circle", { cx, cy, r: radius }));
    }
  }

  // Where a pointer is, in the board's own pixels.
  place(event) {
    const matrix = this.element.getScreenCTM().inverse();
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(matrix);
    return [at.x, at.y];
  }
}
