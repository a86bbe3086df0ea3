// Teach: the pointer says where, the server's physics answers, and what happened becomes a demonstration.

import { Board } from "./board.js";
import { button, byId, degrees, make, show } from "./dom.js";
import { Lead } from "./lead.js";
import { Line } from "./net.js";
import { Picker } from "./picker.js";
import { Review, meter } from "./review.js";

const PERIOD_MS = 100;

export class TeachView {
  constructor(studio) {
    this.studio = studio;
    const { shapes } = studio.about;
    this.picker = new Picker(byId("teach-task"), shapes, (task) => {
      studio.task = task;
      history.replaceState(null, "", studio.link("teach"));
      this.begin();
    });
    this.board = new Board(shapes, { label: "Board" });
    const svg = this.board.element;
    svg.setAttribute("aria-describedby", "teach-hint");
    svg.classList.add("live");
    byId("teach-board").append(svg);
    this.meter = meter(shapes);
    byId("teach-meter").append(this.meter.element);
    this.stopButton = button("Stop", () => this.line.say("stop"), { class: "primary" });
    this.againButton = button("Start over", () => this.begin());
    byId("teach-actions").append(this.stopButton, this.againButton);
    this.review = new Review(byId("teach-review"), this.board, shapes, {
      add: (name, first, last) => this.line.say("add", { name, first, last }),
      discard: () => this.begin(),
    });
    this.hand = new Lead(this.board, {
      size: shapes.size,
      isLive: () => this.isLive,
      moment: () => this.moments.at(-1),
      point: ([x, y]) => this.line.say("point", { x, y }),
      release: () => this.line.say("release"),
    });
    svg.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || this.phase !== "recording") return;
      this.line.say("stop");
      event.preventDefault();
    });
  }

  enter() {
    this.picker.set(this.studio.task);
    const same = this.shown && JSON.stringify(this.shown) === JSON.stringify(this.studio.task);
    if (!this.line) {
      this.line = new Line("/api/studio/teach", {
        heard: (message) => this.heard(message),
        opened: () => this.begin(),
        lost: () => this.lost(),
      });
    } else if (!same || this.phase === "added") this.begin();
  }

  leave() {
    this.hand.letGo();
    if (this.phase === "recording") this.line.say("stop");
    this.review.rest();
  }

  begin() {
    this.moments = [];
    this.shown = { ...this.studio.task };
    this.review.close();
    show(byId("teach-problem"), "");
    byId("teach-added").hidden = true;
    this.line.say("begin", this.shown);
  }

  lost() {
    const had = this.phase === "recording" || this.phase === "review";
    this.phase = "lost";
    this.tell();
    if (had) show(byId("teach-problem"), "The connection was lost, and this recording with it.");
  }

  heard(message) {
    const { type } = message;
    if (type === "error") show(byId("teach-problem"), message.text);
    else if (type === "scene") {
      const { block, angle, start } = this.shown;
      this.board.set(block, message.goal);
      this.board.element.setAttribute(
        "aria-label",
        `Board with the ${block} block, goal at ${degrees(angle)}, start ${start}`,
      );
      this.moments = [message];
      this.board.way([]);
      this.board.target(null);
      this.board.show(message);
      this.meter.set(message.coverage);
      this.phase = "ready";
      this.tell();
    } else if (type === "moment") this.moved(message);
    else if (type === "stopped") this.stopped(message);
    else if (type === "added") this.added(message);
  }

  moved(moment) {
    const before = this.moments.at(-1).coverage;
    this.moments[moment.t] = moment;
    this.board.show(moment, PERIOD_MS);
    this.board.way(this.moments.map(({ pusher }) => pusher));
    this.meter.set(moment.coverage);
    if (this.phase === "ready") {
      this.phase = "recording";
      this.tell();
      this.studio.announce("Recording.");
    }
    for (const mark of [0.25, 0.5, 0.75, this.studio.about.shapes.solved]) {
      if (before <= mark && moment.coverage > mark) this.studio.announce(`Coverage above ${mark}.`);
    }
  }

  stopped({ n, end, name }) {
    this.hand.letGo();
    this.board.target(null);
    if (!n) {
      this.begin();
      return;
    }
    this.phase = "review";
    this.tell();
    const last = this.moments[n];
    const solved = last.over === "solved";
    this.studio.announce(
      solved ? "Goal reached. Name it and add it to the pool." : "Stopped. Trim it, name it, and add it.",
    );
    this.review.open(this.moments.slice(0, n + 1), end, name);
  }

  added({ name, before, version, success }) {
    this.phase = "added";
    show(byId("teach-problem"), "");
    this.review.close();
    this.tell();
    const box = byId("teach-added");
    const watch = make("a", {
      class: "go",
      href: this.studio.link("run", this.shown, { before }),
      text: "Watch the triangle use it",
    });
    box.replaceChildren(
      make(
        "p",
        {},
        make("strong", { text: name }),
        ` is in the pool, as version ${version}.`,
        success ? "" : " It does not reach the goal; the triangle will not either.",
      ),
      make(
        "div",
        { class: "actions" },
        watch,
        button("Teach another", () => this.begin()),
      ),
    );
    box.hidden = false;
    watch.focus({ preventScroll: true });
    this.studio.announce(`Added ${name} to the pool.`);
  }

  tell() {
    const words = {
      ready: "Drag the disc, or use the arrow keys. Time runs while you hold it.",
      recording: "Recording. Release to pause; Stop or Enter ends it.",
      review: "Review it, trim it, then add it to the pool.",
      added: "",
      lost: "Waiting for the server…",
    };
    byId("teach-hint").textContent = words[this.phase] || "";
    byId("teach-board").dataset.phase = this.phase;
    // Another task would throw the recording away: first discard it, or add it.
    byId("teach-task").inert = this.phase === "recording" || this.phase === "review";
    this.stopButton.hidden = this.phase !== "recording";
    this.againButton.hidden = this.phase !== "recording";
    byId("teach-meter").hidden = this.phase === "added";
  }

  get isLive() {
    return this.phase === "ready" || this.phase === "recording";
  }
}
