// The panel that shows how the cell under the pointer, or in focus, comes about.

import { arithmetic } from "./arithmetic.js";
import { stepOf } from "./attention.js";
import { byId, element, quoted } from "./elements.js";
import { allDigits, figure, school } from "./figures.js";

const LISTED = 40; // terms; of more, the largest are shown and the rest added up

let pinned = null;

// Shows the cell; with nothing to show, the one that was last in focus.
export function inspect(matrix, i, j, lasting) {
  if (matrix && lasting) pinned = [matrix, i, j];
  const [shown, at, across] = matrix ? [matrix, i, j] : pinned ?? [];
  if (shown) fill(shown, at, across);
}

export function forget() {
  pinned = null;
  byId("inspector").classList.remove("live");
  byId("cell").replaceChildren(...hint());
}

function hint() {
  return [
    element("p", { class: "hint" }, "Point at a number, or move to it with the arrow keys: here stands how it comes about."),
  ];
}

function fill(matrix, i, j) {
  const value = matrix.value(i, j);
  const worked = matrix.block ? ofBlock(matrix, i, j) : arithmetic(matrix.name, matrix.head, i, j);
  const title = stepOf(matrix.name).replaceAll("_", " ");
  const parts = [
    element("p", { class: "place" }, `${title}(`, quoted(matrix.rowLabel(i)), ", ", quoted(matrix.columnLabel(j)), ")"),
    element("p", { class: "result" }, figure(value)),
    ...worked.lines.map((line) => element("p", { class: "line" }, line)),
  ];
  if (worked.terms) parts.push(...termTable(worked.terms, worked.chosen));
  parts.push(element("p", { class: "digits" }, `all digits: ${allDigits(value)}`));
  byId("cell").replaceChildren(...parts);
  byId("inspector").classList.add("live");
}

function ofBlock(matrix) {
  const [down, across] = matrix.block;
  return { lines: [`the largest of the ${down} × ${across} weights in this block`] };
}

function termTable({ names, rows, total }, chosen) {
  const width = names.length;
  const picked = pick(rows, chosen);
  const rest = rows.length - picked.length;
  const body = picked.map((at) => termRow(rows[at], at === chosen));
  const shownTotal = picked.reduce((sum, at) => sum + school(rows[at].at(-1)), 0);
  if (rest > 0) {
    const others = total - picked.reduce((sum, at) => sum + rows[at].at(-1), 0);
    body.push(element("tr", { class: "rest" }, element("th", { scope: "row", colspan: width - 1 }, `${rest} smaller ones`), element("td", {}, figure(others))));
  }
  const foot = element("tfoot", {}, element("tr", {}, element("th", { scope: "row", colspan: width - 1 }, "total"), element("td", {}, figure(total))));
  const table = element("table", { class: "terms" },
    element("caption", { class: "unseen" }, "The terms that add up"),
    element("thead", {}, element("tr", {}, ...names.map((name) => element("th", { scope: "col" }, name)))),
    element("tbody", {}, ...body), foot);
  const frame = element("div", { class: "terms-frame", tabindex: 0, role: "region", "aria-label": "The terms that add up" }, table);
  const drift = rest > 0 || figure(shownTotal) === figure(total);
  return drift ? [frame] : [frame, element("p", { class: "digits" }, `the shown figures add up to ${figure(shownTotal)}; from all digits ${figure(total)}`)];
}

// Which terms are listed: all, or the largest in their order, and always the chosen one.
function pick(rows, chosen) {
  const all = rows.map((_, at) => at);
  if (rows.length <= LISTED) return all;
  const size = (at) => (at === chosen ? Infinity : Math.abs(rows[at].at(-1)));
  return all.sort((a, b) => size(b) - size(a)).slice(0, LISTED).sort((a, b) => a - b);
}

function termRow([name, ...numbers], chosen) {
  const cells = numbers.map((number) => element("td", {}, number === null ? "" : figure(number)));
  return element("tr", { class: chosen ? "chosen" : null, "aria-current": chosen ? "true" : null }, element("th", { scope: "row", dir: "auto" }, name), ...cells);
}
