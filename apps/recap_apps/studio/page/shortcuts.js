// The list of keyboard shortcuts, in a dialog.

import { button, byId, make } from "./dom.js";

export function showShortcuts(keys) {
  const dialog = byId("shortcuts");
  if (dialog.open) return;
  const close = button("×", () => dialog.close(), { class: "close", "aria-label": "Close" });
  dialog.replaceChildren(
    make("header", {}, make("h2", { id: "shortcuts-title", text: "Keyboard shortcuts" }), close),
    make(
      "dl",
      { class: "keys-list" },
      ...keys.flatMap(([pressed, what]) => [make("dt", {}, make("kbd", { text: pressed })), make("dd", { text: what })]),
    ),
  );
  dialog.showModal();
}

// Whether a key is meant for the page and not for a control.
export const isFree = (event) =>
  !event.target.matches("input:not([type=range]), select, textarea") && !event.ctrlKey && !event.metaKey && !event.altKey;
