// The steps of the chosen layer and head, in the order they are computed; tables come into sight.

import { canCompute } from "./attention.js";
import { byId, element } from "./elements.js";
import { count } from "./figures.js";
import { inspect, forget } from "./inspector.js";
import { matrix, pooledMatrix } from "./matrix.js";
import { held, isWhole, node } from "./payload.js";
import { Table, tableHeight } from "./table.js";

const AHEAD = "300px"; // tables are made a little before they are reached

let watching = null;

// All groups of steps of the layer that this attention belongs to.
export function showLayer(attention, head) {
  const layer = held.layers.find((each) => each.groups.some((group) => group.attention === attention.prefix));
  watching?.disconnect();
  watching = observer();
  forget();
  const title = `Layer ${attention.layer}, head ${head}, step by step`;
  byId("layer-title").textContent = held.stacks > 1 ? `${attention.stack}: ${title.toLowerCase()}` : title;
  byId("steps").replaceChildren(...layer.groups.map((group) => groupOf(group, attention, head)));
}

// What comes before, between and after the layers: folded until somebody looks.
export function showEnds(root) {
  for (const end of held.ends) {
    const inside = element("div", { class: "folded" });
    const folded = element("details", {}, element("summary", {}, end.title, " ", element("span", { class: "muted" }, count(end.names.length, "step"))), inside);
    folded.addEventListener("toggle", () => {
      if (inside.childElementCount === 0) inside.append(...end.names.map((name) => step(name, 0, openNow)));
    });
    root.append(folded);
  }
}

// Every table that is still waiting to be reached, as for a printer.
export function fillAll() {
  for (const place of document.querySelectorAll("[data-step]:empty")) place.fill();
}

function groupOf(group, attention, head) {
  const own = group.attention === null || group.attention === attention.prefix;
  const shownHead = own ? head : 0;
  const named = group.attention ? `${group.title}, head ${shownHead}` : group.title;
  if (group.attention === attention.prefix) {
    return element("section", { class: "group" }, element("h3", {}, named), contents(group.names), ...group.names.map((name) => step(name, shownHead, later)));
  }
  const inside = element("div", { class: "folded" });
  const folded = element("details", { class: "group" }, element("summary", {}, named, " ", element("span", { class: "muted" }, count(group.names.length, "step"))), inside);
  folded.addEventListener("toggle", () => {
    if (inside.childElementCount === 0) inside.append(...group.names.map((name) => step(name, shownHead, openNow)));
  });
  return folded;
}

// Ways straight to each step.
function contents(names) {
  const links = names.map((name) => element("a", { class: "chip", href: `#${idOf(name)}` }, node(name).title));
  return element("nav", { class: "contents", "aria-label": "Steps of this head" }, ...links);
}

function idOf(name) {
  return `step-${name.replaceAll(".", "-")}`;
}

function step(name, head, when) {
  const made = node(name);
  const place = element("div", { class: "place-of-table", "data-step": name });
  const root = element("section", { class: "step", id: idOf(name) },
    element("h4", {}, made.title, element("span", { class: "equation" }, made.equation)),
    made.sentence ? element("p", { class: "lead" }, made.sentence) : null,
    place);
  if (isWhole(name) || canCompute(name) || made.pooled) place.style.minHeight = `${tableHeight((made.pooled ?? made).shape.at(-2))}px`;
  place.fill = () => fill(place, name, head);
  when(place);
  return root;
}

function openNow(place) {
  place.fill();
}

function later(place) {
  watching.observe(place);
}

function observer() {
  return new IntersectionObserver((entries, self) => {
    for (const entry of entries.filter((each) => each.isIntersecting)) {
      self.unobserve(entry.target);
      entry.target.fill();
    }
  }, { rootMargin: AHEAD });
}

function fill(place, name, head) {
  const made = node(name);
  const whole = matrix(name, head);
  if (!made.pooled) {
    place.append(whole ? tableOf(whole, name) : absent(name));
    return;
  }
  const frame = element("div", {});
  const [down, across] = made.pooled.block;
  let shown = null;
  const show = (full) => {
    const [i, j] = shown?.at ?? [0, 0];
    shown = newTable(full ? whole : pooledMatrix(name, head), name);
    frame.replaceChildren(full ? withBadge(shown) : shown.root);
    if (full) shown.go(i * down, j * across, false);
    else shown.go(Math.floor(i / down), Math.floor(j / across), false);
  };
  const badge = element("p", { class: "badge-line" },
    element("span", { class: "badge" }, `pooled ${down} × ${across}`),
    ` each cell is the largest of a block of ${down} queries × ${across} keys `);
  place.append(badge, frame);
  if (whole) badge.append(choice(show));
  else place.append(absent(name));
  show(false);
}

function choice(show) {
  const button = element("button", { type: "button", "aria-pressed": "false" }, "show every cell");
  button.addEventListener("click", () => {
    const full = button.getAttribute("aria-pressed") === "false";
    button.setAttribute("aria-pressed", String(full));
    show(full);
  });
  return button;
}

function newTable(shown, name) {
  return new Table(shown, `${node(name).title}, ${count(shown.rows, "row")}, ${count(shown.columns, "column")}`, inspect);
}

function tableOf(shown, name) {
  const table = newTable(shown, name);
  return shown.worked ? withBadge(table) : table.root;
}

function withBadge(table) {
  if (!table.matrix.worked) return table.root;
  const badge = element("p", { class: "badge-line" }, element("span", { class: "badge" }, "worked out here"), " from the queries and keys in this file, row by row");
  return element("div", {}, badge, table.root);
}

function absent(name) {
  const made = node(name);
  const layer = name.split(".").slice(0, 2).join(".");
  return element("p", { class: "muted" }, `All ${made.shape.join(" × ")} numbers would make this file too large; trace this layer alone, keep=["${layer}.*"], to have them.`);
}
