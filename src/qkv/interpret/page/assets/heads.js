// Selecting a layer and head: a grid with a thumbnail of each head's weights, and drop-down lists.

import { canRecompute } from "./attention.js";
import { byId, element, rovingFocus } from "./dom.js";
import { count } from "./format.js";
import { fullMatrix, pooledMatrix } from "./matrix.js";
import { nodeOf, payload } from "./payload.js";

const THUMBNAIL_SIZE = 46; // CSS pixels
const MAX_PIXELS = 64; // of a thumbnail's canvas
const TIME_SLICE = 12; // milliseconds of painting before the page may do something else

// Draws one grid for each kind of attention; select(attention, head) is called on a click.
export function drawHeads(select) {
  const root = byId("heads");
  const paintJobs = [];
  for (const kind of attentionKinds()) {
    const attentions = attentionsOfKind(kind);
    const columns = Math.max(...attentions.map((attention) => attention.heads));
    const buttons = [];
    const table = headTable(kind, attentions, columns, buttons, paintJobs, select);
    root.append(element("h3", {}, kind), element("p", { class: "lead" }, attentions[0].about), element("div", { class: "heads-frame" }, table));
    rovingFocus(table, buttons, columns);
    buttons[0].tabIndex = 0;
  }
  runPaintJobs(paintJobs);
}

// The drop-down lists next to the steps; select(attention, head) is called on a change.
export function drawHeadLists(select) {
  const kinds = attentionKinds();
  const lists = { kind: dropDown("kind"), layer: dropDown("layer"), head: dropDown("head") };
  const onChange = () => {
    const attentions = attentionsOfKind(lists.kind.value);
    const attention = attentions.find((each) => each.layer === Number(lists.layer.value)) ?? attentions[0];
    select(attention, Math.min(Number(lists.head.value), attention.heads - 1));
  };
  for (const list of Object.values(lists)) list.addEventListener("change", onChange);
  setOptions(lists.kind, kinds);
  const items = [labelled("layer", lists.layer), labelled("head", lists.head)];
  if (kinds.length > 1) items.unshift(labelled("attention", lists.kind));
  byId("switcher").append(...items);
}

// Shows in the grids and in the lists which head is selected.
export function markHead(attention, head) {
  for (const button of document.querySelectorAll("#heads button")) {
    const isSelected = button.dataset.head === `${attention.prefix} ${head}`;
    button.setAttribute("aria-pressed", String(isSelected));
    if (isSelected) {
      for (const other of button.closest("table").querySelectorAll("button")) other.tabIndex = -1;
      button.tabIndex = 0;
    }
  }
  setOptions(byId("choose-layer"), attentionsOfKind(attention.kind).map((each) => each.layer));
  setOptions(byId("choose-head"), Array.from({ length: attention.heads }, (_, index) => index));
  if (byId("choose-kind")) byId("choose-kind").value = attention.kind;
  byId("choose-layer").value = attention.layer;
  byId("choose-head").value = head;
}

function attentionKinds() {
  return [...new Set(payload.attentions.map((attention) => attention.kind))];
}

function attentionsOfKind(kind) {
  return payload.attentions.filter((attention) => attention.kind === kind);
}

function headTable(kind, attentions, columns, buttons, paintJobs, select) {
  const isWide = columns > 8;
  const headers = Array.from({ length: columns }, (_, head) => element("th", { scope: "col" }, `${isWide ? "" : "head "}${head}`));
  const rows = attentions.map((attention) => {
    const cells = Array.from({ length: attention.heads }, (_, head) => {
      const button = headButton(attention, head, paintJobs, select);
      buttons.push(button);
      return element("td", {}, button);
    });
    return element("tr", {}, layerHeader(attention), ...cells);
  });
  return element("table", { class: isWide ? "heads many" : "heads" },
    element("caption", { class: "unseen" }, `${kind}: ${count(attentions.length, "layer")} of ${count(columns, "head")}`),
    element("thead", {}, element("tr", {}, element("td", {}), ...headers)), element("tbody", {}, ...rows));
}

function layerHeader({ prefix, layer }) {
  const weights = `${prefix}.weights`;
  const isPooledOnly = nodeOf(weights)?.pooled && !canRecompute(weights);
  return element("th", { scope: "row" }, `layer ${layer}`, isPooledOnly ? element("small", {}, "pooled only") : null);
}

function headButton(attention, head, paintJobs, select) {
  const canvas = element("canvas", { width: 1, height: 1, "aria-hidden": "true" });
  const pattern = attention.patterns[head];
  const name = `layer ${attention.layer}, head ${head}${pattern ? `, ${pattern}` : ""}`;
  paintJobs.push(() => paintThumbnail(canvas, attention, head));
  return element("button", {
    type: "button", tabindex: -1, "aria-label": name, title: name, "aria-pressed": "false",
    "data-head": `${attention.prefix} ${head}`, onclick: () => select(attention, head),
  }, canvas, element("span", { class: "pattern", "aria-hidden": "true" }, pattern?.split(" (")[0] ?? ""));
}

// Paints in time slices, so that the page responds meanwhile.
function runPaintJobs(jobs) {
  const end = performance.now() + TIME_SLICE;
  while (jobs.length && performance.now() < end) jobs.shift()();
  if (jobs.length) setTimeout(() => runPaintJobs(jobs));
}

function paintThumbnail(canvas, attention, head) {
  const name = `${attention.prefix}.weights`;
  if (!nodeOf(name)) return;
  const matrix = nodeOf(name).pooled ? pooledMatrix(name, head) : fullMatrix(name, head);
  if (!matrix) return;
  canvas.width = Math.min(matrix.columns, MAX_PIXELS);
  canvas.height = Math.min(matrix.rows, MAX_PIXELS);
  canvas.style.width = `${THUMBNAIL_SIZE}px`;
  canvas.style.height = `${THUMBNAIL_SIZE}px`;
  const { width, height } = canvas;
  const ink = colourOf(canvas, "--thumb"), veil = colourOf(canvas, "--veil");
  const image = canvas.getContext("2d").createImageData(width, height);
  for (let i = 0; i < height; i++) {
    const weights = matrix.row(i);
    for (let j = 0; j < width; j++) {
      const isMasked = matrix.masked(i, j);
      const opacity = isMasked ? ((i + j) % 3 ? 0.12 : 0.5) : Math.sqrt(Math.max(0, weights[j]));
      image.data.set([...(isMasked ? veil : ink), 255 * Math.min(1, opacity)], 4 * (i * width + j));
    }
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
}

function colourOf(canvas, property) {
  return getComputedStyle(canvas).getPropertyValue(property).split(" ").map(Number);
}

function dropDown(name) {
  return element("select", { id: `choose-${name}` });
}

function labelled(name, control) {
  return element("span", {}, element("label", { for: control.id }, name), " ", control);
}

function setOptions(control, values) {
  control.replaceChildren(...values.map((value) => element("option", { value }, String(value))));
}
