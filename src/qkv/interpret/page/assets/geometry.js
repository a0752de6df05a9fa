// Where a key leads in a table, and how wide its figures are.

import { element } from "./elements.js";

// The cell that a key moves to from [i, j]; nothing for other keys. page: rows in sight.
export function moved({ key, ctrlKey, altKey, metaKey }, [i, j], { rows, columns }, page) {
  if (altKey || metaKey) return undefined;
  const to = {
    ArrowUp: [i - 1, j], ArrowDown: [i + 1, j], ArrowLeft: [i, j - 1], ArrowRight: [i, j + 1],
    Home: [ctrlKey ? 0 : i, 0], End: [ctrlKey ? rows - 1 : i, columns - 1],
    PageUp: [i - page, j], PageDown: [i + page, j],
  }[key];
  return to && [within(to[0], rows), within(to[1], columns)];
}

function within(at, count) {
  return Math.max(0, Math.min(count - 1, at));
}

// How wide one digit is in a table, in pixels.
let digit = 0;
export function digitWidth() {
  if (digit === 0) {
    const probe = element("span", { class: "heat probe" }, "0".repeat(20));
    document.body.append(probe);
    digit = probe.getBoundingClientRect().width / 20;
    probe.remove();
  }
  return digit;
}
