// Pool: what there is, what came when, what it covers, and how to take something back.

import { Coverage } from "./coverage.js";
import { Demonstration } from "./demonstration.js";
import { button, byId, degrees, make, nameOf, plural, renew, show, tail } from "./dom.js";
import { ask, demoPath } from "./net.js";
import { versionWords } from "./run.js";

const PAGE = 60;
const NAMED = 5; // of what cannot be used
const FILTERS = [
  ["task", "Task", ({ tasks }) => tasks],
  ["embodiment", "Pusher", ({ embodiments }) => embodiments],
  ["attribute.block", "Block", ({ attributes }) => attributes.block || []],
  ["tag", "Tag", ({ tags }) => tags],
];

export class PoolView {
  constructor(studio) {
    this.studio = studio;
    this.limit = PAGE;
    this.shown = {};
    this.demo = new Demonstration(studio, (id) => this.remove(id));
    this.coverage = new Coverage(byId("pool-coverage"), studio);
    this.selects = new Map();
    const form = byId("pool-filters");
    form.addEventListener("submit", (event) => event.preventDefault());
    this.search = make("input", {
      type: "search",
      placeholder: "Name",
      "aria-label": "Name contains",
      on: {
        input: () => {
          clearTimeout(this.typing);
          this.typing = setTimeout(() => this.list(), 200);
        },
      },
    });
    form.append(this.search);
    for (const [key, label] of FILTERS) {
      const select = make("select", { "aria-label": label, on: { change: () => this.list() } });
      this.selects.set(key, select);
      form.append(select);
    }
    this.tagName = make("input", {
      type: "text",
      maxlength: 60,
      placeholder: "Name this version",
      "aria-label": "Name of the newest version",
      required: true,
    });
  }

  enter({ part, parameters }) {
    if (!this.loaded) this.refresh();
    if (part) {
      let id = part;
      try {
        id = decodeURIComponent(part);
      } catch {
        // an address typed by hand: taken as it is
      }
      this.demo.open(id, Number(parameters.get("t")) || 0);
    }
  }

  leave() {
    this.demo.close();
  }

  poolChanged() {
    if (this.studio.here === "pool") this.refresh();
    else this.loaded = false;
  }

  async refresh() {
    this.loaded = true;
    await Promise.all([this.list(), this.listVersions(), this.coverage.refresh()]);
  }

  // Whether it differs from what is shown: drawing the same again would only take the focus away.
  isNews(key, told) {
    const text = JSON.stringify(told);
    const known = this.shown[key] === text;
    this.shown[key] = text;
    return !known;
  }

  async list() {
    const query = new URLSearchParams({ limit: this.limit });
    if (this.search.value) query.set("q", this.search.value);
    for (const [key, select] of this.selects) if (select.value) query.set(key, select.value);
    const turn = (this.turn = (this.turn || 0) + 1);
    let told;
    try {
      told = await ask(`/api/pool?${query}`);
    } catch (error) {
      show(byId("pool-problem"), error.message);
      return;
    }
    if (turn !== this.turn) return; // asked again since
    show(byId("pool-problem"), "");
    if (!this.isNews("list", [query.toString(), told])) return;
    for (const [key, label, values] of FILTERS) this.offer(this.selects.get(key), label, values(told));
    const filtered = query.toString() !== `limit=${this.limit}`;
    const { pool } = this.studio.about;
    byId("pool-lead").textContent =
      `${plural(told.total, "demonstration")}${filtered ? " matching" : ""} in version ${told.version} of ${tail(pool)}`;
    byId("pool-lead").title = pool;
    show(byId("pool-unusable"), unusableWords(told.unusable));
    renew(byId("pool-grid"), told.episodes.map(card));
    if (!told.total) {
      const words = filtered
        ? "No demonstration matches these filters."
        : "The pool is empty. With nothing to retrieve, the triangle holds still by design. ";
      byId("pool-grid").append(
        make(
          "li",
          { class: "nothing" },
          words,
          filtered ? null : make("a", { href: "#teach", text: "Teach it" }),
        ),
      );
    }
    const rest = told.total - told.episodes.length;
    byId("pool-more").hidden = rest <= 0;
    byId("pool-more").replaceChildren(
      button(`Show more (${rest} left)`, () => {
        this.limit += PAGE;
        this.list();
      }),
    );
  }

  offer(select, label, values) {
    const chosen = select.value;
    const all = make("option", { value: "", text: `${label}: all` });
    select.replaceChildren(all, ...values.map((value) => make("option", { value, text: value })));
    select.value = values.includes(chosen) ? chosen : "";
    select.hidden = !chosen && values.length < (label === "Tag" ? 1 : 2); // nothing to choose from
  }

  async listVersions() {
    let told;
    try {
      told = await ask("/api/pool/versions");
    } catch {
      return; // the list beside it says so
    }
    if (!this.isNews("versions", told)) return;
    const line = make("ol", { class: "versions", reversed: true });
    for (const each of [...told.versions].reverse()) line.append(this.version(each, told.head));
    const form = make(
      "form",
      { class: "tag", on: { submit: (event) => this.tag(event) } },
      this.tagName,
      make("button", { text: "Tag" }),
    );
    byId("pool-versions").replaceChildren(make("h2", { text: "Versions" }), form, line);
  }

  version(each, head) {
    const when = each.time ? new Date(each.time) : null;
    const diff = make("div", { class: "diff", hidden: true });
    const newest = each.version === head;
    const row = make(
      "li",
      { class: newest ? "newest" : "", value: each.version },
      make(
        "div",
        { class: "line" },
        make("span", { class: "what", text: versionWords(each) }),
        ...each.tags.map((tag) => make("span", { class: "pill", text: tag })),
        newest ? make("span", { class: "pill now", text: "newest" }) : null,
      ),
      when
        ? make("time", {
            datetime: each.time,
            text: when.toLocaleString([], { dateStyle: "short", timeStyle: "short" }),
          })
        : null,
      make(
        "div",
        { class: "actions" },
        each.version > 1
          ? button("What changed", () => this.diff(each.version, diff), {
              class: "quiet",
              "aria-label": `What changed in version ${each.version}`,
            })
          : null,
        newest
          ? null
          : button("Roll back to this", () => this.rollBack(each.version), {
              class: "quiet",
              "aria-label": `Roll back to version ${each.version}`,
            }),
      ),
      diff,
    );
    return row;
  }

  async diff(version, box) {
    if (!box.hidden) {
      box.hidden = true;
      return;
    }
    try {
      const told = await ask(`/api/pool/diff?from=${version - 1}&to=${version}`);
      const lines = [
        ["+", told.added],
        ["−", told.removed],
        ["~", told.changed],
      ].flatMap(([sign, ids]) => ids.slice(0, 12).map((id) => make("p", { text: `${sign} ${nameOf(id)}` })));
      const n = told.added.length + told.removed.length + told.changed.length;
      box.replaceChildren(
        ...(lines.length ? lines : [make("p", { text: "Nothing." })]),
        n > lines.length ? make("p", { class: "soft", text: `and ${n - lines.length} more` }) : null,
      );
    } catch (error) {
      box.replaceChildren(make("p", { class: "problem", text: error.message }));
    }
    box.hidden = false;
  }

  async tag(event) {
    event.preventDefault();
    try {
      await ask("/api/pool/tags", { method: "POST", body: { name: this.tagName.value } });
      this.studio.toast(`Tagged the newest version ${this.tagName.value}.`);
      this.tagName.value = "";
      await this.refresh();
    } catch (error) {
      this.studio.toast(error.message);
    }
  }

  async remove(id) {
    await this.change(() => ask(demoPath(id), { method: "DELETE" }), `Deleted ${nameOf(id)}.`);
  }

  async rollBack(version) {
    const body = { version };
    await this.change(
      () => ask("/api/pool/rollback", { method: "POST", body }),
      `Rolled back to version ${version}.`,
    );
  }

  // Whatever is done can be undone, as long as nobody else has changed the pool since.
  async change(work, words) {
    try {
      const { version, was } = await work();
      await this.refresh();
      this.studio.toast(words, "Undo", async () => {
        try {
          const body = { version: was, expect: version };
          await ask("/api/pool/rollback", { method: "POST", body });
          this.studio.toast("Undone.");
        } catch (error) {
          this.studio.toast(error.message);
        }
        await this.refresh();
      });
    } catch (error) {
      this.studio.toast(error.message);
    }
  }
}

// What is there and never retrieved, for it lacks what retrieval reads.
function unusableWords(unusable) {
  const found = Object.entries(unusable);
  if (!found.length) return "";
  const named = found.slice(0, NAMED).map(([id, why]) => {
    const lack = why.replace(`episode ${id} `, "").split(":")[0];
    return `${nameOf(id)} (${lack})`;
  });
  if (found.length > NAMED) named.push(`and ${found.length - NAMED} more`);
  return `${plural(found.length, "demonstration")} cannot be used: ${named.join(", ")}`;
}

function card(each) {
  const { block, goal_angle } = each.attributes;
  const facts = [
    block,
    goal_angle === undefined ? null : degrees(goal_angle),
    plural(each.length, "step"),
  ];
  const image = make("img", {
    src: `${demoPath(each.id)}/thumbnail`,
    alt: "",
    loading: "lazy",
    width: 96,
    height: 96,
  });
  return make(
    "li",
    {},
    make(
      "a",
      { class: "demo", href: `#pool/${encodeURIComponent(each.id)}` },
      image,
      make("span", { class: "title", title: each.id, text: nameOf(each.id) }),
      make("span", { class: "soft", text: facts.filter(Boolean).join(" · ") }),
      "correction_from_s" in each.attributes ? make("span", { class: "pill", text: "correction" }) : null,
      make("span", {
        class: each.success ? "pill good" : "pill",
        text: each.success ? "reaches the goal" : "misses the goal",
      }),
    ),
  );
}
