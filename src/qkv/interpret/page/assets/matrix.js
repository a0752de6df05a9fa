// A step as a table to look at: labels, numbers, what is hidden, how strongly a cell is shaded.

import { figure } from "./figures.js";
import { attentionOf, canCompute, headRow, isGrid, isHidden, stepOf } from "./attention.js";
import { floats, held, isWhole, label, node, row } from "./payload.js";

// All cells of a step, one by one; null if they are not in the file.
export function matrix(name, head) {
  const made = node(name);
  const [rows, columns] = made.shape.slice(-2);
  const perHead = made.shape.length === 3;
  if (!isWhole(name) && !canCompute(name)) return null;
  const [rowLabels, columnLabels] = made.labels.map((each) => held.tokens[each] ?? held.names[each]);
  const numbers = (i) => (perHead ? headRow(name, i, head) : row(name, i));
  const grid = isGrid(name);
  return {
    name, head: perHead ? head : null, rows, columns,
    corner: made.corner,
    rowLabel: (i) => (rows === 1 && !rowLabels ? "text" : label(rowLabels, made.rows ? made.rows[i] : i)),
    columnLabel: (j) => label(columnLabels, j),
    value: (i, j) => numbers(i)[j],
    row: numbers,
    hidden: hiding(name, grid),
    share: shading(name, made.largest),
    widest: share(name) ? 6 : figure(isWhole(name) ? -made.largest : -99).length,
    worked: !isWhole(name),
  };
}

// The largest weight of each block of a head's weights.
export function pooledMatrix(name, head) {
  const made = node(name).pooled;
  const [rows, columns] = made.shape;
  const [down, across] = made.block;
  const [rowLabels, columnLabels] = node(name).labels.map((each) => held.tokens[each]);
  const [most, widest] = node(name).shape.slice(-2);
  const part = made.parts.find((each) => head >= each.first && head < each.first + each.count);
  const numbers = (i) => {
    const start = ((head - part.first) * rows + i) * columns;
    return floats(part).subarray(start, start + columns);
  };
  const attention = attentionOf(name);
  return {
    name, head, rows, columns, block: [down, across],
    corner: "queries ↓ keys →",
    rowLabel: (i) => span(rowLabels, i * down, Math.min(most, (i + 1) * down)),
    columnLabel: (j) => span(columnLabels, j * across, Math.min(widest, (j + 1) * across)),
    value: (i, j) => numbers(i)[j],
    row: numbers,
    hidden: (i, j) => blockHidden(attention, i * down, Math.min(most, (i + 1) * down), j * across, Math.min(widest, (j + 1) * across)),
    share: (value) => value,
    widest: 6,
    worked: false,
  };
}

function share(name) {
  return stepOf(name) === "weights" || name === "probabilities";
}

function span(labels, start, stop) {
  return stop - start === 1 ? label(labels, start) : `${start + 1}–${stop}`;
}

function blockHidden(attention, top, bottom, left, right) {
  if (attention.mask === null) return false;
  for (let i = top; i < bottom; i++) for (let j = left; j < right; j++) if (!isHidden(attention, i, j)) return false;
  return true;
}

function hiding(name, grid) {
  const attention = attentionOf(name);
  if (!grid || !["masked", "weights"].includes(stepOf(name))) return () => false;
  const positions = node(name).rows;
  return (i, j) => isHidden(attention, positions ? positions[i] : i, j);
}

// From −1 to 1: the value against the largest of the tensor, softened so that small ones show.
function shading(name, largest) {
  if (share(name)) return (value) => value;
  return (value) => {
    if (!Number.isFinite(value) || !largest) return 0;
    return Math.sign(value) * Math.sqrt(Math.min(1, Math.abs(value) / largest));
  };
}
