// Run: the frozen triangle, with the pool as it was and as it is; play, pause, step, and scrub back.

import { button, byId, degrees, make, nameOf, plural, show } from "./dom.js";
import { Lane } from "./lane.js";
import { Line, ask } from "./net.js";
import { Picker } from "./picker.js";
import { Trials } from "./trials.js";

const RATES = [
  [5, "½×"],
  [10, "1×"],
  [20, "2×"],
  [40, "4×"],
];
const WORDS = {
  add: "added",
  remove: "removed",
  rollback: "rolled back",
  create: "created",
  compact: "tidied",
  repair: "repaired",
};

export const versionWords = ({ version, op, n_added, n_removed }) =>
  `v${version} · ${WORDS[op] || op}${op === "add" ? ` ${n_added}` : op === "remove" ? ` ${n_removed}` : ""}`;

const contents = (version, n) => `version ${version}, ${plural(n, "demonstration")}`;

export class RunView {
  constructor(studio) {
    this.studio = studio;
    this.picker = new Picker(byId("run-task"), studio.about.shapes, (task) => {
      studio.task = task;
      this.remember();
      this.begin();
    });
    this.before = make("select", {
      id: "run-before",
      on: {
        change: () => {
          this.remember();
          this.begin();
        },
      },
    });
    byId("run-task").append(
      make("label", { class: "row", for: "run-before" }, make("span", { text: "Compare with" }), this.before),
    );
    this.buildTransport();
    this.trials = new Trials(byId("run-trials"), studio);
    this.lanes = [];
    this.last = 0;
  }

  buildTransport() {
    this.playButton = button("Play", () => this.toggle(), { class: "primary" });
    this.backButton = button("‹", () => this.seek(this.at - 1), {
      "aria-label": "Step back",
      title: "Step back",
    });
    this.stepButton = button("›", () => this.step(), { "aria-label": "Step forward", title: "Step forward" });
    this.againButton = button("Restart", () => this.begin());
    this.slider = make("input", {
      type: "range",
      min: 0,
      max: 0,
      step: 1,
      value: 0,
      "aria-label": "Step",
      on: { input: () => this.seek(Number(this.slider.value)) },
    });
    this.words = make("output", { class: "time" });
    this.rate = make(
      "select",
      {
        "aria-label": "Speed",
        on: {
          change: () => {
            if (this.playing) this.line.say("play", { rate: Number(this.rate.value) });
          },
        },
      },
      ...RATES.map(([value, text]) => make("option", { value, text })),
    );
    this.rate.value = 10;
    byId("run-transport").append(
      this.playButton,
      this.backButton,
      this.stepButton,
      this.slider,
      this.words,
      this.rate,
      this.againButton,
    );
  }

  enter({ parameters }) {
    this.picker.set(this.studio.task);
    const wanted = parameters.get("before");
    if (wanted !== null) this.wanted = wanted;
    // One after the other: two quick visits must not open two lines.
    this.entered = (this.entered || Promise.resolve()).then(() => this.settle());
  }

  async settle() {
    await this.readVersions(this.wanted);
    const shown = JSON.stringify([this.studio.task, this.before.value]);
    if (!this.line) {
      this.line = new Line("/api/studio/run", {
        heard: (message) => this.heard(message),
        opened: () => this.begin(),
        lost: () => this.rest(),
      });
    } else if (shown !== this.shown) this.begin();
  }

  leave() {
    this.pause();
  }

  remember() {
    this.wanted = this.before.value;
    history.replaceState(null, "", this.studio.link("run", this.studio.task, { before: this.wanted }));
  }

  // The versions that one can compare with; by default the one before the last change.
  async readVersions(wanted) {
    let told;
    try {
      told = await ask("/api/pool/versions");
    } catch (error) {
      show(byId("run-problem"), error.message);
      return;
    }
    const older = told.versions.filter(({ version }) => version < told.head).reverse();
    this.before.replaceChildren(
      make("option", { value: "none", text: "nothing: one run" }),
      ...older.map((each) => make("option", { value: each.version, text: versionWords(each) })),
    );
    const usual = older.length ? String(older[0].version) : "none";
    const known = [...this.before.options].some(({ value }) => value === wanted);
    this.before.value = known ? wanted : usual;
  }

  poolChanged() {
    this.readVersions(this.before.value); // what is being looked at stays
    const { version, n_episodes } = this.studio.about;
    for (const lane of this.lanes) if (lane.live) lane.words.textContent = contents(version, n_episodes);
    this.offer();
  }

  // Without demonstrations there is nothing to watch: teach, or take some that are shipped.
  offer() {
    const empty = !this.studio.about.n_episodes;
    const box = byId("run-empty");
    box.hidden = !empty;
    if (!empty) return;
    const take = button("Add 20 example demonstrations", async () => {
      take.disabled = true;
      take.textContent = "Adding…";
      try {
        const { version } = await ask("/api/studio/examples", { method: "POST", body: this.studio.task });
        this.studio.toast(`Added 20 example demonstrations (pool version ${version}).`);
      } catch (error) {
        this.studio.toast(error.message);
        this.offer();
      }
    });
    box.replaceChildren(
      make("p", { text: "The pool is empty, so the triangle holds still. Teach it, or start with demonstrations that come with the studio." }),
      make("div", { class: "actions" }, make("a", { class: "go", href: this.studio.link("teach"), text: "Teach it" }), take),
    );
  }

  begin() {
    this.offer();
    const before = this.before.value;
    const versions = before && before !== "none" ? [Number(before), null] : [null];
    this.shown = JSON.stringify([this.studio.task, before]);
    this.rest();
    show(byId("run-problem"), "");
    if (!this.lanes.length) byId("run-lanes").replaceChildren(make("div", { class: "skeleton films" }));
    this.line.say("begin", { ...this.studio.task, versions, rate: Number(this.rate.value) });
  }

  heard(message) {
    const { type } = message;
    if (type === "error") {
      show(byId("run-problem"), message.text);
      this.rest();
    } else if (type === "scene") this.scene(message);
    else if (type === "moment") {
      const follow = this.at >= this.last;
      this.lanes[message.lane]?.take(message);
      this.last = Math.max(this.last, message.t);
      this.slider.max = this.last;
      if (follow) this.seek(this.last, true);
      else this.tell();
    } else if (type === "corrected") {
      this.studio.toast(message.id ? `Added ${nameOf(message.id)}.` : message.text);
      this.studio.announce(message.id ? `Added ${nameOf(message.id)} to the pool.` : message.text);
    } else if (type === "paused") {
      this.rest();
      this.over = message.over;
      this.tell();
      if (message.over) this.studio.announce(this.lanes.map((lane) => lane.verdict()).join(" "));
    }
  }

  scene({ goal, lanes }) {
    const { about, task } = this.studio;
    this.lanes = lanes.map(({ version, n_episodes, pinned }) => {
      const title = lanes.length === 1 ? "Now" : pinned ? "Before" : "Now";
      const words = contents(version, n_episodes);
      const lead = pinned ? null : this.lead(lanes.length - 1);
      return new Lane(about.shapes, { title, task, goal, words, ahead: about.policy.ahead_s, lead });
    });
    byId("run-lanes").replaceChildren(...this.lanes.map(({ element }) => element));
    byId("run-lanes").dataset.lanes = lanes.length;
    this.at = this.last = 0;
    this.over = false;
    this.slider.max = 0;
    this.studio.announce(`Ready: the ${task.block} block, goal at ${degrees(task.angle)}.`);
  }

  // A person may take over at the end of what was seen; whoever looks back looks on.
  lead(lane) {
    return {
      isLive: () => !this.over && !this.replaying && this.at >= this.last,
      point: ([x, y]) => {
        if (!this.playing) this.toggle();
        this.line.say("point", { lane, x, y });
      },
      release: () => this.line.say("release", { lane }),
    };
  }

  toggle() {
    if (this.playing) this.pause();
    else if (this.replaying) this.rest();
    else if (this.at < this.last) this.replay();
    else if (this.over) {
      this.seek(0);
      this.replay();
    } else {
      this.playing = true;
      this.tell();
      this.line.say("play", { rate: Number(this.rate.value) });
    }
  }

  // What was already seen is shown again from memory; at its end the run itself goes on.
  replay() {
    this.replaying = setInterval(
      () => {
        if (this.at < this.last) this.seek(this.at + 1, true);
        else {
          this.rest();
          if (!this.over) this.toggle();
        }
      },
      1000 / Number(this.rate.value),
    );
    this.tell();
  }

  step() {
    if (this.at < this.last) this.seek(this.at + 1);
    else if (!this.over) this.line.say("step");
  }

  // The step that is being made is still shown; then the server says that it has paused.
  pause() {
    if (this.playing) this.line.say("pause");
    else this.rest();
  }

  rest() {
    this.playing = false;
    clearInterval(this.replaying);
    this.replaying = null;
    this.tell();
  }

  seek(t, following = false) {
    this.at = Math.min(this.last, Math.max(0, t));
    if (!following && (this.playing || this.replaying)) this.pause();
    for (const lane of this.lanes) lane.show(this.at, following ? 1000 / Number(this.rate.value) : 0);
    this.tell();
  }

  tell() {
    const { fps } = this.studio.about.shapes;
    this.slider.value = this.at;
    this.words.textContent = `step ${this.at || 0} of ${this.last} · ${((this.at || 0) / fps).toFixed(1)} s`;
    this.playButton.textContent =
      this.playing || this.replaying ? "Pause" : this.over && this.at >= this.last ? "Replay" : "Play";
    this.backButton.disabled = !this.at;
    this.stepButton.disabled = this.over && this.at >= this.last;
  }

  key(event) {
    const onBoard = event.target.closest("svg, input, button, select, a");
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === " " && !event.target.matches("button, a")) this.toggle();
    else if (by === 1 && !onBoard) this.step();
    else if (by === -1 && !onBoard) this.seek(this.at - 1);
    else return;
    event.preventDefault();
  }
}
