// What the pool covers: a ring of goals, the starts of one of them, and what to record next.

import { degrees, draw, make, plural } from "./dom.js";
import { ask } from "./net.js";

const STEP = 15;
const INNER = 62;
const OUTER = 92;
const STARTS = { from: 78, size: 294 }; // px of the board where blocks start, with room around
const LEVELS = [
  [40, "near"],
  [80, "fair"],
  [140, "far"],
  [Infinity, "bare"],
]; // px to the nearest moment

const level = (distance) => (distance === null ? "bare" : LEVELS.find(([most]) => distance <= most)[1]);
const away = (distance) => (distance === null ? "nothing near" : `${distance.toFixed(0)} px`);

export class Coverage {
  constructor(root, studio) {
    this.root = root;
    this.studio = studio;
    this.chosen = null;
  }

  async refresh() {
    const block = this.studio.task.block;
    let told;
    try {
      told = await ask(`/api/studio/coverage?block=${encodeURIComponent(block)}`);
    } catch (error) {
      this.told = null;
      this.root.replaceChildren(
        make("h2", { text: "Coverage" }),
        make("p", { class: "problem", text: error.message }),
      );
      return;
    }
    if (this.told && JSON.stringify(this.told) === JSON.stringify(told)) return; // drawn already
    this.told = told;
    this.draw();
  }

  draw() {
    const { told } = this;
    const block = make(
      "select",
      {
        "aria-label": "Block",
        on: {
          change: () => {
            this.studio.task = { ...this.studio.task, block: block.value };
            this.refresh();
          },
        },
      },
      ...Object.keys(this.studio.about.shapes.blocks).map((value) => make("option", { value, text: value })),
    );
    block.value = told.block;
    this.ring = draw("svg", {
      class: "ring",
      viewBox: "-100 -100 200 200",
      role: "listbox",
      "aria-label": "Goal angles, and the distance from each to the pool",
    });
    this.middle = make("div", { class: "middle" });
    const near = this.chosen === null ? this.studio.task.angle : this.chosen;
    const first = told.goals.reduce((a, b) => (Math.abs(a.angle - near) <= Math.abs(b.angle - near) ? a : b));
    this.angleWords = draw("text", { class: "strong", y: 2, "aria-hidden": "true" });
    this.awayWords = draw("text", { y: 22, "aria-hidden": "true" });
    this.sectors = told.goals.map((goal) => this.sector(goal));
    this.ring.append(...this.sectors, this.angleWords, this.awayWords);
    const hints = told.suggestions.map(({ angle, start, distance }) =>
      make(
        "li",
        {},
        make("span", { class: `swatch ${level(distance)}`, "aria-hidden": "true" }),
        make("span", { text: `${degrees(angle)}, start ${start}` }),
        make("span", { class: "soft", text: away(distance) }),
        make("a", {
          class: "go small",
          href: this.studio.link("teach", { block: told.block, angle, start }),
          text: "Teach this",
          "aria-label": `Teach goal ${degrees(angle)}, start ${start}`,
        }),
      ),
    );
    const keys = [
      ["near", "≤ 40"],
      ["fair", "≤ 80"],
      ["far", "≤ 140"],
      ["bare", "> 140 px"],
    ].map(([kind, text]) =>
      make("span", {}, make("i", { class: `swatch ${kind}`, "aria-hidden": "true" }), text),
    );
    const usual = told.usual === null ? "" : `, typically ${told.usual.toFixed(0)} px apart`;
    this.root.replaceChildren(
      make("div", { class: "head" }, make("h2", { text: "Coverage" }), block),
      make("p", {
        class: "soft tiny",
        text: `Distance from the start of a task to the nearest frame in the pool. ${plural(told.n_demonstrations, "demonstration")} of this block${usual}.`,
      }),
      make("div", { class: "map" }, this.ring, this.middle),
      make("p", { class: "keys" }, ...keys),
      make("h3", { text: "Record this next" }),
      make("ul", { class: "next" }, ...hints),
    );
    this.choose(first.angle, false);
  }

  sector({ angle, median }) {
    const [a, b] = [angle - STEP / 2 + 0.8, angle + STEP / 2 - 0.8].map((value) => (value * Math.PI) / 180);
    const at = (radius, turn) =>
      `${(radius * Math.sin(turn)).toFixed(2)} ${(-radius * Math.cos(turn)).toFixed(2)}`;
    const outline = `M${at(INNER, a)}L${at(OUTER, a)}A${OUTER} ${OUTER} 0 0 1 ${at(OUTER, b)}L${at(INNER, b)}A${INNER} ${INNER} 0 0 0 ${at(INNER, a)}Z`;
    return draw("path", {
      d: outline,
      class: level(median),
      role: "option",
      tabindex: -1,
      "data-angle": angle,
      "aria-label": `Goal ${degrees(angle)}, ${away(median)}`,
      on: {
        click: () => this.choose(angle, true),
        keydown: (event) => this.key(event, angle),
      },
    });
  }

  key(event, angle) {
    const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    const angles = this.told.goals.map((goal) => goal.angle);
    const next = (angles.indexOf(angle) + by + angles.length) % angles.length;
    this.choose(angles[next], true);
  }

  choose(angle, focus) {
    this.chosen = angle;
    const goal = this.told.goals.find((each) => each.angle === angle);
    for (const sector of this.sectors) {
      const mine = Number(sector.dataset.angle) === angle;
      sector.setAttribute("aria-selected", mine);
      sector.setAttribute("tabindex", mine ? 0 : -1);
      if (mine && focus) sector.focus({ preventScroll: true });
    }
    this.angleWords.textContent = degrees(angle);
    this.awayWords.textContent = away(goal.median);
    const { from, size } = STARTS;
    const starts = draw(
      "svg",
      {
        class: "starts",
        viewBox: `${from} ${from} ${size} ${size}`,
        role: "group",
        "aria-label": `Starts at goal ${degrees(angle)}`,
      },
      draw("rect", { class: "felt", x: from + 1, y: from + 1, width: size - 2, height: size - 2, rx: 14 }),
      ...goal.starts.map(({ start, block: [x, y], distance }) =>
        draw(
          "a",
          {
            href: this.studio.link("teach", { block: this.told.block, angle, start }),
            class: level(distance),
            "aria-label": `Start ${start}, ${away(distance)}: teach it`,
          },
          draw("circle", { cx: x, cy: y, r: 12 }),
          draw("title", { text: `Start ${start}: ${away(distance)}` }),
        ),
      ),
    );
    this.middle.replaceChildren(starts, make("p", { class: "soft tiny", text: "block positions at the start" }));
  }
}
