// Two charts, drawn from numbers.

import { degrees, draw, make } from "./dom.js";

const W = matchMedia("(max-width: 560px)").matches ? 320 : 460; // so that words stay readable
const H = 250;
const PAD = { left: 40, right: 12, top: 12, bottom: 34 };
const MARKS = ["circle", "square", "diamond", "triangle"];

const y = (rate) => PAD.top + (1 - rate) * (H - PAD.top - PAD.bottom);

function frame(label, ticks, words) {
  const svg = draw("svg", { class: "chart", viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": label });
  for (const rate of [0, 0.25, 0.5, 0.75, 1]) {
    svg.append(
      draw("line", { class: "grid", x1: PAD.left, x2: W - PAD.right, y1: y(rate), y2: y(rate) }),
      draw("text", {
        class: "axis",
        x: PAD.left - 6,
        y: y(rate) + 4,
        "text-anchor": "end",
        text: `${100 * rate}%`,
      }),
    );
  }
  for (const [x, text] of ticks)
    svg.append(draw("text", { class: "axis", x, y: H - PAD.bottom + 16, "text-anchor": "middle", text }));
  svg.append(
    draw("text", {
      class: "axis",
      x: (PAD.left + W - PAD.right) / 2,
      y: H - 3,
      "text-anchor": "middle",
      text: words,
    }),
  );
  return svg;
}

function mark(kind, x, at) {
  const size = 4.5;
  if (kind === "circle") return draw("circle", { cx: x, cy: at, r: size });
  const way = {
    square: `M${x - size} ${at - size}h${2 * size}v${2 * size}h${-2 * size}Z`,
    diamond: `M${x} ${at - 6}L${x + 6} ${at}L${x} ${at + 6}L${x - 6} ${at}Z`,
    triangle: `M${x} ${at - 6}L${x + 6} ${at + 5}L${x - 6} ${at + 5}Z`,
  };
  return draw("path", { d: way[kind] });
}

function legend(runs) {
  return make(
    "ul",
    { class: "series" },
    ...runs.map((run, i) =>
      make(
        "li",
        { class: `s${i}` },
        draw(
          "svg",
          { viewBox: "-8 -8 16 16", width: 14, height: 14, "aria-hidden": "true" },
          mark(MARKS[i], 0, 0),
        ),
        make("span", { text: run.name }),
      ),
    ),
  );
}

const missing = () => make("p", { class: "soft", text: "Choose a run in the table." });

// A task of PushT is a goal angle; one of another world is shown by its name.
export const taskName = (name) => (Number.isNaN(Number(name)) ? name : degrees(Number(name)));

export function taskChart(runs, threshold) {
  if (!runs.length) return missing();
  const tasks = [...new Set(runs.flatMap((run) => run.tasks.map(({ name }) => name)))].sort(
    (a, b) => Number(a) - Number(b) || 0,
  );
  const inner = W - PAD.left - PAD.right;
  const place = (task) => PAD.left + ((tasks.indexOf(task) + 0.5) / tasks.length) * inner;
  const every = Math.ceil(tasks.length / 10);
  const svg = frame(
    `Success rate above ${threshold} by goal, with 95 % intervals`,
    tasks.filter((_, i) => i % every === 0).map((task) => [place(task), taskName(task)]),
    "goal",
  );
  runs.forEach((run, i) => {
    const group = draw("g", { class: `s${i}` });
    const shift = (i - (runs.length - 1) / 2) * Math.min(9, inner / tasks.length / 5);
    for (const { name, success } of run.tasks) {
      const rate = success[threshold];
      if (!rate || rate.rate === null) continue;
      const x = place(name) + shift;
      group.append(
        draw("line", { class: "bar", x1: x, x2: x, y1: y(rate.low), y2: y(rate.high) }),
        mark(MARKS[i], x, y(rate.rate)),
      );
    }
    svg.append(group);
  });
  return make("div", {}, svg, legend(runs));
}

export function stepChart(runs, threshold) {
  if (!runs.length) return missing();
  const most = Math.max(...runs.flatMap((run) => (run.curves[threshold] || []).map(([step]) => step)), 1);
  const place = (step) => PAD.left + (step / most) * (W - PAD.left - PAD.right);
  const ticks = [0, 0.25, 0.5, 0.75, 1].map((share) => [place(share * most), Math.round(share * most)]);
  const svg = frame(
    `Share of episodes past ${threshold} by step, with 95 % intervals`,
    ticks,
    "control step",
  );
  runs.forEach((run, i) => {
    const points = run.curves[threshold] || [];
    const low = points.map(([step, , bound]) => `${place(step)} ${y(bound)}`);
    const high = points.map(([step, , , bound]) => `${place(step)} ${y(bound)}`).reverse();
    if (!points.length) return;
    svg.append(
      draw(
        "g",
        { class: `s${i}` },
        draw("path", { class: "band", d: `M${[...low, ...high].join("L")}Z` }),
        draw("path", {
          class: "line",
          d: `M${points.map(([step, share]) => `${place(step)} ${y(share)}`).join("L")}`,
        }),
      ),
    );
  });
  return make("div", {}, svg, legend(runs));
}
