// One run: its board, what the policy sees and foresees, what it retrieved and why.

import { Board } from "./board.js";
import { degrees, draw, make, nameOf } from "./dom.js";
import { Lead } from "./lead.js";
import { meter } from "./review.js";
import { plot } from "./series.js";

const TERMS = {
  proprio: "pusher",
  object: "block’s place",
  turn: "block’s turn",
  world_turn: "turn on the board",
};
const REACH_PX = 45; // of the triangle, within which a press takes over
const CURVE_PX = 380; // so that its words stay readable beside the board
const FULL_PX = 120; // a bar as wide as its track

export class Lane {
  // `lead`, where the pool of this run grows, lets a person take over.
  constructor(shapes, { title, task, goal, words, ahead, lead = null }) {
    this.shapes = shapes;
    this.live = Boolean(lead);
    this.words = make("p", { class: "soft", text: words });
    this.moments = [];
    this.plans = [];
    this.board = new Board(shapes, {
      pusher: "triangle",
      label: `${title}: the triangle and the ${task.block} block, goal at ${degrees(task.angle)}`,
    });
    this.board.set(task.block, goal);
    if (lead) {
      this.hand = new Lead(this.board, {
        size: shapes.size,
        reach: REACH_PX,
        moment: () => this.moments.at(-1),
        ...lead,
      });
      this.board.element.setAttribute("aria-describedby", "run-hint");
      this.board.element.classList.add("takeover");
    }
    this.meter = meter(shapes);
    this.curve = curve(shapes);
    this.reached = make("p", { class: "soft tiny reached" });
    this.badge = make("p", { class: "badge" });
    this.camera = picture("Camera", "What the camera sees now");
    this.ahead = `Predicted, in ${ahead} s`;
    this.foreseen = picture(this.ahead, "The future that the policy predicts");
    this.first = picture("Retrieved: first", "First retrieved frame");
    this.last = picture("Retrieved: last", "Last retrieved frame");
    this.source = make("a", { class: "source" }, this.first.element, this.last.element);
    this.why = make("div", { class: "why" });
    const legend = make(
      "p",
      { class: "legend" },
      make("span", { class: "key retrieved", text: "retrieved" }),
      make("span", { class: "key executed", text: "executed" }),
    );
    this.element = make(
      "article",
      { class: "lane card", "aria-label": `${title}, ${words}` },
      make("header", {}, make("h2", { text: title }), this.words),
      make("div", {}, make("div", { class: "board-wrap" }, this.board.element, this.badge), legend, this.reached, this.curve.element),
      make(
        "div",
        { class: "told" },
        this.meter.element,
        make("div", { class: "pictures" }, this.camera.element, this.foreseen.element, this.source),
        this.why,
      ),
    );
    this.explain(null);
  }

  take(moment) {
    this.moments[moment.t] = moment;
    if (moment.plan) this.plans.push({ t: moment.t, ...moment.plan });
  }

  show(t, within) {
    const moment = this.moments[Math.min(t, this.moments.length - 1)];
    if (!moment) return;
    this.board.show(moment, within);
    this.board.way(this.moments.slice(0, moment.t + 1).map(({ pusher }) => pusher));
    this.meter.set(moment.coverage);
    this.reached.textContent = this.verdict(moment.t);
    this.curve.set(this.moments.map(({ coverage }) => coverage), moment.t);
    this.camera.set(moment.camera);
    const plan = moment.holding || moment.person ? null : this.plans.findLast(({ t: made }) => made <= moment.t) || null;
    this.board.chunks(plan?.retrieved, plan?.executed);
    if (moment.end) this.say(moment.end, this.verdict());
    else if (moment.person) this.say("person", "You drive; release to hand control back");
    else if (moment.holding) this.say("hold", "Holding: nothing to retrieve");
    else this.say("", "");
    if (plan !== this.plan || moment.holding !== this.held) this.explain(plan, moment.holding, moment.person);
  }

  say(kind, text) {
    this.badge.textContent = text;
    this.badge.dataset.kind = kind;
    this.badge.hidden = !text;
  }

  // What was reached up to a step, when, and what is left of it then.
  verdict(t = this.moments.length - 1) {
    const { fps, solved } = this.shapes;
    const seen = this.moments.slice(0, t + 1).map(({ coverage }) => coverage);
    if (!seen.length) return "";
    const best = Math.max(...seen);
    const at = (seen.indexOf(best) / fps).toFixed(1);
    return `${best > solved ? "Reached" : "Best"} ${best.toFixed(2)} at ${at} s, now ${seen.at(-1).toFixed(2)}`;
  }

  explain(plan, holding, person) {
    this.plan = plan;
    this.held = holding;
    this.foreseen.set(plan?.foreseen);
    // Not every policy predicts a picture.
    this.foreseen.name(plan && !plan.foreseen ? "Not predicted" : this.ahead);
    this.first.set(plan?.frames[0]);
    this.last.set(plan?.frames[1]);
    if (!plan) {
      this.source.removeAttribute("href");
      this.why.replaceChildren(
        make("p", {
          class: "soft",
          text: person
            ? "Your correction is added to the pool when you release, and can be retrieved at the next step."
            : holding
            ? "The pool is empty, so the triangle holds still by design. (recap demo also shows what the policy does without retrieval.)"
            : "Nothing retrieved yet.",
        }),
      );
      return;
    }
    this.source.href = `#pool/${encodeURIComponent(plan.episode)}?t=${plan.first}`;
    this.source.title = `${nameOf(plan.episode)}, steps ${plan.first} to ${plan.last}`;
    const bars = Object.entries(plan.costs).map(([term, cost]) => {
      const px = Math.sqrt(cost);
      return bar(TERMS[term] || term, px / FULL_PX, `${px.toFixed(0)} px`);
    });
    const sure =
      plan.confidence === null
        ? bar("confidence", 0, "too few demonstrations")
        : bar("confidence", plan.confidence, plan.confidence.toFixed(2), "sure");
    const link = make("a", { href: this.source.href, text: nameOf(plan.episode) });
    this.why.replaceChildren(
      make(
        "p",
        { class: "from" },
        "From ",
        link,
        `, steps ${plan.first}–${plan.last}, ${plan.distance.toFixed(0)} px away`,
      ),
      make("dl", { class: "bars" }, ...bars.flat(), ...sure),
    );
  }
}

// Coverage over the whole time of an episode, with what counts as reaching the goal.
function curve({ fps, solved, max_steps: n }) {
  const { svg, line, x, top, bottom } = plot("Coverage over time", [0, 1], n / fps, CURVE_PX);
  const y = top + (1 - solved) * (bottom - top);
  const path = draw("path", { class: "line c0" });
  const needle = draw("line", { class: "needle", y1: top, y2: bottom });
  svg.append(
    draw("line", { class: "solved", x1: x(0), x2: x(1), y1: y, y2: y }),
    draw("text", { class: "axis", x: x(1), y: y - 4, "text-anchor": "end", text: `${solved} counts` }),
    path,
    needle,
  );
  return {
    element: svg,
    set(values, t) {
      path.setAttribute("d", line([...values, ...Array(Math.max(0, n + 1 - values.length)).fill(null)]));
      needle.setAttribute("x1", x(t / n));
      needle.setAttribute("x2", x(t / n));
    },
  };
}

function picture(words, alt) {
  const image = make("img", { alt, width: 96, height: 96, hidden: true });
  const empty = make("span", { class: "empty", "aria-hidden": "true" });
  const caption = make("figcaption", { text: words });
  return {
    element: make("figure", {}, image, empty, caption),
    name(text) {
      caption.textContent = text;
    },
    set(source) {
      image.hidden = !source;
      empty.hidden = Boolean(source);
      if (source) image.src = source;
    },
  };
}

function bar(words, share, figure, kind = "") {
  const fill = make("span", { class: `fill ${kind}` });
  fill.style.width = `${100 * Math.min(1, share)}%`;
  return [
    make("dt", { text: words }),
    make(
      "dd",
      {},
      make("span", { class: "track", "aria-hidden": "true" }, fill),
      make("span", { class: "figure", text: figure }),
    ),
  ];
}
