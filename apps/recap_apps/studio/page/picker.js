// Which block, which goal, which start: the same task for teaching and for running.

import { button, draw, make } from "./dom.js";
import { Dial } from "./dial.js";

const NAMES = { tee: "T", ell: "L", zed: "Z", plus: "Plus", cup: "Cup" };
let pickers = 0;

export class Picker {
  constructor(root, shapes, chosen) {
    this.shapes = shapes;
    this.chosen = chosen;
    const name = `block-${++pickers}`;
    this.radios = new Map();
    const blocks = make("div", { class: "blocks", role: "radiogroup", "aria-label": "Block" });
    for (const [block, { outline }] of Object.entries(shapes.blocks)) {
      const radio = make("input", {
        type: "radio",
        name,
        value: block,
        on: { change: () => this.pick({ block }) },
      });
      const ys = outline.map(([, y]) => y);
      const middle = (Math.max(...ys) + Math.min(...ys)) / 2;
      const picture = draw(
        "svg",
        { viewBox: "-72 -72 144 144", "aria-hidden": "true" },
        draw("path", { d: `M${outline.map(([x, y]) => `${x},${y - middle}`).join(" ")}Z` }),
      );
      blocks.append(
        make(
          "label",
          { title: NAMES[block] || block },
          radio,
          picture,
          make("span", { class: "aside", text: NAMES[block] || block }),
        ),
      );
      this.radios.set(block, radio);
    }
    this.dial = new Dial("Goal angle", (angle) => this.pick({ angle }));
    this.number = make("input", {
      type: "number",
      min: -180,
      max: 180,
      step: 1,
      class: "number",
      on: { change: () => this.pick({ angle: this.whole(this.number, -180, 180, this.task.angle) }) },
    });
    this.start = make("input", {
      type: "number",
      min: 0,
      max: shapes.max_start,
      step: 1,
      class: "number",
      on: {
        change: () => this.pick({ start: this.whole(this.start, 0, shapes.max_start, this.task.start) }),
      },
    });
    root.append(
      make("h2", { text: "Task" }),
      blocks,
      make(
        "div",
        { class: "goal-row" },
        this.dial.element,
        make(
          "div",
          { class: "numbers" },
          make("label", {}, make("span", { text: "Goal, °" }), this.number),
          make("label", {}, make("span", { text: "Start" }), this.start),
          button("Another start", () => this.pick({ start: Math.floor(Math.random() * 1000) }), {
            class: "quiet",
          }),
        ),
      ),
    );
  }

  whole(input, least, most, otherwise) {
    const value = Math.round(Number(input.value));
    return input.value !== "" && value >= least && value <= most ? value : otherwise;
  }

  set(task) {
    this.task = task;
    this.radios.get(task.block).checked = true;
    this.dial.outline(this.shapes.blocks[task.block].outline);
    this.dial.set(task.angle);
    this.number.value = task.angle;
    this.start.value = task.start;
  }

  pick(change) {
    const task = { ...this.task, ...change };
    this.set(task);
    this.chosen(task);
  }
}
