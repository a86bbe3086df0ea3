// Many starts at once: how often the policy reaches the goal, with its interval.

import { button, degrees, make, plural, put, show } from "./dom.js";
import { Line } from "./net.js";

const CHOICES = [5, 10, 20, 50];

export class Trials {
  constructor(root, studio) {
    this.studio = studio;
    this.n = make("select", { "aria-label": "Starts" }, ...CHOICES.map((n) => make("option", { value: n, text: plural(n, "start") })));
    this.n.value = 10;
    this.go = button("Try them", () => this.toggle());
    this.words = make("p", { class: "rate", role: "status" });
    this.bar = make("div", { class: "rate-bar", "aria-hidden": "true", hidden: true }, make("span", { class: "interval" }), make("span", { class: "point" }));
    this.list = make("ul", { class: "tried", "aria-label": "Starts that have ended" });
    this.problem = make("p", { class: "problem", role: "alert", hidden: true });
    put(root, make("div", { class: "head" }, make("h2", { text: "Many starts" }), make("div", { class: "actions" }, this.n, this.go)), this.words, this.bar, this.list, this.problem);
    this.rest();
  }

  toggle() {
    if (this.running) {
      this.line.say("stop");
      return;
    }
    this.results = [];
    this.task = { ...this.studio.task };
    show(this.problem, "");
    this.running = true;
    this.go.textContent = "Stop";
    this.words.textContent = "Preparing…";
    this.bar.hidden = true;
    put(this.list);
    const begin = () => this.running && this.line.say("begin", { ...this.task, n: Number(this.n.value) });
    if (this.line) begin();
    else this.line = new Line("/api/studio/trials", { heard: (message) => this.heard(message), opened: begin, lost: () => this.rest() });
  }

  heard(message) {
    if (message.type === "error") {
      show(this.problem, message.text);
      this.rest();
      return;
    }
    const { n, ended, reached, stayed, low, high, results, over, version, seconds } = message;
    for (const each of results) this.list.append(this.row(each));
    const { solved } = this.studio.about.shapes;
    const running = over ? "" : ` ${seconds.toFixed(0)} s of each so far.`;
    const rate = ended ? `${Math.round((100 * reached) / ended)} % [${Math.round(100 * low)}, ${Math.round(100 * high)}]` : "";
    this.words.textContent = ended
      ? `${reached} of ${ended} reached ${solved}: ${rate}, and ${stayed} were there at the end. Goal ${degrees(this.task.angle)}, pool version ${version}${ended < n ? `, ${n - ended} of ${n} go on` : ""}.${running}`
      : `${plural(n, "start")} under way.${running}`;
    this.bar.hidden = !ended;
    if (ended) {
      const [interval, point] = this.bar.children;
      interval.style.left = `${100 * low}%`;
      interval.style.width = `${100 * (high - low)}%`;
      point.style.left = `${(100 * reached) / ended}%`;
    }
    if (over) {
      this.rest();
      this.studio.announce(this.words.textContent);
    }
  }

  row({ start, best, at, last, reached }) {
    const text = `${start}: ${reached ? "reached" : "best"} ${best.toFixed(2)} at ${at.toFixed(1)} s, at the end ${last.toFixed(2)}`;
    return make("li", {}, make("a", { class: reached ? "pill good" : "pill", href: this.studio.link("run", { ...this.task, start }), text: `${start} · ${best.toFixed(2)}`, title: text, "aria-label": text }));
  }

  rest() {
    this.running = false;
    this.go.textContent = "Try them";
  }
}
