// How one cell comes about: the line people would write, and the terms that add up to it.

import { figure, signed } from "./figures.js";
import { inputRow, rowOf, tableRow } from "./inputs.js";
import { held, label, node, positionOf } from "./payload.js";
import { dot, linear, mixed, pooled, shares } from "./sums.js";

// {lines, terms?}: terms = {names, rows: [[label, …factors, term]], total}, in the order of the sum.
export function arithmetic(name, head, i, j) {
  const made = node(name);
  const cell = {
    made, head, j, inputs: made.inputs, fields: made.operation,
    position: positionOf(name, i),
    column: label(held.tokens[made.labels[1]] ?? held.names[made.labels[1]], j),
  };
  const way = WAYS[made.operation.kind];
  return (way && way(cell)) || { lines: [without(cell)] };
}

const WAYS = {
  InputValue: (cell) => ({ lines: [`given: ${cell.made.equation}`] }),
  EmbeddingLookup: (cell) => ({ lines: [`number ${cell.j + 1} of the row that the embedding table keeps for this token`] }),
  Scores: (cell) => dot(cell, 0, cell.j, 1, "q", "k"),
  ScaleScores: scaled,
  SoftCap: (cell) => through(cell, (x) => `${figure(cell.fields.cap, 0)} · tanh(${signed(x)} ÷ ${figure(cell.fields.cap, 0)})`),
  MaskScores: masked,
  Softmax: shares,
  WeightedSum: mixed,
  Rotate: turned,
  ConcatHeads: joined,
  Linear: linear,
  LinearToHeads: linear,
  TokenLogits: linear,
  ElementwiseAdd: (cell) => pair(cell, "+"),
  ElementwiseMultiply: (cell) => pair(cell, "×"),
  ScaleBy: (cell) => through(cell, (x) => `${figure(x)} × ${figure(cell.fields.factor)}`),
  Activation: (cell) => through(cell, (x) => `${cell.made.equation.replaceAll("x", signed(x))}`),
  LayerNormalization: (cell) => normed(cell, true),
  RMSNormalization: (cell) => normed(cell, false),
  AddTokenType: added, AddLearnedPositions: added, AddSinusoids: added,
  Pool: pooled,
  L2Normalize: unit,
};

function without(cell) {
  const named = cell.inputs.filter(Boolean).join(", ");
  return named ? `${cell.made.equation}, from ${named}` : cell.made.equation;
}

function scaled(cell) {
  const { factor, d_k } = cell.fields;
  const usual = Math.abs(factor * Math.sqrt(d_k) - 1) < 1e-9;
  return through(cell, (x) => (usual ? `${figure(x)} ÷ √${d_k} = ${figure(x)} ÷ ${figure(Math.sqrt(d_k))}` : `${figure(x)} × ${figure(factor)}`));
}

function masked(cell) {
  const from = inputRow(cell, 0);
  if (!from) return null;
  const result = rowOf(cell)[cell.j], x = from[cell.j];
  if (result === -Infinity) return { lines: [`${figure(x)} + (−∞) = −∞`, "the mask hides this key from this query"] };
  const bias = cell.fields.bias ? result - x : 0;
  return { lines: [`${figure(x)} + ${cell.fields.bias ? signed(bias) : "0"} = ${figure(result)}`] };
}

function turned(cell) {
  const x = inputRow(cell, 0), cos = tableRow(cell, 1), sin = tableRow(cell, 2);
  if (!x || !cos || !sin) return null;
  const width = cos.length, j = cell.j;
  if (j >= width) return { lines: [`${figure(x[j])}: this feature is not turned`] };
  const first = cell.fields.adjacent ? j % 2 === 0 : j < width / 2;
  const other = cell.fields.adjacent ? j ^ 1 : (j + width / 2) % width;
  const parts = [x[j] * cos[j], (first ? -1 : 1) * x[other] * sin[j]];
  return { lines: [
    `feature ${j + 1} turns with feature ${other + 1} by the angle of this position`,
    `${figure(x[j])} × ${signed(cos[j])} ${first ? "−" : "+"} ${signed(x[other])} × ${signed(sin[j])} = ${figure(parts[0])} + ${signed(parts[1])} = ${figure(parts[0] + parts[1])}`,
  ] };
}

function joined(cell) {
  const input = node(cell.inputs[0]);
  if (!input) return null;
  const width = input.shape[2], head = Math.floor(cell.j / width);
  return { lines: [`feature ${(cell.j % width) + 1} of what head ${head} mixed, unchanged`] };
}

function pair(cell, sign) {
  const a = inputRow(cell, 0), b = inputRow(cell, 1);
  if (!a || !b) return null;
  const [x, y] = [a[cell.j], b[cell.j]];
  const lines = [`${figure(x)} ${sign} ${signed(y)} = ${figure(sign === "+" ? x + y : x * y)}`, `${cell.inputs[0]} ${sign} ${cell.inputs[1]}`];
  return { lines };
}

function through(cell, wording) {
  const from = inputRow(cell, 0);
  return from && { lines: [`${wording(from[cell.j])} = ${figure(rowOf(cell)[cell.j])}`] };
}

function added(cell) {
  const from = inputRow(cell, 0);
  if (!from) return null;
  const x = from[cell.j], result = rowOf(cell)[cell.j];
  const what = { AddTokenType: "of the type of text", AddLearnedPositions: "learned for this position", AddSinusoids: "of the wave at this position" }[cell.fields.kind];
  return { lines: [`${figure(x)} + ${signed(result - x)} = ${figure(result)}`, `the second number is the one ${what}`] };
}

function normed(cell, centred) {
  const x = inputRow(cell, 0), gain = tableRow(cell, 1, 0), shift = tableRow(cell, 2, 0);
  if (!x) return null;
  const mean = centred ? x.reduce((a, b) => a + b, 0) / x.length : 0;
  const size = Math.sqrt(x.reduce((sum, each) => sum + (each - mean) ** 2, 0) / x.length + cell.fields.eps);
  const brought = (x[cell.j] - mean) / size;
  const top = centred ? `(${figure(x[cell.j])} − ${signed(mean)})` : figure(x[cell.j]);
  const lines = [`${top} ÷ ${figure(size)} = ${figure(brought)}`, centred ? `mean ${figure(mean)} and deviation ${figure(size)} of this position's ${x.length} numbers` : `root mean square ${figure(size)} of this position's ${x.length} numbers`];
  const factor = gain && gain[cell.j] + (cell.fields.unit_offset ? 1 : 0);
  if (gain) lines.push(`× gain ${figure(factor)}${cell.fields.shift && shift ? ` + shift ${signed(shift[cell.j])}` : ""} = ${figure(brought * factor + (cell.fields.shift && shift ? shift[cell.j] : 0))}`);
  else lines.push("then times the gain that was learned for this feature");
  return { lines };
}

function unit(cell) {
  const x = inputRow(cell, 0);
  if (!x) return null;
  const length = Math.hypot(...x);
  return { lines: [`${figure(x[cell.j])} ÷ ${figure(length)} = ${figure(x[cell.j] / length)}`, `${figure(length)} is the length of the vector: the root of the sum of its squares`] };
}
