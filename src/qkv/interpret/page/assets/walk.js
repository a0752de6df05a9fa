// The page of a worksheet: every step as a table whose cells show their arithmetic.
//
// The program writes down the texts of all cells and their arithmetic; nothing is computed here.

import { byId, element, quoted } from "./dom.js";
import { clearInspector, inspect } from "./inspector.js";
import { Table } from "./table.js";

const { steps } = JSON.parse(byId("qkv-data").textContent);

// A step in the form that tables and the inspector take.
function stepMatrix({ name, corner, rows, columns, cells, values, blanks, wrong, arithmetic, probability }) {
  const numbers = values.map((row) => row.map(Number));
  const sizes = numbers.flat().filter(Number.isFinite).map(Math.abs);
  const largest = probability ? 1 : Math.max(0, ...sizes);
  const isBlank = (i, j) => blanks.some(([row, column]) => row === i && column === j);
  return {
    corner,
    title: name,
    rows: rows.length,
    columns: columns.length,
    rowLabel: (i) => rows[i],
    columnLabel: (j) => columns[j],
    value: (i, j) => (isBlank(i, j) ? 0 : numbers[i][j]),
    text: (i, j) => cells[i][j],
    digits: (i, j) => (isBlank(i, j) ? "" : String(values[i][j]).replace("-Infinity", "−∞").replaceAll("-", "−")),
    arithmetic: (i, j) => (isBlank(i, j) ? { lines: [], solution: arithmetic[i][j] } : { lines: [arithmetic[i][j]] }),
    masked: (i, j) => numbers[i][j] === -Infinity && !isBlank(i, j),
    wrong: (i, j) => wrong.some(([row, column]) => row === i && column === j),
    shade: (value) => (Number.isFinite(value) && largest ? Math.sign(value) * Math.sqrt(Math.min(1, Math.abs(value) / largest)) : 0),
    widest: Math.max(...cells.flat().map((text) => text.length), ...columns.map((label) => Math.min(14, label.length))),
  };
}

function stepSection(step) {
  const { number, name, title, equation, sentence, notes, rows, columns } = step;
  const label = `${title}, ${rows.length} rows, ${columns.length} columns`;
  const words = sentence.map(({ text, isWord }) => (isWord ? quoted(text, "em") : text));
  return element("section", { class: "step", id: `step-${name.replaceAll(".", "-")}` },
    element("h4", {}, `${number}. ${title}`, element("span", { class: "equation" }, equation), element("code", { class: "muted" }, name)),
    words.length ? element("p", { class: "lead" }, ...words) : null,
    new Table(stepMatrix(step), label, inspect).root,
    ...notes.map((note) => element("p", { class: "note" }, note)));
}

document.documentElement.classList.add("scripted");
clearInspector();
byId("contents").append(...steps.map(({ name, title }) => element("a", { class: "chip", href: `#step-${name.replaceAll(".", "-")}` }, title)));
byId("steps").append(...steps.map(stepSection));
byId("close").addEventListener("click", clearInspector);
document.addEventListener("keydown", (event) => event.key === "Escape" && clearInspector());
