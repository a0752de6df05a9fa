// What the file holds: one JSON of names and sizes, and tensors in parts, decoded when looked at.

import { byId } from "./elements.js";

export const held = JSON.parse(byId("qkv-data").textContent);

const nodes = new Map(held.nodes.map((node) => [node.name, node]));
const KEPT = 96; // decoded parts; the oldest gives way
const decoded = new Map();

export function node(name) {
  return nodes.get(name);
}

// Whether every number of the tensor is in the file.
export function isWhole(name) {
  return nodes.get(name)?.parts?.length > 0;
}

// One row of a tensor (rows, columns), or of one head of a tensor (heads, rows, columns).
export function row(name, at, head = null) {
  const width = nodes.get(name).shape.at(-1);
  if (head !== null) return headOf(name, head).subarray(at * width, (at + 1) * width);
  const part = partOf(name, at);
  return floats(part).subarray((at - part.first) * width, (at - part.first + 1) * width);
}

// All rows of one head, one after the other.
export function headOf(name, head) {
  const [, rows, width] = nodes.get(name).shape;
  const part = partOf(name, head);
  return floats(part).subarray((head - part.first) * rows * width, (head - part.first + 1) * rows * width);
}

function partOf(name, first) {
  return nodes.get(name).parts.find((each) => first < each.first + each.count);
}

// The numbers of a part, from now on kept for a while; none are numbers if it cannot be read.
export function floats(part) {
  let numbers = decoded.get(part.id);
  if (numbers === undefined) {
    numbers = decode(part);
    if (decoded.size >= KEPT) decoded.delete(decoded.keys().next().value);
    decoded.set(part.id, numbers);
  }
  return numbers;
}

function decode({ id, numbers }) {
  try {
    const raw = bytes(id);
    if (raw.length === 4 * numbers) return new Float32Array(raw.buffer);
  } catch {
    // told by the check of the checksums
  }
  return new Float32Array(numbers).fill(NaN);
}

export function bytes(id) {
  const text = byId(id).textContent;
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const letters = atob(text);
  const raw = new Uint8Array(letters.length);
  for (let at = 0; at < letters.length; at++) raw[at] = letters.charCodeAt(at);
  return raw;
}

// Where a tensor keeps the row of a position; −1 if it does not.
export function localRow(name, position) {
  const { rows } = nodes.get(name);
  return rows ? rows.indexOf(position) : position;
}

// The position that a row of a tensor belongs to.
export function positionOf(name, at) {
  return nodes.get(name).rows?.[at] ?? at;
}

// The labels of a sequence, or 1, 2, 3 … for features.
export function label(labels, at) {
  return labels ? labels[at] ?? `#${at + 1}` : String(at + 1);
}
