// The data of the page: one JSON of names and sizes, and tensors in base64 chunks, decoded lazily.

import { byId } from "./dom.js";

export const payload = JSON.parse(byId("qkv-data").textContent);

const nodes = new Map(payload.nodes.map((node) => [node.name, node]));
const MAX_DECODED = 96; // chunks; the least recently decoded is dropped
const decoded = new Map();

export function nodeOf(name) {
  return nodes.get(name);
}

// Whether every number of the tensor is in the file.
export function isStored(name) {
  return nodes.get(name)?.chunks?.length > 0;
}

// One row of a tensor (rows, columns), or of one head of a tensor (heads, rows, columns).
export function tensorRow(name, index, head = null) {
  const width = nodes.get(name).shape.at(-1);
  if (head !== null) return tensorHead(name, head).subarray(index * width, (index + 1) * width);
  const chunk = chunkOf(name, index);
  return chunkFloats(chunk).subarray((index - chunk.first) * width, (index - chunk.first + 1) * width);
}

// All rows of one head, one after the other.
export function tensorHead(name, head) {
  const [, rows, width] = nodes.get(name).shape;
  const chunk = chunkOf(name, head);
  return chunkFloats(chunk).subarray((head - chunk.first) * rows * width, (head - chunk.first + 1) * rows * width);
}

function chunkOf(name, first) {
  return nodes.get(name).chunks.find((chunk) => first < chunk.first + chunk.count);
}

// The numbers of a chunk, cached; NaN everywhere if the chunk cannot be read.
export function chunkFloats(chunk) {
  let floats = decoded.get(chunk.id);
  if (floats === undefined) {
    floats = decode(chunk);
    if (decoded.size >= MAX_DECODED) decoded.delete(decoded.keys().next().value);
    decoded.set(chunk.id, floats);
  }
  return floats;
}

function decode({ id, numbers }) {
  try {
    const bytes = chunkBytes(id);
    if (bytes.length === 4 * numbers) return new Float32Array(bytes.buffer);
  } catch {
    // the check of the checksums reports it
  }
  return new Float32Array(numbers).fill(NaN);
}

export function chunkBytes(id) {
  const base64 = byId(id).textContent;
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(base64);
  const characters = atob(base64);
  const bytes = new Uint8Array(characters.length);
  for (let i = 0; i < characters.length; i++) bytes[i] = characters.charCodeAt(i);
  return bytes;
}

const CRC_TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  for (let bit = 0; bit < 8; bit++) byte = byte & 1 ? (byte >>> 1) ^ 0xedb88320 : byte >>> 1;
  return byte;
});

// CRC-32, as zlib computes it.
export function crc32(bytes) {
  let crc = 0xffffffff;
  for (let i = 0; i < bytes.length; i++) crc = CRC_TABLE[(crc ^ bytes[i]) & 255] ^ (crc >>> 8);
  return (crc ^ 0xffffffff) >>> 0;
}

// The row in which a tensor stores a position; −1 if it does not store it.
export function rowOfPosition(name, position) {
  const { rows } = nodes.get(name);
  return rows ? rows.indexOf(position) : position;
}

// The position that a row of a tensor belongs to.
export function positionOfRow(name, row) {
  return nodes.get(name).rows?.[row] ?? row;
}

// The tokens or output names along an axis; undefined where features are counted.
export function axisLabels(axis) {
  return payload.tokens[axis] ?? payload.names[axis];
}

// The label at an index of an axis: a token, or 1, 2, 3 … for features.
export function label(labels, index) {
  return labels ? labels[index] ?? `#${index + 1}` : String(index + 1);
}
