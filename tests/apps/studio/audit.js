// What a reader might miss on the page as it is: words that are too faint, controls without a name.
() => {
  const parts = (color) => (color.match(/[\d.]+/g) || []).map(Number);
  const channel = (v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * channel(r / 255) + 0.7152 * channel(g / 255) + 0.0722 * channel(b / 255);
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const color = parts(getComputedStyle(at).backgroundColor);
      if (color.length === 3 || color[3] > 0.5) return color;
    }
    return [255, 255, 255];
  };
  const visible = (selector) => [...document.querySelectorAll(selector)].filter((e) => e.checkVisibility());

  const faint = [];
  for (const element of visible("body *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || element instanceof SVGElement || element.closest(".aside, .skip, :disabled")) continue;
    const style = getComputedStyle(element);
    const [high, low] = [light(parts(style.color)), light(ground(element))].sort((a, b) => b - a);
    const ratio = (high + 0.05) / (low + 0.05);
    if (ratio < (parseFloat(style.fontSize) >= 24 ? 3 : 4.5)) {
      faint.push(`${element.textContent.trim().slice(0, 30)}: ${ratio.toFixed(2)}`);
    }
  }

  const named = (e) => e.getAttribute("aria-label") || e.hasAttribute("alt") || e.textContent.trim() || e.labels?.length;
  const controls = "button, a[href], input, select, img, video, [role=slider], [role=img], [role=option], [role=meter]";
  const nameless = visible(controls).filter((e) => !named(e)).map((e) => e.outerHTML.slice(0, 120));
  return { faint, nameless };
}
