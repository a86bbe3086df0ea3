// State and action over time: one chart for each feature of the robot, drawn from numbers.

import { draw, make } from "./dom.js";

const NARROW = matchMedia("(max-width: 560px)").matches; // so that words stay readable
const W = NARROW ? 360 : 640;
const H = NARROW ? 130 : 150;
const PAD = { left: 62, right: 8, top: 10, bottom: 22 };
const HIGH = H - PAD.top - PAD.bottom;

// A number in few digits; what is nothing beside the span of its chart is 0.
export const short = (value, span = 0) => {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size < 1e-3 * span) return "0";
  return size && (size < 0.001 || size >= 1e5) ? value.toExponential(1) : Number(value.toPrecision(3)).toString();
};

// An empty chart for these values over so many seconds; `line` gives the path of values at even steps.
export function plot(label, values, seconds, wide = W) {
  const known = values.filter((value) => value !== null);
  let low = known.reduce((a, b) => Math.min(a, b), Infinity);
  let high = known.reduce((a, b) => Math.max(a, b), -Infinity);
  if (!known.length) [low, high] = [0, 1];
  if (high - low < 1e-9) [low, high] = [low - 0.5, high + 0.5];
  const y = (value) => PAD.top + (1 - (value - low) / (high - low)) * HIGH;
  const x = (share) => PAD.left + share * (wide - PAD.left - PAD.right);
  const svg = draw("svg", { viewBox: `0 0 ${wide} ${H}`, class: "line-chart", role: "img", "aria-label": label });
  for (const at of [low, (low + high) / 2, high])
    svg.append(
      draw("line", { class: "grid", x1: PAD.left, x2: wide - PAD.right, y1: y(at), y2: y(at) }),
      draw("text", { class: "axis", x: PAD.left - 6, y: y(at) + 4, "text-anchor": "end", text: short(at, high - low) }),
    );
  for (const share of [0, 0.5, 1])
    svg.append(
      draw("text", {
        class: "axis",
        x: x(share),
        y: H - 5,
        "text-anchor": share === 0 ? "start" : share === 1 ? "end" : "middle",
        text: `${(share * seconds).toFixed(seconds < 1 ? 2 : 1)} s`,
      }),
    );
  const line = (row) => {
    let d = "";
    let pen = "M";
    row.forEach((value, i) => {
      if (value === null) pen = "M";
      else {
        d += `${pen}${x(i / Math.max(1, row.length - 1)).toFixed(1)} ${y(value).toFixed(1)}`;
        pen = "L";
      }
    });
    return d;
  };
  return { svg, x, line, span: high - low, bottom: H - PAD.bottom, top: PAD.top };
}

export class Series {
  constructor({ steps, time, every, groups }, chosen) {
    Object.assign(this, { steps, time, every, chosen });
    this.charts = groups.map((group) => this.chart(group));
    const note = every > 1 ? ` Every ${every}th step is drawn.` : "";
    const hasBoth = groups.some(({ state, action }) => state && action);
    this.element = make(
      "section",
      { class: "card", "aria-label": "State and action over time" },
      make("h2", { text: "State and action" }),
      make("p", { class: "soft tiny", text: `${hasBoth ? "Solid: state. Dashed: action. " : ""}Click a chart to go to that step.${note}` }),
      make("div", { class: "series-grid" }, ...this.charts.map(({ element }) => element)),
    );
  }

  chart({ name, unit, channels, state, action }) {
    const values = [...(state || []), ...(action || [])].flat();
    const { svg, line, x, span, top, bottom } = plot(`${name}${unit ? `, ${unit}` : ""}, over time`, values, this.time.at(-1) || 0);
    for (const [lines, kind] of [
      [state, "state"],
      [action, "action"],
    ])
      (lines || []).forEach((row, i) => svg.append(draw("path", { class: `line ${kind} c${i % 8}`, d: line(row) })));
    const needle = draw("line", { class: "needle", y1: top, y2: bottom });
    svg.append(needle);
    svg.addEventListener("click", (event) => {
      const box = svg.getBoundingClientRect();
      const share = (((event.clientX - box.left) / box.width) * W - PAD.left) / (W - PAD.left - PAD.right);
      const index = Math.round(Math.max(0, Math.min(1, share)) * (this.steps.length - 1));
      this.chosen(this.steps[index]);
    });
    const figures = channels.map((channel, i) => {
      const figure = make("span", { class: "figure" });
      return { figure, label: make("li", { class: `c${i % 8}` }, make("span", { class: "stroke", "aria-hidden": "true" }), channels.length > 1 ? make("span", { text: channel }) : null, figure) };
    });
    const element = make(
      "figure",
      { class: "series-chart" },
      make("figcaption", {}, make("strong", { text: name }), unit ? make("span", { class: "soft", text: ` ${unit}` }) : null, make("ul", { class: "channels" }, ...figures.map(({ label }) => label))),
      svg,
    );
    return { element, needle, x, figures, state, action, span };
  }

  mark(t) {
    const index = Math.min(this.steps.length - 1, Math.round(t / this.every));
    const share = index / Math.max(1, this.steps.length - 1);
    for (const { needle, x, figures, state, action, span } of this.charts) {
      needle.setAttribute("x1", x(share));
      needle.setAttribute("x2", x(share));
      figures.forEach(({ figure }, i) => {
        const parts = [state, action].filter(Boolean).map((lines) => short(lines[i]?.[index], span));
        figure.textContent = parts.join(" → ");
      });
    }
  }
}
