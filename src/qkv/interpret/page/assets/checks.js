// The checks: numbers of the file compared with each other, here and now. What disagrees turns red.

import { canRecompute, headRow, kvHead, recomputeRow, softmax } from "./attention.js";
import { byId, element } from "./dom.js";
import { pooledMatrix } from "./matrix.js";
import { axisLabels, chunkBytes, crc32, isStored, label, nodeOf, payload, positionOfRow, rowOfPosition, tensorHead, tensorRow } from "./payload.js";

const TIME_SLICE = 10; // milliseconds of work before the page may do something else

// Each case of a check is {error, tolerance, location}: how far the numbers are apart, how far they
// may be, and where.
const CHECKS = [
  { name: "every tensor is as it was written", sentence: "the checksum of each part", cases: checksums },
  { name: "rows of weights sum to 1", sentence: "0 where nothing is seen", cases: rowSums },
  { name: "scores = q · kᵀ", sentence: "from the queries and keys", cases: scoreRows },
  { name: "weights = softmax(masked)", sentence: "each row once more", cases: weightRows },
  { name: "pooled weights = softmax(q · kᵀ)", sentence: "the largest of each block once more", cases: pooledRows },
  { name: "fused = explicit", sentence: "what the fused kernel mixed is weights · v", cases: mixedRows },
  { name: "probabilities = softmax(logits)", sentence: "each row once more", cases: probabilityRows },
  { name: "answer = the served model's", sentence: "what the model that answers gave for the same", cases: servedRows },
];

// Runs every check in time slices, and fills the panel as they end.
export async function runChecks() {
  const results = CHECKS.map(({ name, sentence }) => ({ name, sentence, ok: null, worst: 0, cases: 0 }));
  const fromTrace = payload.checks.map((check) => ({ ...check, isFromTrace: true }));
  byId("checks-before").replaceChildren(...fromTrace.map(resultLine));
  showSummary(fromTrace, false);
  for (const [i, check] of CHECKS.entries()) {
    await runCheck(results[i], check);
    const finished = results.filter((result) => result.ok !== null);
    byId("checks-list").replaceChildren(...finished.map(resultLine));
  }
  showSummary([...results, ...fromTrace], true);
}

async function runCheck(result, check) {
  let sliceStart = performance.now();
  try {
    for (const { error, tolerance, location } of check.cases()) {
      result.cases += 1;
      if (!(error <= tolerance) && result.ok !== false) Object.assign(result, { ok: false, worst: error, tolerance, location });
      if (result.ok !== false && error >= result.worst) Object.assign(result, { worst: error, tolerance });
      if (performance.now() - sliceStart > TIME_SLICE) {
        await new Promise((resolve) => setTimeout(resolve));
        sliceStart = performance.now();
      }
    }
  } catch (error) {
    Object.assign(result, { ok: false, worst: NaN, location: `a tensor cannot be read: ${error.message}` });
  }
  if (result.cases && result.ok === null) result.ok = true;
}

function resultLine({ name, sentence, ok, worst, tolerance, location, cases, isFromTrace }) {
  const mark = element("span", { class: "mark" }, ok ? "✓" : "✗", element("span", { class: "unseen" }, ok ? " holds" : " fails"));
  const where = ok || !location ? null : element("p", { class: "where" }, `first at ${location}`);
  const details = [];
  if (!isFromTrace) details.push(`${sentence}; ${cases} ${cases === 1 ? "time" : "times"}`);
  if (Number.isFinite(worst) && tolerance !== 0) details.push(deviation(ok, worst, tolerance));
  return element("li", { class: ok ? "holds" : "fails" }, mark, element("div", {}, element("strong", {}, name), where, element("p", { class: "muted" }, details.join(" · "))));
}

function deviation(ok, worst, tolerance) {
  const text = `off by ${brief(worst)} ${ok ? "at most" : "there"}`;
  return tolerance === undefined || tolerance === null ? text : `${text}, ${brief(tolerance)} allowed`;
}

function showSummary(results, isDone) {
  const failed = results.filter((result) => result.ok === false).length;
  const passed = results.filter((result) => result.ok === true).length;
  let text = "… checking", state = "";
  if (failed) [text, state] = [`✗ ${failed} of ${failed + passed} checks fail`, "fails"];
  else if (isDone) [text, state] = [`✓ all ${passed} checks hold`, "holds"];
  const summary = byId("checks-summary"), badge = byId("checks-badge");
  summary.textContent = text;
  summary.className = state;
  summary.dataset.done = String(isDone);
  badge.textContent = text;
  badge.className = `chip ${state}`;
  byId("checks").classList.toggle("red", failed > 0);
}

function brief(number) {
  return number === 0 ? "0" : number.toExponential(1).replace("-", "−");
}

function* checksums() {
  const pooled = payload.nodes.map((node) => node.pooled).filter(Boolean);
  for (const { name, chunks } of [...payload.nodes, ...pooled, { chunks: payload.masks, name: "the mask" }]) {
    for (const chunk of chunks ?? []) yield { error: isIntact(chunk) ? 0 : Infinity, tolerance: 0, location: name };
  }
}

function isIntact(chunk) {
  try {
    return crc32(chunkBytes(chunk.id)) === chunk.crc;
  } catch {
    return false; // not even base64
  }
}

// All rows of every head of the attentions whose steps are in the file; at: the row in each step.
function* headRows(...steps) {
  for (const attention of payload.attentions) {
    const names = steps.map((step) => attention[step] ?? `${attention.prefix}.${step}`);
    if (!isStored(names[0]) || !names.every((name) => isStored(name) || canRecompute(name))) continue;
    const node = nodeOf(names[0]);
    for (let head = 0; head < attention.heads; head++) {
      for (let first = 0; first < node.shape[1]; first++) {
        const position = positionOfRow(names[0], first);
        const at = names.map((name) => (nodeOf(name) ? rowOfPosition(name, position) : position));
        if (at[0] >= 0 && (at[1] ?? 0) >= 0) yield { attention, head, at, names, location: locationOf(attention, head, node, first, steps[0]) };
      }
    }
  }
}

function locationOf(attention, head, node, row, step) {
  const token = label(axisLabels(node.labels[0]), positionOfRow(node.name, row));
  return `${attention.prefix}.${step}, head ${head}, row ${row + 1} (${token})`;
}

function* rowSums() {
  for (const { head, at, names, location } of headRows("weights")) {
    const weights = headRow(names[0], at[0], head);
    const sum = weights.reduce((a, b) => a + b, 0);
    const negative = weights.reduce((a, b) => Math.min(a, b), 0);
    yield { error: worse(sum === 0 ? 0 : Math.abs(sum - 1), -negative), tolerance: 1e-5, location };
  }
}

function* scoreRows() {
  for (const { attention, head, at, names, location } of headRows("scores", "query", "key")) {
    const scores = headRow(names[0], at[0], head);
    const q = tensorRow(names[1], at[1], kvHead(names[1], head, attention.heads));
    const keys = tensorHead(names[2], kvHead(names[2], head, attention.heads));
    let error = 0;
    for (let s = 0, start = 0; s < scores.length; s++, start += q.length) {
      let sum = 0, size = 1; // relative to the terms: a float32 sum may cancel
      for (let e = 0; e < q.length; e++) {
        const term = q[e] * keys[start + e];
        sum += term;
        size += Math.abs(term);
      }
      error = worse(error, Math.abs(scores[s] - sum) / size);
    }
    yield { error, tolerance: 1e-5, location };
  }
}

function* weightRows() {
  for (const { head, at, names, location } of headRows("weights", "masked")) {
    const expected = softmax(headRow(names[1], at[1], head));
    yield { error: maxDifference(headRow(names[0], at[0], head), expected), tolerance: 1e-5, location };
  }
}

// Pooled weights against rows recomputed from queries and keys.
function* pooledRows() {
  for (const attention of payload.attentions) {
    const node = nodeOf(`${attention.prefix}.weights`);
    if (!node?.pooled || !canRecompute(node.name)) continue;
    for (let head = 0; head < attention.heads; head++) {
      const matrix = pooledMatrix(node.name, head);
      for (let block = 0; block < matrix.rows; block += 1) {
        const location = locationOf(attention, head, node, block * node.pooled.block[0], "weights");
        yield { error: maxDifference(matrix.row(block), poolRows(attention, node, head, block)), tolerance: 1e-4, location };
      }
    }
  }
}

function poolRows(attention, node, head, block) {
  const [down, across] = node.pooled.block;
  const largest = new Float64Array(node.pooled.shape[1]);
  for (let row = block * down; row < Math.min(node.shape[1], (block + 1) * down); row++) {
    const { weights } = recomputeRow(attention, row, head);
    for (let s = 0; s < weights.length; s++) {
      const column = Math.floor(s / across);
      if (weights[s] > largest[column]) largest[column] = weights[s];
    }
  }
  return largest;
}

function* mixedRows() {
  for (const { attention, head, at, names, location } of headRows("mixed", "weights", "value")) {
    const weights = headRow(names[1], at[1], head), mixed = headRow(names[0], at[0], head);
    const values = tensorHead(names[2], kvHead(names[2], head, attention.heads));
    const expected = new Float64Array(mixed.length);
    let size = 1;
    for (let s = 0, start = 0; s < weights.length; s++, start += mixed.length) {
      for (let e = 0; e < mixed.length; e++) {
        expected[e] += weights[s] * values[start + e];
        size = Math.max(size, Math.abs(values[start + e]));
      }
    }
    yield { error: maxDifference(mixed, expected) / size, tolerance: isStored(names[1]) ? 1e-5 : 1e-4, location };
  }
}

function* probabilityRows() {
  const node = nodeOf("probabilities");
  if (!node || !isStored(node.name) || !isStored(node.inputs[0])) return;
  for (let row = 0; row < node.shape[0]; row++) {
    const token = label(axisLabels(node.labels[0]), positionOfRow(node.name, row));
    const error = maxDifference(tensorRow(node.name, row), softmax(tensorRow(node.inputs[0], row)));
    yield { error, tolerance: 1e-5, location: `probabilities, row ${row + 1} (${token})` };
  }
}

function* servedRows() {
  const served = nodeOf("served"), logits = nodeOf(payload.logits);
  if (!served || !isStored(served.name) || !isStored(logits?.name)) return;
  const tolerance = payload.checks.find((check) => check.name === "answer = the served model's")?.tolerance ?? 1e-4;
  for (let row = 0; row < served.shape[0]; row++) {
    const one = tensorRow(logits.name, row), other = tensorRow(served.name, row);
    let error = 0;
    for (let j = 0; j < one.length; j++) {
      if (one[j] !== other[j]) error = worse(error, Math.abs(one[j] - other[j]) / Math.max(1, Math.abs(other[j])));
    }
    yield { error, tolerance, location: `${logits.name}, row ${row + 1}` };
  }
}

function maxDifference(numbers, expected) {
  let error = 0;
  for (let i = 0; i < numbers.length; i++) error = worse(error, Math.abs(numbers[i] - expected[i]));
  return error;
}

// The larger of two errors; NaN is the worst of all.
function worse(a, b) {
  return Number.isNaN(a) || Number.isNaN(b) ? NaN : Math.max(a, b);
}
