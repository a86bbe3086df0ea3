// A dial for an angle: a slider that one can turn by pointer or keyboard, and a number beside it.

import { draw, degrees } from "./dom.js";

const RADIUS = 78;
const SCALE = 0.58;

const wrap = (angle) => ((((angle + 180) % 360) + 360) % 360) - 180;

export class Dial {
  constructor(label, changed) {
    this.changed = changed;
    this.shape = draw("path", { class: "goal" });
    this.hand = draw("g", {}, draw("circle", { cy: -RADIUS, r: 11, class: "knob" }));
    const ticks = Array.from({ length: 24 }, (_, i) =>
      draw("line", {
        y1: -RADIUS - 9,
        y2: -RADIUS - (i % 6 ? 4 : 0) + 1,
        transform: `rotate(${15 * i})`,
        class: "tick",
      }),
    );
    this.element = draw(
      "svg",
      {
        class: "dial",
        viewBox: "-96 -96 192 192",
        role: "slider",
        tabindex: 0,
        "aria-label": label,
        "aria-valuemin": -180,
        "aria-valuemax": 180,
      },
      draw("circle", { r: RADIUS, class: "rim" }),
      ...ticks,
      this.shape,
      this.hand,
    );
    this.element.addEventListener("pointerdown", (event) => {
      this.element.setPointerCapture(event.pointerId);
      this.element.focus({ preventScroll: true });
      this.turn(event);
      event.preventDefault();
    });
    this.element.addEventListener("pointermove", (event) => {
      if (this.element.hasPointerCapture(event.pointerId)) this.turn(event);
    });
    this.element.addEventListener("keydown", (event) => this.key(event));
  }

  outline(way) {
    const ys = way.map(([, y]) => y);
    const middle = (Math.max(...ys) + Math.min(...ys)) / 2;
    const points = way.map(([x, y]) => `${x * SCALE},${(y - middle) * SCALE}`);
    this.shape.setAttribute("d", `M${points.join(" ")}Z`);
  }

  set(angle) {
    this.angle = angle;
    this.hand.setAttribute("transform", `rotate(${angle})`);
    this.shape.setAttribute("transform", `rotate(${angle})`);
    this.element.setAttribute("aria-valuenow", angle);
    this.element.setAttribute("aria-valuetext", degrees(angle));
  }

  turn(event) {
    const box = this.element.getBoundingClientRect();
    const x = event.clientX - box.left - box.width / 2;
    const y = event.clientY - box.top - box.height / 2;
    const angle = Math.atan2(x, -y) * (180 / Math.PI);
    const step = event.shiftKey ? 1 : 5;
    this.give(Math.round(angle / step) * step);
  }

  key(event) {
    const step = event.shiftKey ? 15 : 1;
    const by = {
      ArrowRight: step,
      ArrowUp: step,
      ArrowLeft: -step,
      ArrowDown: -step,
      PageUp: 15,
      PageDown: -15,
    }[event.key];
    if (by !== undefined) this.give(wrap(this.angle + by));
    else if (event.key === "Home") this.give(0);
    else if (event.key === "End") this.give(180);
    else return;
    event.preventDefault();
  }

  give(angle) {
    if (angle === -180) angle = 180;
    if (angle === this.angle) return;
    this.set(angle);
    this.changed(angle);
  }
}
