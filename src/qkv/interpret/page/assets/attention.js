// The steps of one attention head: stored in the file or, for long texts, recomputed a row at a time.

import { chunkBytes, isStored, nodeOf, payload, rowOfPosition, tensorHead, tensorRow } from "./payload.js";

const attentions = new Map(payload.attentions.map((attention) => [attention.prefix, attention]));
const SCORE_STEPS = ["scores", "scaled", "capped", "masked", "weights"];
const MAX_RECOMPUTED = 256; // rows
const recomputed = new Map();
const maskBits = new Map();

export function attentionOf(name) {
  return attentions.get(name.slice(0, name.lastIndexOf(".")));
}

export function stepOf(name) {
  return name.slice(name.lastIndexOf(".") + 1);
}

// The key/value head that a query head reads: with grouped-query attention several share one.
export function kvHead(name, head, queryHeads) {
  const heads = nodeOf(name).shape[0];
  return Math.floor((head * heads) / queryHeads);
}

// Whether the step is a T × S matrix of scores or weights.
export function isScoreStep(name) {
  return SCORE_STEPS.includes(stepOf(name)) && attentionOf(name) !== undefined;
}

// Whether single rows of this step can be recomputed from the queries and keys in the file.
export function canRecompute(name) {
  if (isStored(name)) return false;
  const attention = attentionOf(name);
  return Boolean(attention?.computable) && isScoreStep(name) && isStored(attention.query) && isStored(attention.key);
}

export function headRow(name, index, head) {
  if (isStored(name)) return tensorRow(name, index, kvHead(name, head, attentionOf(name)?.heads ?? 1));
  return recomputeRow(attentionOf(name), index, head)[stepOf(name)];
}

// A row of a step for this head, or of a value that has no heads.
export function valueRow(name, index, head) {
  return nodeOf(name).shape.length === 3 ? headRow(name, index, head) : tensorRow(name, index);
}

// The row of a cell's input at a position, or null where the file does not have it.
export function inputRow(cell, input, position = cell.position) {
  const name = cell.inputs[input];
  if (canRecompute(name)) return headRow(name, position, cell.head);
  if (!isStored(name)) return null;
  const index = rowOfPosition(name, position);
  return index < 0 ? null : valueRow(name, index, cell.head);
}

// The row of a parameter, or of a table by position, or null where the file does not have it.
export function parameterRow(cell, input, index = cell.position) {
  return isStored(cell.inputs[input]) ? tensorRow(cell.inputs[input], index) : null;
}

// The row that the cell itself stands in.
export function ownRow(cell) {
  return valueRow(cell.node.name, rowOfPosition(cell.node.name, cell.position), cell.head);
}

// Whether the mask hides the key from the query.
export function isMasked(attention, query, key) {
  if (attention.mask === null) return false;
  const bit = query * payload.masks[attention.mask].columns + key;
  return ((bitsOf(attention)[bit >> 3] >> (bit & 7)) & 1) === 0;
}

function bitsOf({ mask }) {
  if (!maskBits.has(mask)) maskBits.set(mask, readBits(payload.masks[mask].id));
  return maskBits.get(mask);
}

function readBits(id) {
  try {
    return chunkBytes(id);
  } catch {
    return new Uint8Array(); // the check of the checksums reports it
  }
}

// A row of probabilities that sum to 1; zeros where every logit is −∞.
export function softmax(logits) {
  let max = -Infinity;
  for (let i = 0; i < logits.length; i++) if (logits[i] > max) max = logits[i];
  const probs = new Float64Array(logits.length);
  if (max === -Infinity) return probs;
  let total = 0;
  for (let i = 0; i < logits.length; i++) total += probs[i] = Math.exp(logits[i] - max);
  for (let i = 0; i < logits.length; i++) probs[i] /= total;
  return probs;
}

// Every step of one query of one head, from the queries and keys; cached.
export function recomputeRow(attention, index, head) {
  const id = `${attention.prefix} ${head} ${index}`;
  let steps = recomputed.get(id);
  if (steps === undefined) {
    steps = attentionRow(attention, index, head);
    if (recomputed.size >= MAX_RECOMPUTED) recomputed.delete(recomputed.keys().next().value);
    recomputed.set(id, steps);
  }
  return steps;
}

function attentionRow(attention, index, head) {
  const { query, key, heads, factor, cap } = attention;
  const q = tensorRow(query, index, kvHead(query, head, heads));
  const keys = tensorHead(key, kvHead(key, head, heads));
  const length = nodeOf(key).shape[1];
  const [scores, scaled, capped, masked] = Array.from({ length: 4 }, () => new Float64Array(length));
  for (let s = 0, start = 0; s < length; s++, start += q.length) {
    let sum = 0;
    for (let e = 0; e < q.length; e++) sum += q[e] * keys[start + e];
    scores[s] = sum;
    scaled[s] = sum * factor;
    capped[s] = cap === null ? scaled[s] : Math.tanh(scaled[s] / cap) * cap;
    masked[s] = isMasked(attention, index, s) ? -Infinity : capped[s];
  }
  return { scores, scaled, capped, masked, weights: softmax(masked) };
}
