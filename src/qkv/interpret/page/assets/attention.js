// The steps of one attention head, from the file or, for long texts, worked out a row at a time.

import { bytes, headOf, held, isWhole, node, row } from "./payload.js";

const attentions = new Map(held.attentions.map((each) => [each.prefix, each]));
const GRIDS = ["scores", "scaled", "capped", "masked", "weights"];
const ROWS = 256; // computed rows kept
const computed = new Map();
const seenBits = new Map();

export function attentionOf(name) {
  return attentions.get(name.slice(0, name.lastIndexOf(".")));
}

export function stepOf(name) {
  return name.slice(name.lastIndexOf(".") + 1);
}

// The head whose keys and values this query head reads: fewer of them may be shared.
export function sharedHead(name, head, heads) {
  const own = node(name).shape[0];
  return Math.floor((head * own) / heads);
}

export function isGrid(name) {
  return GRIDS.includes(stepOf(name)) && attentionOf(name) !== undefined;
}

// Whether the page can work out this step for single rows from queries and keys.
export function canCompute(name) {
  if (isWhole(name)) return false;
  const attention = attentionOf(name);
  return Boolean(attention?.computable) && isGrid(name) && isWhole(attention.query) && isWhole(attention.key);
}

export function headRow(name, at, head) {
  if (isWhole(name)) return row(name, at, sharedHead(name, head, attentionOf(name)?.heads ?? 1));
  return computedRow(attentionOf(name), at, head)[stepOf(name)];
}

// Whether the query may not look at the key.
export function isHidden(attention, query, key) {
  if (attention.mask === null) return false;
  const bit = query * held.masks[attention.mask].columns + key;
  return ((bitsOf(attention)[bit >> 3] >> (bit & 7)) & 1) === 0;
}

function bitsOf({ mask }) {
  if (!seenBits.has(mask)) seenBits.set(mask, readBits(held.masks[mask].id));
  return seenBits.get(mask);
}

function readBits(id) {
  try {
    return bytes(id);
  } catch {
    return new Uint8Array(); // told by the check of the checksums
  }
}

export function computedRow(attention, at, head) {
  const id = `${attention.prefix} ${head} ${at}`;
  let made = computed.get(id);
  if (made === undefined) {
    made = computeRow(attention, at, head);
    if (computed.size >= ROWS) computed.delete(computed.keys().next().value);
    computed.set(id, made);
  }
  return made;
}

// A row of shares that sum to 1; zeros where everything is hidden.
export function softmax(scores) {
  let largest = -Infinity;
  for (let at = 0; at < scores.length; at++) if (scores[at] > largest) largest = scores[at];
  const shares = new Float64Array(scores.length);
  if (largest === -Infinity) return shares;
  let total = 0;
  for (let at = 0; at < scores.length; at++) total += shares[at] = Math.exp(scores[at] - largest);
  for (let at = 0; at < scores.length; at++) shares[at] /= total;
  return shares;
}

function computeRow(attention, at, head) {
  const { query, key, heads, factor, cap } = attention;
  const q = row(query, at, sharedHead(query, head, heads));
  const keys = headOf(key, sharedHead(key, head, heads));
  const length = node(key).shape[1];
  const [scores, scaled, capped, masked] = Array.from({ length: 4 }, () => new Float64Array(length));
  for (let s = 0, from = 0; s < length; s++, from += q.length) {
    let sum = 0;
    for (let e = 0; e < q.length; e++) sum += q[e] * keys[from + e];
    scores[s] = sum;
    scaled[s] = sum * factor;
    capped[s] = cap === null ? scaled[s] : Math.tanh(scaled[s] / cap) * cap;
    masked[s] = isHidden(attention, at, s) ? -Infinity : capped[s];
  }
  return { scores, scaled, capped, masked, weights: softmax(masked) };
}
