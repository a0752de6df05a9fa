// What is checked: each case gives how far the numbers are apart, how far they may be, and where.

import { canCompute, computedRow, headRow, sharedHead, softmax } from "./attention.js";
import { crc } from "./checksum.js";
import { pooledMatrix } from "./matrix.js";
import { bytes, headOf, held, isWhole, label, localRow, node, positionOf, row } from "./payload.js";

export const CHECKS = [
  { name: "every tensor is as it was written", sentence: "the checksum of each part", cases: checksums },
  { name: "rows of weights sum to 1", sentence: "0 where nothing is seen", cases: rowSums },
  { name: "scores = q · kᵀ", sentence: "from the queries and keys", cases: scoreRows },
  { name: "weights = softmax(masked)", sentence: "each row once more", cases: weightRows },
  { name: "pooled weights = softmax(q · kᵀ)", sentence: "the largest of each block once more", cases: pooledRows },
  { name: "fused = explicit", sentence: "what the fused kernel mixed is weights · v", cases: mixedRows },
  { name: "probabilities = softmax(logits)", sentence: "each row once more", cases: outputRows },
  { name: "answer = the served model's", sentence: "what the model that answers gave for the same", cases: servedRows },
];

function* checksums() {
  for (const made of [...held.nodes, ...held.nodes.map((each) => each.pooled).filter(Boolean), { parts: held.masks, name: "the mask" }]) {
    for (const part of made.parts ?? []) yield { worst: isIntact(part) ? 0 : Infinity, tolerance: 0, place: made.name };
  }
}

function isIntact(part) {
  try {
    return crc(bytes(part.id)) === part.crc;
  } catch {
    return false; // not even base64
  }
}

// All rows of every head of the attentions whose steps are in the file; `at`: the row in each step.
function* rows(...steps) {
  for (const attention of held.attentions) {
    const names = steps.map((step) => attention[step] ?? `${attention.prefix}.${step}`);
    if (!isWhole(names[0]) || !names.every((name) => isWhole(name) || canCompute(name))) continue;
    const made = node(names[0]);
    for (let head = 0; head < attention.heads; head++) {
      for (let first = 0; first < made.shape[1]; first++) {
        const position = positionOf(names[0], first);
        const at = names.map((name) => (node(name) ? localRow(name, position) : position));
        if (at[0] >= 0 && (at[1] ?? 0) >= 0) yield { attention, head, at, names, place: spot(attention, head, made, first, steps[0]) };
      }
    }
  }
}

function spot(attention, head, made, at, step) {
  const token = label(held.tokens[made.labels[0]], positionOf(made.name, at));
  return `${attention.prefix}.${step}, head ${head}, row ${at + 1} (${token})`;
}

function* rowSums() {
  for (const { head, at, names, place } of rows("weights")) {
    const numbers = headRow(names[0], at[0], head);
    const sum = numbers.reduce((a, b) => a + b, 0);
    const negative = numbers.reduce((a, b) => Math.min(a, b), 0);
    yield { worst: worse(sum === 0 ? 0 : Math.abs(sum - 1), -negative), tolerance: 1e-5, place };
  }
}

function* scoreRows() {
  for (const { attention, head, at, names, place } of rows("scores", "query", "key")) {
    const scores = headRow(names[0], at[0], head);
    const q = row(names[1], at[1], sharedHead(names[1], head, attention.heads));
    const keys = headOf(names[2], sharedHead(names[2], head, attention.heads));
    let worst = 0;
    for (let s = 0, from = 0; s < scores.length; s++, from += q.length) {
      let sum = 0, size = 1;
      for (let e = 0; e < q.length; e++) (sum += q[e] * keys[from + e]), (size += Math.abs(q[e] * keys[from + e]));
      worst = worse(worst, Math.abs(scores[s] - sum) / size);
    }
    yield { worst, tolerance: 1e-5, place };
  }
}

function* weightRows() {
  for (const { head, at, names, place } of rows("weights", "masked")) {
    const expected = softmax(headRow(names[1], at[1], head));
    yield { worst: largest(headRow(names[0], at[0], head), expected), tolerance: 1e-5, place };
  }
}

// Pooled weights against rows worked out from queries and keys.
function* pooledRows() {
  for (const attention of held.attentions) {
    const made = node(`${attention.prefix}.weights`);
    if (!made?.pooled || !canCompute(made.name)) continue;
    for (let head = 0; head < attention.heads; head++) {
      const shown = pooledMatrix(made.name, head);
      for (let block = 0; block < shown.rows; block += 1) {
        yield { worst: largest(shown.row(block), pool(attention, made, head, block)), tolerance: 1e-4, place: spot(attention, head, made, block * made.pooled.block[0], "weights") };
      }
    }
  }
}

function pool(attention, made, head, block) {
  const [down, across] = made.pooled.block;
  const most = new Float64Array(made.pooled.shape[1]);
  for (let at = block * down; at < Math.min(made.shape[1], (block + 1) * down); at++) {
    const { weights } = computedRow(attention, at, head);
    for (let s = 0; s < weights.length; s++) {
      const to = Math.floor(s / across);
      if (weights[s] > most[to]) most[to] = weights[s];
    }
  }
  return most;
}

function* mixedRows() {
  for (const { attention, head, at, names, place } of rows("mixed", "weights", "value")) {
    const weights = headRow(names[1], at[1], head), mixed = headRow(names[0], at[0], head);
    const shared = sharedHead(names[2], head, attention.heads);
    const expected = new Float64Array(mixed.length);
    let size = 1;
    const values = headOf(names[2], shared);
    for (let s = 0, from = 0; s < weights.length; s++, from += mixed.length) {
      for (let e = 0; e < mixed.length; e++) (expected[e] += weights[s] * values[from + e]), (size = Math.max(size, Math.abs(values[from + e])));
    }
    yield { worst: largest(mixed, expected) / size, tolerance: isWhole(names[1]) ? 1e-5 : 1e-4, place };
  }
}

function* outputRows() {
  const made = node("probabilities");
  if (!made || !isWhole(made.name) || !isWhole(made.inputs[0])) return;
  for (let at = 0; at < made.shape[0]; at++) {
    const token = label(held.tokens[made.labels[0]], positionOf(made.name, at));
    yield { worst: largest(row("probabilities", at), softmax(row(made.inputs[0], at))), tolerance: 1e-5, place: `probabilities, row ${at + 1} (${token})` };
  }
}

function* servedRows() {
  const made = node("served"), answer = node(held.answer);
  if (!made || !isWhole(made.name) || !isWhole(answer?.name)) return;
  const tolerance = held.checks.find((each) => each.name === "answer = the served model's")?.tolerance ?? 1e-4;
  for (let at = 0; at < made.shape[0]; at++) {
    const [one, other] = [row(answer.name, at), row(made.name, at)];
    let worst = 0;
    for (let j = 0; j < one.length; j++) if (one[j] !== other[j]) worst = worse(worst, Math.abs(one[j] - other[j]) / Math.max(1, Math.abs(other[j])));
    yield { worst, tolerance, place: `${answer.name}, row ${at + 1}` };
  }
}

function largest(numbers, expected) {
  let worst = 0;
  for (let at = 0; at < numbers.length; at++) worst = worse(worst, Math.abs(numbers[at] - expected[at]));
  return worst;
}

// The larger of two; not a number is worst of all.
function worse(a, b) {
  return Number.isNaN(a) || Number.isNaN(b) ? NaN : Math.max(a, b);
}
