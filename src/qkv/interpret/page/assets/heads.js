// The grid of layers and heads: a small picture of each head's weights, and a way to choose it.

import { canCompute } from "./attention.js";
import { byId, element, roving } from "./elements.js";
import { count } from "./figures.js";
import { matrix, pooledMatrix } from "./matrix.js";
import { held, node } from "./payload.js";

const SIZE = 46; // of a picture, in pixels
const PIXELS = 64; // no picture is finer

// Draws the grids; choose(attention, head) is called for the one that is picked.
export function drawHeads(choose) {
  const kinds = new Map();
  for (const attention of held.attentions) kinds.set(attention.kind, [...(kinds.get(attention.kind) ?? []), attention]);
  const root = byId("heads");
  const waiting = [];
  for (const [kind, attentions] of kinds) {
    const buttons = [];
    const table = headTable(kind, attentions, buttons, waiting, choose);
    root.append(element("h3", {}, kind), element("p", { class: "lead" }, attentions[0].about), element("div", { class: "heads-frame" }, table));
    roving(table, buttons, Math.max(...attentions.map((each) => each.heads)));
    buttons[0].tabIndex = 0;
  }
  paintSome(waiting);
}

// Marks the chosen head.
export function markHead(attention, head) {
  for (const button of document.querySelectorAll("#heads button")) {
    const own = button.dataset.head === `${attention.prefix} ${head}`;
    button.setAttribute("aria-pressed", String(own));
    if (own) {
      for (const other of button.closest("table").querySelectorAll("button")) other.tabIndex = -1;
      button.tabIndex = 0;
    }
  }
}

function headTable(kind, attentions, buttons, waiting, choose) {
  const most = Math.max(...attentions.map((each) => each.heads));
  const names = Array.from({ length: most }, (_, head) => element("th", { scope: "col" }, `${most > 8 ? "" : "head "}${head}`));
  const rows = attentions.map((attention) => {
    const cells = Array.from({ length: attention.heads }, (_, head) => {
      const button = headButton(attention, head, waiting, choose);
      buttons.push(button);
      return element("td", {}, button);
    });
    return element("tr", {}, layerName(attention), ...cells);
  });
  const corner = element("td", {});
  return element("table", { class: most > 8 ? "heads many" : "heads" },
    element("caption", { class: "unseen" }, `${kind}: ${count(attentions.length, "layer")} of ${count(most, "head")}`),
    element("thead", {}, element("tr", {}, corner, ...names)), element("tbody", {}, ...rows));
}

function layerName(attention) {
  const coarse = node(`${attention.prefix}.weights`)?.pooled && !canCompute(`${attention.prefix}.weights`);
  return element("th", { scope: "row" }, `layer ${attention.layer}`, coarse ? element("small", {}, "pooled only") : null);
}

function headButton(attention, head, waiting, choose) {
  const canvas = element("canvas", { width: 1, height: 1, "aria-hidden": "true" });
  const habit = attention.habits[head];
  const name = `layer ${attention.layer}, head ${head}${habit ? `, ${habit}` : ""}`;
  const button = element("button", {
    type: "button", tabindex: -1, "aria-label": name, title: name, "aria-pressed": "false",
    "data-head": `${attention.prefix} ${head}`, onclick: () => choose(attention, head),
  }, canvas, element("span", { class: "habit", "aria-hidden": "true" }, habit?.split(" (")[0] ?? ""));
  waiting.push(() => paint(canvas, attention, head));
  return button;
}

// A few pictures at a time, so that the page answers meanwhile.
function paintSome(waiting) {
  const until = performance.now() + 12;
  while (waiting.length && performance.now() < until) waiting.shift()();
  if (waiting.length) setTimeout(() => paintSome(waiting));
}

function paint(canvas, attention, head) {
  const name = `${attention.prefix}.weights`;
  if (!node(name)) return;
  const shown = node(name).pooled ? pooledMatrix(name, head) : matrix(name, head);
  if (!shown) return;
  const rows = Math.min(shown.rows, PIXELS), columns = Math.min(shown.columns, PIXELS);
  canvas.width = columns;
  canvas.height = rows;
  canvas.style.width = `${SIZE}px`;
  canvas.style.height = `${SIZE}px`;
  const style = getComputedStyle(canvas);
  const [ink, veil] = [style.getPropertyValue("--thumb").split(" "), style.getPropertyValue("--veil").split(" ")].map((each) => each.map(Number));
  const picture = canvas.getContext("2d").createImageData(columns, rows);
  for (let i = 0; i < rows; i++) {
    const numbers = shown.row(i);
    for (let j = 0; j < columns; j++) {
      const hidden = shown.hidden(i, j);
      const [r, g, b] = hidden ? veil : ink;
      const strength = hidden ? ((i + j) % 3 ? 0.12 : 0.5) : Math.sqrt(Math.max(0, numbers[j]));
      picture.data.set([r, g, b, 255 * Math.min(1, strength)], 4 * (i * columns + j));
    }
  }
  canvas.getContext("2d").putImageData(picture, 0, 0);
}
