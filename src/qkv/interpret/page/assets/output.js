// What the model answered: the likeliest tokens after each position, the labels, or the vector.

import { byId, element, quoted, roving } from "./elements.js";
import { figure, percent } from "./figures.js";
import { inspect } from "./inspector.js";
import { matrix } from "./matrix.js";
import { held } from "./payload.js";
import { Table } from "./table.js";

export function showOutput() {
  const { output } = held;
  const root = byId("output");
  if (!output) return root.remove();
  byId("output-title").textContent = output.title;
  root.append(element("p", { class: "lead" }, output.sentence));
  if (output.positions) root.append(...byPosition(output));
  if (output.vector) root.append(new Table(matrix(output.vector, null), "the vector", inspect).root);
  return root;
}

// A strip of positions; the chosen one shows what was likeliest there.
function byPosition(output) {
  const list = element("div", { class: "likeliest", role: "region", "aria-label": "The likeliest answers", "aria-live": "polite" });
  if (output.positions.length === 1) {
    show(list, output.positions[0], output);
    return [list];
  }
  const strip = element("div", { class: output.positions.length > 40 ? "strip long" : "strip", role: "group", "aria-label": "Positions of the text" });
  const buttons = output.positions.map((position) => {
    const best = position.best[0];
    return element("button", { type: "button", tabindex: -1, "aria-pressed": "false", onclick: () => pick(position) },
      quoted(position.token), element("span", { class: "then" }, element("span", { "aria-hidden": "true" }, "→ "), quoted(best.name), ` ${percent(Number(best.probability))}`));
  });
  const pick = (position) => {
    const at = output.positions.indexOf(position);
    buttons.forEach((button, other) => {
      button.setAttribute("aria-pressed", String(other === at));
      button.tabIndex = other === at ? 0 : -1;
    });
    show(list, position, output);
  };
  strip.append(...buttons);
  roving(strip, buttons, buttons.length);
  pick(output.positions.at(-1));
  requestAnimationFrame(() => (strip.scrollLeft = strip.scrollWidth));
  return [strip, list];
}

function show(list, position, output) {
  const rows = position.best.map(({ name, ...numbers }) => {
    const [probability, score] = [Number(numbers.probability), Number(numbers.score)];
    const bar = element("span", { class: "bar", "aria-hidden": "true" });
    bar.style.setProperty("--share", Math.max(0, probability).toFixed(4));
    return element("tr", {}, element("th", { scope: "row" }, quoted(name)), element("td", {}, figure(probability)), element("td", {}, figure(score)), element("td", { class: "bars" }, bar));
  });
  const said = position.token === null ? "" : element("p", { class: "muted" }, output.after, " “", quoted(position.token), "”");
  const head = ["answer", "probability", "score"].map((name) => element("th", { scope: "col" }, name));
  list.replaceChildren(said, element("table", { class: "answers" },
    element("caption", { class: "unseen" }, "Likeliest first"),
    element("thead", {}, element("tr", {}, ...head, element("td", {}))), element("tbody", {}, ...rows)));
}
