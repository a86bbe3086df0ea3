// Elements from values. Text is always text: nothing here, or anywhere in the studio, parses markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, given, children) {
  for (const [key, value] of Object.entries(given)) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "text") element.textContent = value;
    else if (key === "on")
      for (const [name, run] of Object.entries(value)) element.addEventListener(name, run);
    else if (key === "value") element.value = value;
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export const make = (tag, given = {}, ...children) => fill(document.createElement(tag), given, children);

export const draw = (tag, given = {}, ...children) =>
  fill(document.createElementNS(SVG, tag), given, children);

export const byId = (id) => document.getElementById(id);

export function button(text, run, given = {}) {
  return make("button", { type: "button", text, on: { click: run }, ...given });
}

export function show(element, text) {
  element.textContent = text || "";
  element.hidden = !text;
}

export const degrees = (angle) => `${angle > 0 ? "+" : angle < 0 ? "−" : ""}${Math.abs(angle)}°`;

export const plural = (n, one) => `${n} ${one}${n === 1 ? "" : "s"}`;

// The name that a person gave; of what was collected, its task and seed; of anything else, its id.
export function nameOf(id) {
  const collected = /^pusht\/([a-z]+)\/([+-]?[\d.]+)\/(\d+)\/\w+$/.exec(id);
  return collected
    ? `${collected[1]} ${degrees(Number(collected[2]))} · ${collected[3]}`
    : id.replace(/^studio\//, "");
}

// The last part of a path, for people; the whole of it for who wants to know.
export const tail = (path) => path.replace(/\/+$/, "").split("/").at(-1);

// Put children in place of those that are there; what is null is left out.
export const put = (parent, ...children) =>
  parent.replaceChildren(...children.filter((child) => child !== null && child !== undefined));

// Put children in place of those that are there; whoever had the focus by address keeps it.
export function renew(parent, children) {
  const held = parent.contains(document.activeElement) && document.activeElement.getAttribute("href");
  parent.replaceChildren(...children);
  if (!held) return;
  for (const link of parent.querySelectorAll("a[href]")) {
    if (link.getAttribute("href") === held) link.focus({ preventScroll: true });
  }
}
