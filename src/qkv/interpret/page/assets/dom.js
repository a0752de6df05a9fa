// Creating elements and moving the focus. Text only ever becomes text: nothing here parses markup.

export function element(tag, attributes = {}, ...children) {
  const created = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") created.className = value;
    else if (name.startsWith("on")) created.addEventListener(name.slice(2), value);
    else created.setAttribute(name, value === true ? "" : String(value));
  }
  created.append(...children.filter((child) => child !== null && child !== undefined));
  return created;
}

// A piece of the user's text, isolated from its surroundings: it may run from right to left.
export function quoted(text, tag = "bdi", kind = "token") {
  return element(tag, { class: kind, dir: "auto" }, text);
}

export function byId(id) {
  return document.getElementById(id);
}

// Roving tabindex: one tab stop for a group of buttons; arrows, Home and End move within it.
export function rovingFocus(root, buttons, columns) {
  root.addEventListener("keydown", (event) => {
    const index = buttons.indexOf(event.target);
    if (index < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    const target = buttonAfterKey(event.key, index, buttons.length, columns);
    if (target === undefined) return;
    event.preventDefault();
    const next = Math.max(0, Math.min(buttons.length - 1, target));
    buttons.forEach((button, i) => (button.tabIndex = i === next ? 0 : -1));
    buttons[next].focus();
  });
}

function buttonAfterKey(key, index, count, columns) {
  const rowStart = index - (index % columns);
  return {
    ArrowRight: index + 1,
    ArrowLeft: index - 1,
    ArrowDown: index + columns < count ? index + columns : index,
    ArrowUp: index - columns >= 0 ? index - columns : index,
    Home: rowStart,
    End: Math.min(rowStart + columns, count) - 1,
    PageUp: index % columns,
    PageDown: count - columns + (index % columns),
  }[key];
}

// The width of one digit in a table, in pixels.
let measuredDigit = 0;
export function digitWidth() {
  if (measuredDigit === 0) {
    const probe = element("span", { class: "heat probe" }, "0".repeat(20));
    document.body.append(probe);
    measuredDigit = probe.getBoundingClientRect().width / 20;
    probe.remove();
  }
  return measuredDigit;
}
