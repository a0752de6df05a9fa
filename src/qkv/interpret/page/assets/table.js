// A matrix as an ARIA grid of numbers. Only the cells in sight are in the document (a virtual
// list), but the keyboard reaches all of them.

import { digitWidth, element } from "./dom.js";

const ROW_HEIGHT = 30; // pixels
const MAX_CELLS = 1600; // up to so many cells are all drawn at once
const MARGIN = 3; // rows and columns drawn beyond the edge

export function tableHeight(rows) {
  return Math.min(480, (rows + 1) * ROW_HEIGHT + 2);
}

export class Table {
  // onLook(matrix, i, j, isFocus): a cell is pointed at, or has the focus; onLook(null): neither.
  constructor(matrix, name, onLook) {
    this.matrix = matrix;
    this.onLook = onLook;
    this.current = [0, 0]; // the cell that the tab key reaches
    this.rows = new Map();
    this.columnHeaders = new Map();
    this.cellWidth = Math.max(56, 16 + Math.ceil(digitWidth() * matrix.widest));
    this.headerWidth = Math.min(innerWidth < 600 ? 96 : 150, 22 + 7 * this.longestLabel());
    this.build(name);
    this.listen();
    this.draw();
  }

  build(name) {
    const { rows, columns, corner } = this.matrix;
    this.root = element("div", {
      class: "heat", role: "grid", "aria-label": name, "aria-readonly": "true",
      "aria-rowcount": rows + 1, "aria-colcount": columns + 1,
    });
    this.sheet = element("div", { class: "sheet", role: "rowgroup" });
    this.headerRow = element("div", { class: "row names", role: "row", "aria-rowindex": 1 });
    this.headerRow.append(element("div", { class: "corner", role: "columnheader", "aria-colindex": 1 }, corner));
    this.sheet.append(this.headerRow);
    this.root.append(this.sheet);
    this.sheet.style.width = `${this.headerWidth + columns * this.cellWidth}px`;
    this.sheet.style.height = `${(rows + 1) * ROW_HEIGHT}px`;
    this.root.style.setProperty("--header-width", `${this.headerWidth}px`);
    this.root.style.setProperty("--cell-width", `${this.cellWidth}px`);
  }

  listen() {
    this.root.addEventListener("scroll", () => this.scheduleDraw(), { passive: true });
    this.root.addEventListener("keydown", (event) => this.onKey(event));
    this.root.addEventListener("pointerover", (event) => this.onPointer(event));
    this.root.addEventListener("pointerleave", () => {
      this.highlight(...this.current);
      this.onLook(null);
    });
    this.root.addEventListener("focusin", (event) => this.onFocus(event));
    new ResizeObserver(() => this.scheduleDraw()).observe(this.root);
  }

  longestLabel() {
    let longest = this.matrix.corner.length;
    for (let i = 0; i < Math.min(this.matrix.rows, 200); i++) longest = Math.max(longest, this.matrix.rowLabel(i).length);
    return longest;
  }

  scheduleDraw() {
    this.scheduled ??= requestAnimationFrame(() => {
      this.scheduled = undefined;
      this.draw();
    });
  }

  // The rows and columns in sight: [top, bottom, left, right], ends exclusive.
  visibleRange() {
    const { rows, columns } = this.matrix;
    if (rows * columns <= MAX_CELLS) return [0, rows, 0, columns];
    const { scrollTop, scrollLeft } = this.root;
    const height = this.root.clientHeight || 400, width = this.root.clientWidth || 800;
    return [
      Math.max(0, Math.floor(scrollTop / ROW_HEIGHT) - MARGIN),
      Math.min(rows, Math.ceil((scrollTop + height) / ROW_HEIGHT) + MARGIN),
      Math.max(0, Math.floor(scrollLeft / this.cellWidth) - MARGIN),
      Math.min(columns, Math.ceil((scrollLeft + width) / this.cellWidth) + MARGIN),
    ];
  }

  draw() {
    const [top, bottom, left, right] = this.visibleRange();
    const [currentRow] = this.current;
    for (const [i, row] of this.rows) {
      if ((i >= top && i < bottom) || i === currentRow) continue;
      row.root.remove();
      this.rows.delete(i);
    }
    this.drawHeaders(left, right);
    for (let i = top; i < bottom; i++) this.drawRow(i, left, right);
    if (currentRow < top || currentRow >= bottom) this.drawRow(currentRow, left, right);
  }

  drawHeaders(left, right) {
    for (const [j, header] of this.columnHeaders) {
      if (j >= left && j < right) continue;
      header.remove();
      this.columnHeaders.delete(j);
    }
    for (let j = left; j < right; j++) {
      if (this.columnHeaders.has(j)) continue;
      const text = this.matrix.columnLabel(j);
      const header = element("div", { role: "columnheader", class: "name", dir: "auto", title: text, "aria-colindex": j + 2 }, text);
      header.style.left = `${this.headerWidth + j * this.cellWidth}px`;
      this.columnHeaders.set(j, header);
      this.headerRow.append(header);
    }
  }

  drawRow(i, left, right) {
    const row = this.rows.get(i) ?? this.createRow(i);
    const isCurrent = (j) => i === this.current[0] && j === this.current[1];
    for (const [j, cell] of row.cells) {
      if ((j >= left && j < right) || isCurrent(j)) continue;
      cell.remove();
      row.cells.delete(j);
    }
    for (let j = left; j < right; j++) if (!row.cells.has(j)) this.drawCell(row, i, j);
    if (i === this.current[0] && !row.cells.has(this.current[1])) this.drawCell(row, i, this.current[1]);
  }

  createRow(i) {
    const text = this.matrix.rowLabel(i);
    const row = { root: element("div", { class: "row", role: "row", "aria-rowindex": i + 2 }), cells: new Map() };
    row.root.append(element("div", { role: "rowheader", class: "name", dir: "auto", title: text, "aria-colindex": 1 }, text));
    row.root.style.top = `${(i + 1) * ROW_HEIGHT}px`;
    this.rows.set(i, row);
    this.sheet.append(row.root);
    return row;
  }

  drawCell(row, i, j) {
    const value = this.matrix.value(i, j), isMasked = this.matrix.masked(i, j), shade = this.matrix.shade(value);
    const text = this.matrix.text(i, j);
    const isCurrent = i === this.current[0] && j === this.current[1];
    const cell = element("div", {
      role: "gridcell", class: `cell${isMasked ? " hidden" : shade < 0 ? " minus" : ""}${this.matrix.wrong?.(i, j) ? " wrong" : ""}`,
      tabindex: isCurrent ? 0 : -1, "aria-colindex": j + 2, "data-at": `${i},${j}`,
      "aria-label": isMasked ? `${text}, hidden by the mask` : null,
    }, text);
    if (!isMasked) cell.style.setProperty("--strength", Math.abs(shade).toFixed(3));
    cell.style.left = `${this.headerWidth + j * this.cellWidth}px`;
    row.cells.set(j, cell);
    row.root.append(cell);
  }

  cell(i, j) {
    return this.rows.get(i)?.cells.get(j);
  }

  // Makes this the cell that the tab key reaches, and scrolls it into sight.
  moveTo(i, j, focus = true) {
    this.cell(...this.current)?.setAttribute("tabindex", "-1");
    this.current = [i, j];
    this.scrollTo(i, j);
    this.draw();
    const cell = this.cell(i, j);
    cell.tabIndex = 0;
    if (!focus) return;
    cell.focus({ preventScroll: true });
    cell.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  scrollTo(i, j) {
    const height = this.root.clientHeight - ROW_HEIGHT, width = this.root.clientWidth - this.headerWidth;
    const top = i * ROW_HEIGHT, left = j * this.cellWidth;
    if (top < this.root.scrollTop) this.root.scrollTop = top;
    else if (top + ROW_HEIGHT > this.root.scrollTop + height) this.root.scrollTop = top + ROW_HEIGHT - height;
    if (left < this.root.scrollLeft) this.root.scrollLeft = left;
    else if (left + this.cellWidth > this.root.scrollLeft + width) this.root.scrollLeft = left + this.cellWidth - width;
  }

  // Highlights the headers of a cell's row and column.
  highlight(i, j) {
    this.highlighted?.forEach((header) => header.classList.remove("lit"));
    this.highlighted = [this.rows.get(i)?.root.firstChild, this.columnHeaders.get(j)].filter(Boolean);
    this.highlighted.forEach((header) => header.classList.add("lit"));
  }

  onKey(event) {
    const target = cellAfterKey(event, this.current, this.matrix, Math.max(1, Math.floor(this.root.clientHeight / ROW_HEIGHT) - 2));
    if (target === undefined) return;
    event.preventDefault();
    this.moveTo(...target);
  }

  onPointer(event) {
    const index = cellIndex(event.target);
    if (index === undefined) return;
    this.highlight(...index);
    this.onLook(this.matrix, ...index, false);
  }

  onFocus(event) {
    const index = cellIndex(event.target);
    if (index === undefined) return;
    if (index[0] !== this.current[0] || index[1] !== this.current[1]) this.moveTo(...index, false);
    this.highlight(...index);
    this.onLook(this.matrix, ...index, true);
  }
}

function cellIndex(target) {
  return target.closest("[data-at]")?.dataset.at.split(",").map(Number);
}

// The cell that a key moves to from [i, j]; undefined for other keys. page: rows in sight.
function cellAfterKey({ key, ctrlKey, altKey, metaKey }, [i, j], { rows, columns }, page) {
  if (altKey || metaKey) return undefined;
  const target = {
    ArrowUp: [i - 1, j], ArrowDown: [i + 1, j], ArrowLeft: [i, j - 1], ArrowRight: [i, j + 1],
    Home: [ctrlKey ? 0 : i, 0], End: [ctrlKey ? rows - 1 : i, columns - 1],
    PageUp: [i - page, j], PageDown: [i + page, j],
  }[key];
  return target && [clamp(target[0], rows), clamp(target[1], columns)];
}

function clamp(index, count) {
  return Math.max(0, Math.min(count - 1, index));
}
