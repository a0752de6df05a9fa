// What a cell is made of: rows of its inputs, where the file has them.

import { canCompute, headRow } from "./attention.js";
import { isWhole, localRow, node, row } from "./payload.js";

// The row of an input at this cell's position, or null where the file does not have it.
export function inputRow(cell, at, position = cell.position) {
  const name = cell.inputs[at];
  if (canCompute(name)) return headRow(name, position, cell.head);
  if (!isWhole(name)) return null;
  const local = localRow(name, position);
  if (local < 0) return null;
  return node(name).shape.length === 3 ? headRow(name, local, cell.head) : row(name, local);
}

// A row of a parameter or of a table by position, where the file has it.
export function tableRow(cell, at, position = cell.position) {
  return isWhole(cell.inputs[at]) ? row(cell.inputs[at], position) : null;
}

// The row that the cell itself stands in.
export function rowOf(cell) {
  const local = localRow(cell.made.name, cell.position);
  return cell.made.shape.length === 3 ? headRow(cell.made.name, local, cell.head) : row(cell.made.name, local);
}
