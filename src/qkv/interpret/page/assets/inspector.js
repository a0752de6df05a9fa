// The panel that shows how the cell under the pointer, or in focus, is computed.

import { byId, element, quoted } from "./dom.js";
import { figure, round } from "./format.js";

const MAX_TERMS = 40; // of more, the largest are shown and the rest added up
const HINT = "Hover over a number, or move to it with the arrow keys, to see how it is computed.";

let focused = null;

// Shows a cell; inspect(null) returns to the cell that last had the focus.
export function inspect(matrix, i, j, isFocus) {
  if (matrix && isFocus) focused = [matrix, i, j];
  const cell = matrix ? [matrix, i, j] : focused;
  if (cell) showCell(...cell);
}

export function clearInspector() {
  focused = null;
  byId("inspector").classList.remove("live");
  byId("cell").replaceChildren(element("p", { class: "hint" }, HINT));
}

function showCell(matrix, i, j) {
  const { lines, terms, marked, solution } = matrix.arithmetic(i, j);
  const content = [
    element("p", { class: "cell-name" }, `${matrix.title}(`, quoted(matrix.rowLabel(i)), ", ", quoted(matrix.columnLabel(j)), ")"),
    element("p", { class: "result" }, matrix.text(i, j)),
    ...lines.map((line) => element("p", { class: "line" }, line)),
  ];
  if (terms) content.push(...termTable(terms, marked));
  if (solution) content.push(solutionOf(solution));
  const digits = matrix.digits(i, j);
  if (digits) content.push(element("p", { class: "digits" }, `all digits: ${digits}`));
  byId("cell").replaceChildren(...content);
  byId("inspector").classList.add("live");
}

// The arithmetic of a cell to be filled in, which a reader opens after trying.
function solutionOf(line) {
  return element("details", {}, element("summary", {}, "Work it out, then open this"), element("p", { class: "line" }, line));
}

function termTable({ columns, rows, total }, marked) {
  const listed = listedTerms(rows, marked);
  const body = listed.map((index) => termRow(rows[index], index === marked));
  const rest = rows.length - listed.length;
  if (rest > 0) {
    const others = total - listed.reduce((sum, index) => sum + rows[index].at(-1), 0);
    body.push(totalRow(`${rest} smaller ones`, others, columns.length, "rest"));
  }
  const table = element("table", { class: "terms" },
    element("caption", { class: "unseen" }, "The terms that add up"),
    element("thead", {}, element("tr", {}, ...columns.map((name) => element("th", { scope: "col" }, name)))),
    element("tbody", {}, ...body),
    element("tfoot", {}, totalRow("total", total, columns.length)));
  const frame = element("div", { class: "terms-frame", tabindex: 0, role: "region", "aria-label": "The terms that add up" }, table);
  const roundedTotal = listed.reduce((sum, index) => sum + round(rows[index].at(-1)), 0);
  if (rest > 0 || figure(roundedTotal) === figure(total)) return [frame];
  return [frame, element("p", { class: "digits" }, `the shown figures add up to ${figure(roundedTotal)}; from all digits ${figure(total)}`)];
}

// Indices of the terms to list: all, or the largest in their order, and always the marked one.
function listedTerms(rows, marked) {
  const all = rows.map((_, index) => index);
  if (rows.length <= MAX_TERMS) return all;
  const size = (index) => (index === marked ? Infinity : Math.abs(rows[index].at(-1)));
  return all.sort((a, b) => size(b) - size(a)).slice(0, MAX_TERMS).sort((a, b) => a - b);
}

function termRow([name, ...numbers], isMarked) {
  const cells = numbers.map((number) => element("td", {}, number === null ? "" : figure(number)));
  return element("tr", { class: isMarked ? "chosen" : null, "aria-current": isMarked ? "true" : null }, element("th", { scope: "row", dir: "auto" }, name), ...cells);
}

function totalRow(name, number, columns, kind = null) {
  return element("tr", { class: kind }, element("th", { scope: "row", colspan: columns - 1 }, name), element("td", {}, figure(number)));
}
