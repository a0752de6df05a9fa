// The steps of the selected layer and head, in the order of computation; tables are built lazily.

import { canRecompute } from "./attention.js";
import { byId, element } from "./dom.js";
import { count } from "./format.js";
import { clearInspector, inspect } from "./inspector.js";
import { fullMatrix, pooledMatrix } from "./matrix.js";
import { isStored, nodeOf, payload } from "./payload.js";
import { Table, tableHeight } from "./table.js";

const PRELOAD_MARGIN = "300px"; // tables are built a little before they are scrolled into sight

let observer = null;

// All groups of steps of the layer that this attention belongs to.
export function showLayer(attention, head) {
  const layer = payload.layers.find(({ groups }) => groups.some((group) => group.attention === attention.prefix));
  observer?.disconnect();
  observer = createObserver();
  clearInspector();
  const title = `Layer ${attention.layer}, head ${head}, step by step`;
  byId("layer-title").textContent = payload.stacks > 1 ? `${attention.stack}: ${title.toLowerCase()}` : title;
  byId("steps").replaceChildren(...layer.groups.map((group) => groupSection(group, attention, head)));
}

// What comes before, between and after the layers.
export function showOuterSteps(root) {
  for (const { title, names } of payload.outer) root.append(foldedSteps({}, title, names, 0));
}

// Builds every table that has not been scrolled into sight yet, for printing.
export function buildAllTables() {
  for (const slot of document.querySelectorAll("[data-step]:empty")) slot.build();
}

function groupSection(group, attention, head) {
  if (group.attention === attention.prefix) {
    return element("section", { class: "group" },
      element("h3", {}, `${group.title}, head ${head}`),
      tableOfContents(group.names),
      ...group.names.map((name) => stepSection(name, head, (slot) => observer.observe(slot))));
  }
  // The other attention of a layer (cross next to self) shows its first head.
  const title = group.attention ? `${group.title}, head 0` : group.title;
  return foldedSteps({ class: "group" }, title, group.names, group.attention ? 0 : head);
}

// Steps behind a summary line; their tables are built when it is opened.
function foldedSteps(attributes, title, names, head) {
  const content = element("div", { class: "folded" });
  const summary = element("summary", {}, title, " ", element("span", { class: "muted" }, count(names.length, "step")));
  const details = element("details", attributes, summary, content);
  details.addEventListener("toggle", () => {
    if (content.childElementCount === 0) content.append(...names.map((name) => stepSection(name, head, (slot) => slot.build())));
  });
  return details;
}

function tableOfContents(names) {
  const links = names.map((name) => element("a", { class: "chip", href: `#${idOf(name)}` }, nodeOf(name).title));
  return element("nav", { class: "contents", "aria-label": "Steps of this head" }, ...links);
}

function idOf(name) {
  return `step-${name.replaceAll(".", "-")}`;
}

// Heading, sentence and a slot for the table; schedule(slot) decides when slot.build() is called.
function stepSection(name, head, schedule) {
  const { title, equation, sentence, pooled, shape } = nodeOf(name);
  const slot = element("div", { class: "table-slot", "data-step": name });
  const section = element("section", { class: "step", id: idOf(name) },
    element("h4", {}, title, element("span", { class: "equation" }, equation)),
    sentence ? element("p", { class: "lead" }, sentence) : null,
    slot);
  if (isStored(name) || canRecompute(name) || pooled) slot.style.minHeight = `${tableHeight((pooled?.shape ?? shape).at(-2))}px`;
  slot.build = () => buildTable(slot, name, head);
  schedule(slot);
  return section;
}

function createObserver() {
  return new IntersectionObserver((entries, self) => {
    for (const { target, isIntersecting } of entries) {
      if (!isIntersecting) continue;
      self.unobserve(target);
      target.build();
    }
  }, { rootMargin: PRELOAD_MARGIN });
}

function buildTable(slot, name, head) {
  const matrix = fullMatrix(name, head);
  if (nodeOf(name).pooled) buildPooledTable(slot, name, head, matrix);
  else slot.append(matrix ? withBadge(createTable(matrix, name)) : missingNote(name));
}

// The pooled weights of a long text, with a button for every cell where the file allows it.
function buildPooledTable(slot, name, head, matrix) {
  const frame = element("div", {});
  const [down, across] = nodeOf(name).pooled.block;
  let table = null;
  const show = (isFull) => {
    const [i, j] = table?.current ?? [0, 0];
    table = createTable(isFull ? matrix : pooledMatrix(name, head), name);
    frame.replaceChildren(withBadge(table));
    if (isFull) table.moveTo(i * down, j * across, false);
    else table.moveTo(Math.floor(i / down), Math.floor(j / across), false);
  };
  const badge = element("p", { class: "badge-line" },
    element("span", { class: "badge" }, `pooled ${down} × ${across}`),
    ` each cell is the largest of a block of ${down} queries × ${across} keys `);
  slot.append(badge, frame);
  if (matrix) badge.append(toggleButton("show every cell", show));
  else slot.append(missingNote(name));
  show(false);
}

function toggleButton(text, onToggle) {
  const button = element("button", { type: "button", "aria-pressed": "false" }, text);
  button.addEventListener("click", () => {
    const isPressed = button.getAttribute("aria-pressed") === "false";
    button.setAttribute("aria-pressed", String(isPressed));
    onToggle(isPressed);
  });
  return button;
}

function createTable(matrix, name) {
  return new Table(matrix, `${nodeOf(name).title}, ${count(matrix.rows, "row")}, ${count(matrix.columns, "column")}`, inspect);
}

// The table, with a note if its numbers are recomputed in the browser.
function withBadge(table) {
  if (!table.matrix.isRecomputed) return table.root;
  const badge = element("p", { class: "badge-line" }, element("span", { class: "badge" }, "worked out here"), " from the queries and keys in this file, row by row");
  return element("div", {}, badge, table.root);
}

function missingNote(name) {
  const layer = name.split(".").slice(0, 2).join(".");
  return element("p", { class: "muted" }, `These ${nodeOf(name).shape.join(" × ")} numbers were left out to keep this file small; qkv explain … --full stores all of them, and in Python keep=["${layer}.*"] traces this layer alone.`);
}
