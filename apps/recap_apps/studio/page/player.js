// The films of all cameras side by side, in step, with one scrubber.

import { button, make } from "./dom.js";

const SLACK_S = 0.06; // by which a film may be off the first one before it is put right

const address = (what, id, more) => `/api/explore/${what}?${new URLSearchParams({ id, ...more })}`;

export const frameAddress = (id, camera, t, side = 640) => address("frame", id, { camera, t, side });

export class Player {
  constructor({ moved }) {
    this.moved = moved;
    this.t = 0;
    this.films = [];
    this.playButton = button("Play", () => this.toggle(), { class: "primary" });
    this.slider = make("input", { type: "range", min: 0, step: 1, "aria-label": "Step", on: { input: () => this.seek(Number(this.slider.value)) } });
    this.words = make("output", { class: "time" });
    this.screens = make("div", { class: "screens" });
    this.element = make("div", { class: "card player" }, this.screens, make("div", { class: "scrub" }, this.playButton, this.slider, this.words));
  }

  // `films` holds addresses of films that are no camera's; they have no single frames.
  load({ id, cameras, n_frames, fps, films = {} }, t) {
    this.pause();
    Object.assign(this, { id, n: n_frames, fps, t: Math.min(t, n_frames - 1), sources: films });
    this.slider.max = n_frames - 1;
    this.films = cameras.map((camera) => this.screen(camera));
    this.screens.dataset.n = cameras.length;
    this.screens.replaceChildren(
      ...this.films.map(({ figure }) => figure),
      ...(cameras.length ? [] : [make("p", { class: "soft", text: "There is no camera." })]),
    );
  }

  // A frame is shown at once; the film, which may have to be made first, takes its place when it is there.
  screen(camera) {
    const { id } = this;
    const own = this.sources[camera];
    const still = make("img", { src: own ? null : frameAddress(id, camera, this.t), alt: `Camera ${camera}`, class: "still" });
    const film = make("video", { src: own || address("film", id, { camera }), muted: true, playsinline: true, preload: "auto", "aria-label": `Film of camera ${camera}` });
    film.muted = true;
    still.hidden = Boolean(own);
    const note = make("span", { class: "soft" });
    const figure = make("figure", { class: "waiting" }, make("div", { class: "screen" }, still, film), make("figcaption", {}, `${camera} `, note));
    const found = { camera, still, film, figure, ready: false };
    film.addEventListener("loadeddata", () => {
      found.ready = true;
      figure.classList.remove("waiting");
      film.currentTime = this.time();
    });
    film.addEventListener("error", () => {
      note.textContent ||= "(the film cannot be shown; single frames are)";
    });
    still.addEventListener("error", () => {
      figure.classList.add("broken");
      note.textContent = "(this frame cannot be read)";
    });
    still.addEventListener("load", () => figure.classList.remove("broken"));
    return found;
  }

  time(t = this.t) {
    return (t + 0.5) / this.fps;
  }

  seek(t, following = false) {
    if (this.n === undefined) return;
    this.t = Math.max(0, Math.min(this.n - 1, Math.round(t)));
    if (!following) {
      this.pause();
      for (const { film, ready } of this.films) if (ready) film.currentTime = this.time();
    }
    for (const each of this.films.filter(({ ready }) => !ready)) this.stillAt(each);
    this.slider.value = this.t;
    this.words.textContent = `step ${this.t} of ${this.n - 1} · ${(this.t / this.fps).toFixed(2)} s`;
    this.moved(this.t);
  }

  // At most one frame of a camera is asked for at a time.
  stillAt(each) {
    each.wanted = this.t;
    if (each.asking || this.sources[each.camera]) return;
    each.asking = setTimeout(() => {
      each.asking = null;
      each.still.src = frameAddress(this.id, each.camera, each.wanted);
    }, 120);
  }

  toggle() {
    if (this.playing) this.pause();
    else this.play();
  }

  play() {
    if (this.n === undefined) return;
    if (this.t >= this.n - 1) this.seek(0);
    this.playing = true;
    this.playButton.textContent = "Pause";
    const ready = this.films.filter((each) => each.ready);
    for (const { film } of ready) film.play().catch(() => {});
    const lead = ready[0]?.film;
    const from = this.t;
    const began = performance.now();
    const follow = () => {
      if (!this.playing) return;
      const t = lead ? Math.floor(lead.currentTime * this.fps) : from + Math.floor(((performance.now() - began) / 1000) * this.fps);
      if (t !== this.t) this.seek(t, true);
      for (const { film } of ready.slice(1))
        if (Math.abs(film.currentTime - lead.currentTime) > SLACK_S) film.currentTime = lead.currentTime;
      if (this.t >= this.n - 1 || lead?.ended) this.pause();
      else requestAnimationFrame(follow);
    };
    requestAnimationFrame(follow);
  }

  pause() {
    this.playing = false;
    this.playButton.textContent = "Play";
    for (const { film } of this.films) film.pause();
  }

  key(event) {
    const onControl = event.target.matches("input[type=range], button, a");
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === " " && !event.target.matches("button, a")) this.toggle();
    else if (by && !onControl) this.seek(this.t + by * (event.shiftKey ? 10 : 1));
    else if (event.key === "Home" && !onControl) this.seek(0);
    else if (event.key === "End" && !onControl) this.seek(this.n - 1);
    else return;
    event.preventDefault();
  }
}
