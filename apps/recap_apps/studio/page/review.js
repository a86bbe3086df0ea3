// What was just recorded: play it, cut it, name it, keep it. And the meter of how well it covers the goal.

import { button, draw, make } from "./dom.js";

const PERIOD_MS = 100;
const WIDTH = 300;
const HEIGHT = 56;

export function meter(shapes) {
  const bar = make("div", { class: "fill" });
  const track = make(
    "div",
    {
      class: "track",
      role: "meter",
      "aria-label": "Coverage of the goal",
      "aria-valuemin": 0,
      "aria-valuemax": 1,
    },
    bar,
    ...[shapes.solved, shapes.done].map((mark) => {
      const line = make("i", { class: "mark" });
      line.style.left = `${100 * mark}%`;
      return line;
    }),
  );
  const words = make("output", { class: "figure" });
  const element = make(
    "div",
    { class: "coverage" },
    make("span", { class: "label", text: "Coverage" }),
    words,
    track,
    make(
      "div",
      { class: "ticks", "aria-hidden": "true" },
      ...[shapes.solved, shapes.done].map((mark) => {
        const tick = make("span", { text: mark });
        tick.style.left = `${100 * mark}%`;
        return tick;
      }),
    ),
  );
  return {
    element,
    set(coverage) {
      bar.style.width = `${100 * coverage}%`;
      words.textContent = coverage.toFixed(2);
      track.setAttribute("aria-valuenow", coverage);
      element.dataset.level = coverage > shapes.done ? "done" : coverage > shapes.solved ? "solved" : "";
    },
  };
}

export class Review {
  constructor(root, board, shapes, { add, discard }) {
    this.root = root;
    this.board = board;
    this.shapes = shapes;
    const slide = (label, moved) => {
      const input = make("input", {
        type: "range",
        min: 0,
        step: 1,
        on: { input: () => moved(Number(input.value)) },
      });
      const words = make("output", {});
      return {
        input,
        words,
        row: make("label", { class: "slide" }, make("span", { text: label }), input, words),
      };
    };
    this.curve = draw("polyline", { class: "curve" });
    this.kept = draw("rect", { class: "kept", y: 0, height: HEIGHT });
    this.needle = draw("line", { class: "needle", y1: 0, y2: HEIGHT });
    const y = HEIGHT * (1 - shapes.solved);
    this.plot = draw(
      "svg",
      {
        class: "spark",
        viewBox: `0 -2 ${WIDTH} ${HEIGHT + 4}`,
        preserveAspectRatio: "none",
        role: "img",
        "aria-label": "Coverage over time",
      },
      this.kept,
      draw("line", { class: "solved", x1: 0, x2: WIDTH, y1: y, y2: y }),
      this.curve,
      this.needle,
    );
    this.at = slide("Replay", (t) => this.seek(t));
    this.first = slide("From", (t) => this.trim(Math.min(t, this.to - 1), this.to, t));
    this.last = slide("To", (t) => this.trim(this.from, Math.max(t, this.from + 1), t));
    this.playButton = button("Play", () => (this.timer ? this.rest() : this.play()));
    this.name = make("input", { type: "text", maxlength: 80, autocomplete: "off", required: true });
    const form = make(
      "form",
      {
        on: {
          submit: (event) => {
            event.preventDefault();
            this.rest();
            add(this.name.value, this.from, this.to);
          },
        },
      },
      make("label", { class: "name" }, make("span", { text: "Name" }), this.name),
      make(
        "div",
        { class: "actions" },
        make("button", { type: "submit", class: "primary", text: "Add to pool" }),
        button("Discard", discard),
      ),
    );
    root.append(
      this.plot,
      make("div", { class: "replay" }, this.playButton, this.at.row),
      make("div", { class: "cuts" }, this.first.row, this.last.row),
      form,
    );
  }

  open(moments, end, name) {
    this.moments = moments;
    this.n = moments.length - 1;
    for (const { input } of [this.at, this.first, this.last]) input.max = this.n;
    this.curve.setAttribute(
      "points",
      moments.map(({ coverage }, t) => `${(WIDTH * t) / this.n},${HEIGHT * (1 - coverage)}`).join(" "),
    );
    this.name.value = name;
    this.root.hidden = false;
    this.trim(0, end, end);
  }

  close() {
    this.rest();
    this.root.hidden = true;
  }

  trim(from, to, shown) {
    this.from = from;
    this.to = to;
    this.first.input.value = from;
    this.last.input.value = to;
    this.first.words.textContent = `${(from / this.shapes.fps).toFixed(1)} s`;
    this.last.words.textContent = `${(to / this.shapes.fps).toFixed(1)} s`;
    this.kept.setAttribute("x", (WIDTH * from) / this.n);
    this.kept.setAttribute("width", (WIDTH * (to - from)) / this.n);
    this.board.way(this.moments.slice(from, to + 1).map(({ pusher }) => pusher));
    this.rest();
    this.seek(shown);
  }

  seek(t, within = 0) {
    this.t = t;
    this.at.input.value = t;
    this.at.words.textContent = `${(t / this.shapes.fps).toFixed(1)} s · ${this.moments[t].coverage.toFixed(2)}`;
    this.needle.setAttribute("x1", (WIDTH * t) / this.n);
    this.needle.setAttribute("x2", (WIDTH * t) / this.n);
    this.board.show(this.moments[t], within);
  }

  play() {
    if (this.t >= this.to || this.t < this.from) this.seek(this.from);
    this.playButton.textContent = "Pause";
    this.timer = setInterval(() => {
      if (this.t >= this.to) this.rest();
      else this.seek(this.t + 1, PERIOD_MS);
    }, PERIOD_MS);
  }

  rest() {
    clearInterval(this.timer);
    this.timer = null;
    this.playButton.textContent = "Play";
  }
}
