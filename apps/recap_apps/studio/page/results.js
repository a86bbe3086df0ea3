// Results: evaluations that were run before, as a table and as curves with their intervals.

import { byId, make, plural, show, tail } from "./dom.js";
import { stepChart, taskChart, taskName } from "./charts.js";
import { ask } from "./net.js";

const MOST = 4; // runs in a chart at once

const percent = (rate) => (rate.rate === null ? "–" : `${Math.round(100 * rate.rate)} %`);
const between = (rate) =>
  rate.low === null ? "" : `${Math.round(100 * rate.low)}–${Math.round(100 * rate.high)}`;

export class ResultsView {
  constructor(studio) {
    this.studio = studio;
    this.chosen = null;
    this.threshold = null;
  }

  async enter() {
    let told;
    try {
      told = await ask("/api/studio/results");
    } catch (error) {
      show(byId("results-problem"), error.message);
      return;
    }
    show(byId("results-problem"), "");
    this.runs = told.runs;
    const whole = this.runs.filter((run) => !run.error);
    byId("results-lead").textContent = `${plural(whole.length, "evaluation")} in ${tail(told.folder)}`;
    byId("results-lead").title = told.folder;
    this.chosen ||= new Set(whole.slice(0, 2).map(({ name }) => name));
    const thresholds = [...new Set(whole.flatMap((run) => run.thresholds))].sort();
    if (!thresholds.includes(this.threshold)) this.threshold = thresholds[0];
    this.thresholds = thresholds;
    this.draw();
  }

  leave() {}

  draw() {
    const body = byId("results-body");
    if (!this.runs.length) {
      body.replaceChildren(
        make(
          "div",
          { class: "card nothing" },
          make("p", { text: "There are no evaluations yet. For example:" }),
          make("pre", {
            tabindex: 0,
            text: "recap eval pusht-nano --env.pusher triangle --tasks=-30,0 --seeds 500:505 --out runs/nano",
          }),
        ),
      );
      return;
    }
    this.ticks = new Map();
    this.charts = make("div", { class: "charts" });
    const picks = make(
      "fieldset",
      { class: "picks" },
      make("legend", { text: "Success means coverage above" }),
      ...this.thresholds.map((value) =>
        make(
          "label",
          {},
          make("input", {
            type: "radio",
            name: "threshold",
            value,
            checked: value === this.threshold,
            on: {
              change: () => {
                this.threshold = value;
                this.chart();
              },
            },
          }),
          value,
        ),
      ),
    );
    body.replaceChildren(
      make(
        "div",
        { class: "card scroll", tabindex: 0, role: "region", "aria-label": "Evaluations" },
        this.table(),
      ),
      this.charts,
      make(
        "div",
        { class: "card row-wrap" },
        picks,
        make("p", {
          class: "soft",
          text: "Wilson 95 % intervals; in the table they are widened where episodes share a start.",
        }),
      ),
    );
    this.chart();
  }

  chart() {
    const shown = this.runs.filter(({ name, error }) => !error && this.chosen.has(name)).slice(0, MOST);
    for (const [name, tick] of this.ticks) tick.disabled = this.chosen.size >= MOST && !this.chosen.has(name);
    this.charts.replaceChildren(
      make(
        "div",
        { class: "card" },
        make("h2", { text: "Success by goal" }),
        taskChart(shown, this.threshold),
      ),
      make(
        "div",
        { class: "card" },
        make("h2", { text: "Success by step" }),
        stepChart(shown, this.threshold),
      ),
    );
  }

  table() {
    const heads = [
      "",
      "Run",
      "Agent",
      "Pusher",
      "Block",
      "Episodes",
      ...this.thresholds.map((t) => `> ${t}`),
      "Errors",
      "Report",
    ];
    const rows = this.runs.map((run) => this.row(run));
    return make(
      "table",
      {},
      make("caption", { class: "aside", text: "Past evaluations" }),
      make("thead", {}, make("tr", {}, ...heads.map((text) => make("th", { scope: "col", text })))),
      make("tbody", {}, ...rows),
    );
  }

  row(run) {
    if (run.error) {
      return make(
        "tr",
        {},
        make("td"),
        make("th", { scope: "row", text: run.name }),
        make("td", { colspan: 5 + this.thresholds.length, class: "problem", text: run.error }),
        make("td"),
      );
    }
    const all = run.groups.at(-1).success;
    const tick = make("input", {
      type: "checkbox",
      checked: this.chosen.has(run.name),
      "aria-label": `Show ${run.name} in the charts`,
      on: {
        change: () => {
          if (tick.checked) this.chosen.add(run.name);
          else this.chosen.delete(run.name);
          this.chart();
        },
      },
    });
    this.ticks.set(run.name, tick);
    const rates = this.thresholds.map((t) =>
      make(
        "td",
        { class: "figure" },
        all[t] ? percent(all[t]) : "–",
        all[t] ? make("span", { class: "soft", text: ` ${between(all[t])}` }) : null,
      ),
    );
    const goals =
      run.tasks.length === 1 ? taskName(run.tasks[0].name) : plural(run.tasks.length, "goal");
    return make(
      "tr",
      {},
      make("td", {}, tick),
      make("th", { scope: "row" }, run.name, make("span", { class: "soft", text: ` ${goals}` })),
      make("td", { text: run.agent }),
      make("td", { text: run.pusher }),
      make("td", { text: run.block }),
      make("td", { class: "figure", text: run.n }),
      ...rates,
      make("td", { class: "figure", text: run.n_errors }),
      make(
        "td",
        {},
        ...run.reports.map((path) =>
          make("a", {
            href: `/api/studio/reports/${path.split("/").map(encodeURIComponent).join("/")}`,
            target: "_blank",
            rel: "noopener",
            text: path.split("/").at(-1),
          }),
        ),
      ),
    );
  }
}
