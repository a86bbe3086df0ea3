// The page as a whole: which view is shown, what is known of the server, and what is said to the person.

import { button, byId, make, plural, show } from "./dom.js";
import { Line, ask } from "./net.js";
import { PoolView } from "./pool.js";
import { ResultsView } from "./results.js";
import { RunView } from "./run.js";
import { isFree, showShortcuts } from "./shortcuts.js";
import { TeachView } from "./teach.js";

const FIRST_TASK = { block: "tee", angle: 30, start: 151 };
const KEYS = [
  ["Space", "Run: play or pause"],
  ["← →", "Run: one step back or on; on a board: lead the pusher"],
  ["Shift ← →", "on a board: slowly"],
  ["Enter", "Teach: stop"],
  ["?", "this list"],
];
const STEPS = [
  ["run", "See it hold"],
  ["teach", "Show it how"],
  ["run", "Watch it being used"],
  ["pool", "Fill the gaps"],
];
const TOAST_MS = 20_000;
const VIEWS = { teach: TeachView, run: RunView, pool: PoolView, results: ResultsView };

class Studio {
  constructor(about) {
    this.about = about;
    this.task = { ...FIRST_TASK };
    this.views = {};
    this.here = null;
    this.connected = true;
    this.tellAbout();
    addEventListener("hashchange", () => this.go());
    addEventListener("keydown", (event) => {
      if (!isFree(event)) return;
      if (event.key === "?") showShortcuts(KEYS);
      else if (!document.querySelector("dialog[open]")) this.views[this.here].key?.(event);
    });
    byId("help").addEventListener("click", () => showShortcuts(KEYS));
    document.querySelector(".skip").addEventListener("click", (event) => {
      event.preventDefault(); // the address names the view, not a place on it
      byId("main").focus();
    });
    this.events = new Line("/api/studio/events", {
      heard: (pool) => this.poolIs(pool),
      opened: () => this.back(),
      lost: () => this.gone(),
    });
    this.go();
  }

  // #view/part?key=value
  go() {
    const [path, query] = location.hash.slice(1).split("?");
    const [name, ...rest] = path.split("/");
    const chosen = VIEWS[name] ? name : "teach";
    const parameters = new URLSearchParams(query || "");
    this.readTask(parameters);
    if (this.here !== chosen) {
      if (this.here) this.views[this.here].leave();
      for (const section of document.querySelectorAll("[data-section]"))
        section.hidden = section.id !== chosen;
      for (const link of document.querySelectorAll("nav a")) {
        if (link.dataset.view === chosen) link.setAttribute("aria-current", "page");
        else link.removeAttribute("aria-current");
      }
      document.title = `${chosen[0].toUpperCase()}${chosen.slice(1)} · ReCAP studio`;
      this.here = chosen;
      this.showSteps();
      scrollTo(0, 0);
    }
    this.views[chosen] ||= new VIEWS[chosen](this);
    this.views[chosen].enter({ part: rest.join("/"), parameters });
  }

  // Where a newcomer is: an empty pool is seen to hold, taught, watched, and filled.
  showSteps() {
    const taught = this.about.n_episodes > 0;
    const now = { run: taught ? 2 : 0, teach: 1, pool: 3 }[this.here];
    byId("steps").hidden = now === undefined;
    byId("steps").replaceChildren(
      ...STEPS.map(([view, text], i) =>
        make("li", {}, make("a", { href: this.link(view), text, "aria-current": i === now ? "step" : null })),
      ),
    );
  }

  readTask(parameters) {
    const block = parameters.get("block");
    const angle = Number(parameters.get("angle") ?? NaN);
    const start = Number(parameters.get("start") ?? NaN);
    const task = { ...this.task };
    if (block && this.about.shapes.blocks[block]) task.block = block;
    if (angle >= -180 && angle <= 180) task.angle = angle;
    if (Number.isInteger(start) && start >= 0 && start <= this.about.shapes.max_start) task.start = start;
    this.task = task;
  }

  // A link to a view with the task, or another one, in it.
  link(view, task = this.task, more = {}) {
    const chosen = { block: task.block, angle: task.angle, start: task.start, ...more };
    return `#${view}?${new URLSearchParams(chosen)}`;
  }

  poolIs({ version, n_episodes }) {
    const changed = version !== this.about.version;
    Object.assign(this.about, { version, n_episodes });
    this.tellAbout();
    if (changed) this.showSteps();
    if (changed) for (const view of Object.values(this.views)) view.poolChanged?.();
  }

  tellAbout() {
    const { policy, version, n_episodes } = this.about;
    const dot = make("span", { class: this.connected ? "dot" : "dot off", "aria-hidden": "true" });
    byId("about").replaceChildren(
      dot,
      make("span", {
        class: "policy",
        text:
          policy.name === "replay" ? "replay" : `${policy.name} · frozen ${policy.fingerprint.slice(0, 8)}`,
      }),
      make("span", { text: `pool v${version} · ${plural(n_episodes, "demonstration")}` }),
    );
  }

  gone() {
    this.connected = false;
    this.tellAbout();
    show(byId("gone"), "The server is gone. This page keeps trying to reconnect; restart it with: recap studio");
  }

  async back() {
    if (this.connected) return;
    this.connected = true;
    show(byId("gone"), "");
    this.announce("Connected again.");
    try {
      Object.assign(this.about, await ask("/api/studio/about"));
    } catch {
      return; // it has gone again, and says so
    }
    this.tellAbout();
    for (const view of Object.values(this.views)) view.poolChanged?.();
  }

  announce(text) {
    byId("announcer").textContent = text;
  }

  // A line at the foot of the page, with something to take it back by.
  toast(text, label, run) {
    clearTimeout(this.toastTimer);
    const box = byId("toast");
    const close = () => {
      box.hidden = true;
    };
    box.replaceChildren(make("span", { text }));
    if (label) {
      const act = button(label, async () => {
        close();
        await run();
      });
      box.append(act);
      setTimeout(() => act.focus({ preventScroll: true }));
    }
    box.append(button("×", close, { class: "close", "aria-label": "Close this message" }));
    box.hidden = false;
    this.toastTimer = setTimeout(close, TOAST_MS);
  }
}

async function begin() {
  for (;;) {
    try {
      new Studio(await ask("/api/studio/about"));
      return;
    } catch (error) {
      show(byId("gone"), `${error.message} Trying again…`);
      await new Promise((done) => setTimeout(done, 1500));
      show(byId("gone"), "");
    }
  }
}

begin();
