// One demonstration: its film, its way over the board, and where it came from.

import { Board } from "./board.js";
import { button, byId, degrees, make, nameOf } from "./dom.js";
import { ask, demoPath } from "./net.js";

const N_GHOSTS = 6;

export class Demonstration {
  constructor(studio, remove) {
    this.studio = studio;
    this.remove = remove;
    this.dialog = byId("demo");
    this.dialog.addEventListener("close", () => {
      this.film?.pause();
      if (location.hash.startsWith("#pool/")) history.replaceState(null, "", "#pool");
      this.opener?.focus?.();
    });
    this.dialog.addEventListener("click", (event) => {
      if (event.target === this.dialog) this.dialog.close(); // beside it
    });
  }

  close() {
    if (this.dialog.open) this.dialog.close();
  }

  async open(id, t) {
    this.opener = document.activeElement;
    const title = make("h2", { id: "demo-title", text: nameOf(id) });
    const head = make(
      "header",
      {},
      title,
      button("×", () => this.close(), { class: "close", "aria-label": "Close" }),
    );
    const body = make("div", { class: "demonstration" }, make("p", { class: "soft", text: "Reading…" }));
    this.dialog.replaceChildren(head, body);
    if (!this.dialog.open) this.dialog.showModal();
    try {
      const path = demoPath(id);
      const [told, way] = await Promise.all([ask(path), ask(`${path}/trajectory`)]);
      this.fill(body, told, way, t);
    } catch (error) {
      body.replaceChildren(make("p", { class: "problem", text: error.message }));
    }
  }

  fill(body, told, way, t) {
    const { shapes } = this.studio.about;
    const { goal_angle, block = "tee" } = told.attributes;
    const poses = way.objects.block || [];
    const board = new Board(shapes, {
      label: `The way of the ${told.embodiment}`,
      pusher: told.embodiment === "triangle" ? "triangle" : "disc",
    });
    const n = way.proprio.length;
    const drawable = poses.length && way.goal && shapes.blocks[block];
    if (drawable) {
      board.set(block, way.goal);
      board.way(way.proprio);
      const picks = Array.from(
        { length: N_GHOSTS },
        (_, i) => poses[Math.round((i * (n - 1)) / (N_GHOSTS - 1))],
      );
      board.past(block, picks);
    }
    this.film = make("video", {
      src: `${demoPath(told.id)}/video`,
      muted: true,
      playsinline: true,
      loop: true,
      preload: "auto",
      width: 300,
      height: 300,
      "aria-label": "Film of the demonstration",
    });
    const words = make("output", {});
    const slider = make("input", {
      type: "range",
      min: 0,
      max: n - 1,
      step: 1,
      "aria-label": "Step",
      on: { input: () => seek(Number(slider.value), true) },
    });
    const play = button("Play", () => (this.film.paused ? this.film.play() : this.film.pause()));
    const seek = (at, film) => {
      slider.value = at;
      words.textContent = `step ${at} of ${n - 1}`;
      if (drawable) board.show({ pusher: way.proprio[at], block: poses[at] });
      if (film) this.film.currentTime = (at + 0.5) / way.fps;
    };
    const follow = () => {
      if (this.film.paused) return;
      seek(Math.min(n - 1, Math.floor(this.film.currentTime * way.fps)), false);
      requestAnimationFrame(follow);
    };
    this.film.addEventListener("play", () => {
      play.textContent = "Pause";
      follow();
    });
    this.film.addEventListener("pause", () => {
      play.textContent = "Play";
    });
    const facts = [
      ["Task", told.task],
      ...("correction_from_s" in told.attributes
        ? [["Correction", `used from step ${Math.round(told.attributes.correction_from_s * told.fps)} on`]]
        : []),
      ["Pusher", told.embodiment],
      ["Block", block],
      ["Goal", goal_angle === undefined ? "–" : degrees(goal_angle)],
      ["Length", `${told.length} steps, ${(told.length / told.fps).toFixed(1)} s`],
      ["Reaches the goal", told.success ? "yes" : "no"],
      ["Made by", told.source || "–"],
      ["Id", told.id],
    ];
    body.replaceChildren(
      make(
        "div",
        { class: "both" },
        make("figure", {}, this.film, make("figcaption", { text: "Film, as the policy sees it" })),
        make("figure", {}, board.element, make("figcaption", { text: "Its way" })),
      ),
      make("div", { class: "replay" }, play, slider, words),
      make(
        "dl",
        { class: "facts" },
        ...facts.flatMap(([key, value]) => [make("dt", { text: key }), make("dd", { text: value })]),
      ),
      make(
        "div",
        { class: "actions" },
        this.retry(told),
        button(
          "Delete",
          async () => {
            this.close();
            await this.remove(told.id);
          },
          { class: "danger" },
        ),
      ),
    );
    seek(Math.min(t, n - 1), true);
  }

  // Back to the task that it shows, where it was made from a start that has a number.
  retry(told) {
    const { block, goal_angle, seed } = told.attributes;
    const start = (seed ?? -1) - 100000;
    if (
      !(start >= 0 && start <= this.studio.about.shapes.max_start) ||
      !this.studio.about.shapes.blocks[block]
    )
      return null;
    const task = { block, angle: goal_angle, start };
    return make("a", { class: "go quiet", href: this.studio.link("run", task), text: "Run its task" });
  }
}
