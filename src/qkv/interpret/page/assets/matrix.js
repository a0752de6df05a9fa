// A step as a matrix to show: labels, numbers, which cells are masked, how strongly each is shaded,
// and how a cell is computed.

import { arithmetic } from "./arithmetic.js";
import { attentionOf, canRecompute, isMasked, isScoreStep, stepOf, valueRow } from "./attention.js";
import { allDigits, figure } from "./format.js";
import { axisLabels, chunkFloats, isStored, label, nodeOf } from "./payload.js";

// All cells of a step; null if they are neither in the file nor can be recomputed.
export function fullMatrix(name, head) {
  if (!isStored(name) && !canRecompute(name)) return null;
  const node = nodeOf(name);
  const [rows, columns] = node.shape.slice(-2);
  const [rowLabels, columnLabels] = node.labels.map(axisLabels);
  const row = (i) => valueRow(name, i, head);
  const ownHead = node.shape.length === 3 ? head : null;
  return {
    name, rows, columns, row,
    head: ownHead,
    title: titleOf(name),
    corner: node.corner,
    rowLabel: (i) => (rows === 1 && !rowLabels ? "text" : label(rowLabels, node.rows ? node.rows[i] : i)),
    columnLabel: (j) => label(columnLabels, j),
    value: (i, j) => row(i)[j],
    text: (i, j) => figure(row(i)[j]),
    digits: (i, j) => allDigits(row(i)[j]),
    arithmetic: (i, j) => arithmetic(name, ownHead, i, j),
    masked: maskOf(name),
    shade: shadeOf(name, node.largest),
    widest: isProbability(name) ? 6 : figure(isStored(name) ? -node.largest : -99).length,
    isRecomputed: !isStored(name),
  };
}

// The largest weight of each block of a head's weights.
export function pooledMatrix(name, head) {
  const { pooled, labels, shape } = nodeOf(name);
  const [rows, columns] = pooled.shape;
  const [down, across] = pooled.block;
  const [queries, keys] = shape.slice(-2);
  const [rowLabels, columnLabels] = labels.map(axisLabels);
  const chunk = pooled.chunks.find((each) => head >= each.first && head < each.first + each.count);
  const row = (i) => {
    const start = ((head - chunk.first) * rows + i) * columns;
    return chunkFloats(chunk).subarray(start, start + columns);
  };
  const rowSpan = (i) => [i * down, Math.min(queries, (i + 1) * down)];
  const columnSpan = (j) => [j * across, Math.min(keys, (j + 1) * across)];
  return {
    name, head, rows, columns, row,
    title: titleOf(name),
    corner: "queries ↓ keys →",
    rowLabel: (i) => spanLabel(rowLabels, ...rowSpan(i)),
    columnLabel: (j) => spanLabel(columnLabels, ...columnSpan(j)),
    value: (i, j) => row(i)[j],
    text: (i, j) => figure(row(i)[j]),
    digits: (i, j) => allDigits(row(i)[j]),
    arithmetic: () => ({ lines: [`the largest of the ${down} × ${across} weights in this block`] }),
    masked: (i, j) => isBlockMasked(attentionOf(name), rowSpan(i), columnSpan(j)),
    shade: (value) => value,
    widest: 6,
    isRecomputed: false,
  };
}

function titleOf(name) {
  return stepOf(name).replaceAll("_", " ");
}

function isProbability(name) {
  return stepOf(name) === "weights" || name === "probabilities";
}

function spanLabel(labels, start, stop) {
  return stop - start === 1 ? label(labels, start) : `${start + 1}–${stop}`;
}

function isBlockMasked(attention, [top, bottom], [left, right]) {
  if (attention.mask === null) return false;
  for (let i = top; i < bottom; i++) {
    for (let j = left; j < right; j++) if (!isMasked(attention, i, j)) return false;
  }
  return true;
}

function maskOf(name) {
  const attention = attentionOf(name);
  if (!isScoreStep(name) || !["masked", "weights"].includes(stepOf(name))) return () => false;
  const positions = nodeOf(name).rows;
  return (i, j) => isMasked(attention, positions ? positions[i] : i, j);
}

// From −1 to 1: the value relative to the largest, by its square root so that small ones show.
function shadeOf(name, largest) {
  if (isProbability(name)) return (value) => value;
  return (value) => {
    if (!Number.isFinite(value) || !largest) return 0;
    return Math.sign(value) * Math.sqrt(Math.min(1, Math.abs(value) / largest));
  };
}
