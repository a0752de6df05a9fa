// Making elements. Text only ever becomes text: nothing here reads markup.

export function element(tag, given = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(given)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") made.className = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

// A piece of somebody's text: set apart, and free to run from right to left.
export function quoted(text, tag = "bdi", kind = "token") {
  return element(tag, { class: kind, dir: "auto" }, text);
}

export function byId(id) {
  return document.getElementById(id);
}

// One stop of the tab key for a group of elements; arrows, Home and End move within it.
export function roving(root, buttons, across) {
  const go = (to) => {
    buttons.forEach((button, at) => (button.tabIndex = at === to ? 0 : -1));
    buttons[to].focus();
  };
  root.addEventListener("keydown", (event) => {
    const at = buttons.indexOf(event.target);
    const to = at < 0 || event.ctrlKey || event.metaKey || event.altKey ? undefined : target(event.key, at, buttons.length, across);
    if (to === undefined) return;
    event.preventDefault();
    go(Math.max(0, Math.min(buttons.length - 1, to)));
  });
}

function target(key, at, length, across) {
  const rowStart = at - (at % across);
  return {
    ArrowRight: at + 1,
    ArrowLeft: at - 1,
    ArrowDown: at + across < length ? at + across : at,
    ArrowUp: at - across >= 0 ? at - across : at,
    Home: rowStart,
    End: Math.min(rowStart + across, length) - 1,
    PageUp: at % across,
    PageDown: length - across + (at % across),
  }[key];
}
