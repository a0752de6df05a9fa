// A matrix as a grid of numbers: only what is in sight is in the document, all of it is reachable.

import { element } from "./elements.js";
import { figure } from "./figures.js";
import { digitWidth, moved } from "./geometry.js";

const HIGH = 30; // of a cell, in pixels
const ALL = 1600; // so many cells are put in at once
const MARGIN = 3; // rows and columns beyond the edge

export function tableHeight(rows) {
  return Math.min(480, (rows + 1) * HIGH + 2);
}

export class Table {
  // onLook(matrix, i, j, lasting): a cell is pointed at, or has the focus if lasting.
  constructor(matrix, name, onLook) {
    this.matrix = matrix;
    this.onLook = onLook;
    this.at = [0, 0];
    this.rows = new Map();
    this.heads = new Map();
    this.wide = Math.max(56, 16 + Math.ceil(digitWidth() * matrix.widest));
    this.side = Math.min(innerWidth < 600 ? 96 : 150, 22 + 7 * this.longestLabel());
    this.root = element("div", {
      class: "heat", role: "grid", "aria-label": name, "aria-readonly": "true",
      "aria-rowcount": matrix.rows + 1, "aria-colcount": matrix.columns + 1,
    });
    this.sheet = element("div", { class: "sheet", role: "rowgroup" });
    this.head = element("div", { class: "row names", role: "row", "aria-rowindex": 1 });
    this.head.append(element("div", { class: "corner", role: "columnheader", "aria-colindex": 1 }, matrix.corner));
    this.sheet.append(this.head);
    this.root.append(this.sheet);
    this.sheet.style.width = `${this.side + matrix.columns * this.wide}px`;
    this.sheet.style.height = `${(matrix.rows + 1) * HIGH}px`;
    this.root.style.setProperty("--side", `${this.side}px`);
    this.root.style.setProperty("--wide", `${this.wide}px`);
    this.root.addEventListener("scroll", () => this.later(), { passive: true });
    this.root.addEventListener("keydown", (event) => this.onKey(event));
    this.root.addEventListener("pointerover", (event) => this.onPoint(event));
    this.root.addEventListener("pointerleave", () => (this.light(...this.at), this.onLook(null)));
    this.root.addEventListener("focusin", (event) => this.onFocus(event));
    new ResizeObserver(() => this.later()).observe(this.root);
    this.draw();
  }

  longestLabel() {
    let longest = this.matrix.corner.length;
    for (let i = 0; i < Math.min(this.matrix.rows, 200); i++) longest = Math.max(longest, this.matrix.rowLabel(i).length);
    return longest;
  }

  later() {
    this.waiting ??= requestAnimationFrame(() => {
      this.waiting = undefined;
      this.draw();
    });
  }

  // What is in sight, and the cell that the tab key goes to.
  window() {
    const { rows, columns } = this.matrix;
    if (rows * columns <= ALL) return [0, rows, 0, columns];
    const high = this.root.clientHeight || 400, wide = this.root.clientWidth || 800;
    return [
      Math.max(0, Math.floor(this.root.scrollTop / HIGH) - MARGIN),
      Math.min(rows, Math.ceil((this.root.scrollTop + high) / HIGH) + MARGIN),
      Math.max(0, Math.floor(this.root.scrollLeft / this.wide) - MARGIN),
      Math.min(columns, Math.ceil((this.root.scrollLeft + wide) / this.wide) + MARGIN),
    ];
  }

  draw() {
    const [top, bottom, left, right] = this.window();
    const wantedRow = (i) => (i >= top && i < bottom) || i === this.at[0];
    for (const [i, made] of this.rows) {
      if (wantedRow(i)) continue;
      made.root.remove();
      this.rows.delete(i);
    }
    this.drawNames(left, right);
    for (let i = top; i < bottom; i++) this.drawRow(i, left, right);
    if (this.at[0] < top || this.at[0] >= bottom) this.drawRow(this.at[0], left, right);
  }

  drawNames(left, right) {
    for (const [j, made] of this.heads) if (j < left || j >= right) (made.remove(), this.heads.delete(j));
    for (let j = left; j < right; j++) {
      if (this.heads.has(j)) continue;
      const text = this.matrix.columnLabel(j);
      const made = element("div", { role: "columnheader", class: "name", dir: "auto", title: text, "aria-colindex": j + 2 }, text);
      made.style.left = `${this.side + j * this.wide}px`;
      this.heads.set(j, made);
      this.head.append(made);
    }
  }

  drawRow(i, left, right) {
    let made = this.rows.get(i);
    if (made === undefined) {
      const text = this.matrix.rowLabel(i);
      made = { root: element("div", { class: "row", role: "row", "aria-rowindex": i + 2 }), cells: new Map() };
      made.root.append(element("div", { role: "rowheader", class: "name", dir: "auto", title: text, "aria-colindex": 1 }, text));
      made.root.style.top = `${(i + 1) * HIGH}px`;
      this.rows.set(i, made);
      this.sheet.append(made.root);
    }
    const kept = (j) => (j >= left && j < right) || (i === this.at[0] && j === this.at[1]);
    for (const [j, cell] of made.cells) if (!kept(j)) (cell.remove(), made.cells.delete(j));
    for (let j = left; j < right; j++) if (!made.cells.has(j)) this.drawCell(made, i, j);
    if (i === this.at[0] && !made.cells.has(this.at[1])) this.drawCell(made, i, this.at[1]);
  }

  drawCell(made, i, j) {
    const value = this.matrix.value(i, j), hidden = this.matrix.hidden(i, j), share = this.matrix.share(value);
    const own = i === this.at[0] && j === this.at[1];
    const cell = element("div", {
      role: "gridcell", class: `cell${hidden ? " hidden" : share < 0 ? " minus" : ""}`,
      tabindex: own ? 0 : -1, "aria-colindex": j + 2, "data-at": `${i},${j}`,
      "aria-label": hidden ? `${figure(value)}, hidden by the mask` : null,
    }, figure(value));
    if (!hidden) cell.style.setProperty("--share", Math.abs(share).toFixed(3));
    cell.style.left = `${this.side + j * this.wide}px`;
    made.cells.set(j, cell);
    made.root.append(cell);
  }

  cell(i, j) {
    return this.rows.get(i)?.cells.get(j);
  }

  // Moves the one cell that the tab key reaches, and brings it into sight.
  go(i, j, focus = true) {
    this.cell(...this.at)?.setAttribute("tabindex", "-1");
    this.at = [i, j];
    this.reveal(i, j);
    this.draw();
    const cell = this.cell(i, j);
    cell.tabIndex = 0;
    if (!focus) return;
    cell.focus({ preventScroll: true });
    cell.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  reveal(i, j) {
    const high = this.root.clientHeight - HIGH, wide = this.root.clientWidth - this.side;
    const top = i * HIGH, left = j * this.wide;
    if (top < this.root.scrollTop) this.root.scrollTop = top;
    else if (top + HIGH > this.root.scrollTop + high) this.root.scrollTop = top + HIGH - high;
    if (left < this.root.scrollLeft) this.root.scrollLeft = left;
    else if (left + this.wide > this.root.scrollLeft + wide) this.root.scrollLeft = left + this.wide - wide;
  }

  // The names of a cell's row and column stand out while it is looked at.
  light(i, j) {
    this.lit?.forEach((name) => name.classList.remove("lit"));
    this.lit = [this.rows.get(i)?.root.firstChild, this.heads.get(j)].filter(Boolean);
    this.lit.forEach((name) => name.classList.add("lit"));
  }

  onKey(event) {
    const page = Math.max(1, Math.floor(this.root.clientHeight / HIGH) - 2);
    const to = moved(event, this.at, this.matrix, page);
    if (to === undefined) return;
    event.preventDefault();
    this.go(...to);
  }

  onPoint(event) {
    const place = event.target.closest("[data-at]")?.dataset.at;
    if (place === undefined) return;
    const [i, j] = place.split(",").map(Number);
    this.light(i, j);
    this.onLook(this.matrix, i, j, false);
  }

  onFocus(event) {
    const place = event.target.closest("[data-at]")?.dataset.at;
    if (place === undefined) return;
    const [i, j] = place.split(",").map(Number);
    if (i !== this.at[0] || j !== this.at[1]) this.go(i, j, false);
    this.light(i, j);
    this.onLook(this.matrix, i, j, true);
  }
}
