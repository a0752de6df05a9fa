// Cells that are sums of many terms, term by term.

import { attentionOf, sharedHead } from "./attention.js";
import { figure, signed } from "./figures.js";
import { inputRow } from "./inputs.js";
import { held, isWhole, label, node, row } from "./payload.js";

export function dot(cell, first, keyRow, second, a, b) {
  const q = inputRow(cell, first), k = inputRow(cell, second, keyRow);
  if (!q || !k) return null;
  const rows = Array.from(q, (x, e) => [`${e + 1}`, x, k[e], x * k[e]]);
  const total = rows.reduce((sum, each) => sum + each[3], 0);
  return { lines: [`${rows.length} products, one for each feature, added up`], terms: terms(["feature", a, b, `${a} × ${b}`], rows, total) };
}

export function shares(cell) {
  const scores = inputRow(cell, 0);
  if (!scores) return null;
  const largest = scores.reduce((a, b) => Math.max(a, b), -Infinity);
  if (largest === -Infinity) return { lines: ["every key is hidden from this query, so it gives no weight at all: 0"] };
  const shift = Math.abs(largest) > 12 ? largest : 0;
  const powers = Array.from(scores, (score) => (score === -Infinity ? 0 : Math.exp(score - shift)));
  const total = powers.reduce((a, b) => a + b, 0);
  const power = (score) => (shift ? `e^(${figure(score)} − ${signed(shift)})` : `e^${signed(score)}`);
  const labels = held.tokens[cell.made.labels[1]] ?? held.names[cell.made.labels[1]];
  const lines = [`${power(scores[cell.j])} ÷ total = ${figure(powers[cell.j])} ÷ ${figure(total)} = ${figure(powers[cell.j] / total)}`];
  if (shift) lines.push(`${figure(shift)}, the largest of the row, is taken off every exponent first, which changes no share`);
  const rows = powers.map((each, s) => [label(labels, s), scores[s], each]);
  return { lines, terms: terms(["key", "score", shift ? "e^(score − largest)" : "e^score"], rows, total), chosen: cell.j };
}

export function mixed(cell) {
  const weights = inputRow(cell, 0);
  const value = cell.inputs[1];
  if (!weights || !isWhole(value)) return null;
  const shared = sharedHead(value, cell.head, cell.made.shape[0]);
  const labels = held.tokens[node(value).labels[0]];
  const rows = Array.from(weights, (w, s) => {
    const v = row(value, s, shared)[cell.j];
    return [label(labels, s), w, v, w * v];
  });
  const total = rows.reduce((sum, each) => sum + each[3], 0);
  return { lines: ["the values of all keys, each times its weight, added up"], terms: terms(["key", "weight", "v", "weight × v"], rows, total) };
}

export function linear(cell) {
  const x = inputRow(cell, 0);
  const weight = cell.inputs[1], out = column(cell);
  if (!x) return null;
  if (!isWhole(weight)) {
    return { lines: [`${x.length} products: each number of this row of ${cell.inputs[0]} × row ${out + 1} of ${weight}, added up`, "the model's parameters are left out of this file for their size"] };
  }
  const w = row(weight, out);
  const rows = Array.from(x, (each, d) => [`${d + 1}`, each, w[d], each * w[d]]);
  if (cell.fields.bias && isWhole(cell.inputs[2])) rows.push(["bias", null, null, row(cell.inputs[2], 0)[out]]);
  const total = rows.reduce((sum, each) => sum + each[3], 0);
  const lines = [`${x.length} products, one for each feature that comes in, added up`];
  const { cap } = cell.fields;
  if (cap) lines.push(`${cap} · tanh(${signed(total)} ÷ ${cap}) = ${figure(cap * Math.tanh(total / cap))}`);
  return { lines, terms: terms(["feature", "x", "W", "x × W"], rows, total) };
}

export function pooled(cell) {
  const states = node(cell.inputs[0]);
  if (!states || !isWhole(states.name)) return null;
  const labels = held.tokens[states.labels[0]];
  const column = Array.from({ length: states.shape[0] }, (_, t) => [label(labels, t), row(states.name, t)[cell.j]]);
  if (cell.fields.pooling !== "mean") return { lines: [cell.made.equation] };
  const total = column.reduce((sum, each) => sum + each[1], 0);
  return { lines: [`${figure(total)} ÷ ${column.length} = ${figure(total / column.length)}`], terms: terms(["position", "value"], column, total) };
}

function terms(names, rows, total) {
  return { names, rows, total };
}

// Which of the matrix's results this cell is: heads stand one after the other.
function column({ made, head, j }) {
  if (made.shape.length < 3) return j;
  return sharedHead(made.name, head, attentionOf(made.name).heads) * made.shape[2] + j;
}
