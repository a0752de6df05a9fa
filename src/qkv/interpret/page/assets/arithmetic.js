// How one cell is computed: the line people would write, and the terms that add up to it.
//
// Which layout a step has, and its words and formulas, come from the program (`cell_layout` in
// cell_layouts.py); here they are only filled with the numbers of the file.

import { attentionOf, inputRow, kvHead, ownRow, parameterRow } from "./attention.js";
import { figure, signed } from "./format.js";
import { axisLabels, isStored, label, nodeOf, positionOfRow, tensorRow } from "./payload.js";

// {lines, terms?, marked?}: terms = {columns, rows: [[label, …factors, term]], total}, in the order
// of the sum; marked: the row that belongs to the cell.
export function arithmetic(name, head, i, j) {
  const node = nodeOf(name);
  const cell = { node, head, j, inputs: node.inputs, layout: node.cell, position: positionOfRow(name, i) };
  return LAYOUTS[node.cell.layout](cell) ?? { lines: [equation(cell)] };
}

const LAYOUTS = {
  text: ({ layout, j }) => ({ lines: layout.lines.map((line) => line.replaceAll("{column}", j + 1)) }),
  equation: () => null,
  elementwise, offset, mask, rotate, concat, normalize, unit_length: unitLength,
  dot, softmax, weighted_sum: weightedSum, linear, mean,
};

// For a step whose inputs are not in the file.
function equation({ node, inputs }) {
  const names = inputs.filter(Boolean).join(", ");
  return names ? `${node.equation}, from ${names}` : node.equation;
}

// One number from one or two numbers; {x} is a plain number, {(x)} has parentheses if negative.
function elementwise(cell) {
  const inputs = { x: inputRow(cell, 0) };
  if (/\{\(?y\)?\}/.test(cell.layout.formula)) inputs.y = inputRow(cell, 1);
  let { formula } = cell.layout;
  for (const [name, row] of Object.entries(inputs)) {
    if (!row) return null;
    formula = formula.replaceAll(`{(${name})}`, signed(row[cell.j])).replaceAll(`{${name}}`, figure(row[cell.j]));
  }
  return { lines: [`${formula} = ${figure(ownRow(cell)[cell.j])}`, cell.layout.note].filter(Boolean) };
}

function offset(cell) {
  const row = inputRow(cell, 0);
  if (!row) return null;
  const x = row[cell.j], result = ownRow(cell)[cell.j];
  return { lines: [`${figure(x)} + ${signed(result - x)} = ${figure(result)}`, cell.layout.note] };
}

function mask(cell) {
  const row = inputRow(cell, 0);
  if (!row) return null;
  const result = ownRow(cell)[cell.j], x = row[cell.j];
  if (result === -Infinity) return { lines: [`${figure(x)} + (−∞) = −∞`, "the mask hides this key from this query"] };
  return { lines: [`${figure(x)} + ${cell.layout.bias ? signed(result - x) : "0"} = ${figure(result)}`] };
}

// RoPE: a pair of features (a, b) becomes (a·cos − b·sin, b·cos + a·sin).
function rotate(cell) {
  const x = inputRow(cell, 0), cos = parameterRow(cell, 1), sin = parameterRow(cell, 2);
  if (!x || !cos || !sin) return null;
  const width = cos.length, { j } = cell;
  if (j >= width) return { lines: [`${figure(x[j])}: this feature is not turned`] };
  const { adjacent } = cell.layout;
  const isFirst = adjacent ? j % 2 === 0 : j < width / 2;
  const other = adjacent ? j ^ 1 : (j + width / 2) % width;
  const terms = [x[j] * cos[j], (isFirst ? -1 : 1) * x[other] * sin[j]];
  return { lines: [
    `feature ${j + 1} turns with feature ${other + 1} by the angle of this position`,
    `${figure(x[j])} × ${signed(cos[j])} ${isFirst ? "−" : "+"} ${signed(x[other])} × ${signed(sin[j])} = ${figure(terms[0])} + ${signed(terms[1])} = ${figure(terms[0] + terms[1])}`,
  ] };
}

function concat(cell) {
  const input = nodeOf(cell.inputs[0]);
  if (!input) return null;
  const width = input.shape[2];
  return { lines: [`feature ${(cell.j % width) + 1} of what head ${Math.floor(cell.j / width)} mixed, unchanged`] };
}

// LayerNorm and RMSNorm.
function normalize(cell) {
  const x = inputRow(cell, 0), gains = parameterRow(cell, 1, 0), shifts = parameterRow(cell, 2, 0);
  if (!x) return null;
  const { centred, eps, unit_offset: unitOffset, shift: isShifted } = cell.layout;
  const mean = centred ? sum(x) / x.length : 0;
  const size = Math.sqrt(x.reduce((total, each) => total + (each - mean) ** 2, 0) / x.length + eps);
  const normalized = (x[cell.j] - mean) / size;
  const numerator = centred ? `(${figure(x[cell.j])} − ${signed(mean)})` : figure(x[cell.j]);
  const lines = [
    `${numerator} ÷ ${figure(size)} = ${figure(normalized)}`,
    centred ? `mean ${figure(mean)} and deviation ${figure(size)} of this position's ${x.length} numbers` : `root mean square ${figure(size)} of this position's ${x.length} numbers`,
  ];
  if (!gains) return { lines: [...lines, "then times the gain that was learned for this feature"] };
  const gain = gains[cell.j] + (unitOffset ? 1 : 0);
  const shift = isShifted && shifts ? shifts[cell.j] : null;
  const added = shift === null ? "" : ` + shift ${signed(shift)}`;
  return { lines: [...lines, `× gain ${figure(gain)}${added} = ${figure(normalized * gain + (shift ?? 0))}`] };
}

function unitLength(cell) {
  const x = inputRow(cell, 0);
  if (!x) return null;
  const length = Math.hypot(...x);
  return { lines: [`${figure(x[cell.j])} ÷ ${figure(length)} = ${figure(x[cell.j] / length)}`, `${figure(length)} is the length of the vector: the root of the sum of its squares`] };
}

// A score: one query times one key.
function dot(cell) {
  const q = inputRow(cell, 0), k = inputRow(cell, 1, cell.j);
  if (!q || !k) return null;
  const rows = Array.from(q, (x, e) => [`${e + 1}`, x, k[e], x * k[e]]);
  return { lines: [`${rows.length} products, one for each feature, added up`], terms: termsOf(cell, rows) };
}

function softmax(cell) {
  const scores = inputRow(cell, 0);
  if (!scores) return null;
  const max = scores.reduce((a, b) => Math.max(a, b), -Infinity);
  if (max === -Infinity) return { lines: ["every key is hidden from this query, so it gives no weight at all: 0"] };
  const shift = Math.abs(max) > 12 ? max : 0; // small exponents need no shift, and read better without
  const powers = Array.from(scores, (score) => (score === -Infinity ? 0 : Math.exp(score - shift)));
  const total = sum(powers);
  const power = (score) => (shift ? `e^(${figure(score)} − ${signed(shift)})` : `e^${signed(score)}`);
  const lines = [`${power(scores[cell.j])} ÷ total = ${figure(powers[cell.j])} ÷ ${figure(total)} = ${figure(powers[cell.j] / total)}`];
  if (shift) lines.push(`${figure(shift)}, the largest of the row, is taken off every exponent first, which changes no share`);
  const labels = axisLabels(cell.node.labels[1]);
  const rows = powers.map((each, s) => [label(labels, s), scores[s], each]);
  const columns = ["key", "score", shift ? "e^(score − largest)" : "e^score"];
  return { lines, terms: { columns, rows, total }, marked: cell.j };
}

function weightedSum(cell) {
  const weights = inputRow(cell, 0), values = cell.inputs[1];
  if (!weights || !isStored(values)) return null;
  const head = kvHead(values, cell.head, cell.node.shape[0]);
  const labels = axisLabels(nodeOf(values).labels[0]);
  const rows = Array.from(weights, (weight, s) => {
    const v = tensorRow(values, s, head)[cell.j];
    return [label(labels, s), weight, v, weight * v];
  });
  return { lines: ["the values of all keys, each times its weight, added up"], terms: termsOf(cell, rows) };
}

function linear(cell) {
  const x = inputRow(cell, 0);
  if (!x) return null;
  const [input, weight, bias] = cell.inputs;
  const output = outputFeature(cell);
  if (!isStored(weight)) {
    return { lines: [`${x.length} products: each number of this row of ${input} × row ${output + 1} of ${weight}, added up`, "this matrix was left out to keep the file small; qkv explain … --full stores it"] };
  }
  const w = tensorRow(weight, output);
  const rows = Array.from(x, (each, d) => [`${d + 1}`, each, w[d], each * w[d]]);
  if (cell.layout.bias && isStored(bias)) rows.push(["bias", null, null, tensorRow(bias, 0)[output]]);
  const terms = termsOf(cell, rows);
  const lines = [`${x.length} products, one for each feature that comes in, added up`];
  const { cap } = cell.layout;
  if (cap) lines.push(`${cap} · tanh(${signed(terms.total)} ÷ ${cap}) = ${figure(cap * Math.tanh(terms.total / cap))}`);
  return { lines, terms };
}

// Mean pooling.
function mean(cell) {
  const states = nodeOf(cell.inputs[0]);
  if (!states || !isStored(states.name)) return null;
  const labels = axisLabels(states.labels[0]);
  const rows = Array.from({ length: states.shape[0] }, (_, t) => [label(labels, t), tensorRow(states.name, t)[cell.j]]);
  const terms = termsOf(cell, rows);
  return { lines: [`${figure(terms.total)} ÷ ${rows.length} = ${figure(terms.total / rows.length)}`], terms };
}

function termsOf(cell, rows) {
  return { columns: cell.layout.columns, rows, total: sum(rows.map((row) => row.at(-1))) };
}

function sum(numbers) {
  return numbers.reduce((a, b) => a + b, 0);
}

// The row of the weight matrix that computes this cell: heads follow each other in it.
function outputFeature({ node, head, j }) {
  if (node.shape.length < 3) return j;
  return kvHead(node.name, head, attentionOf(node.name).heads) * node.shape[2] + j;
}
