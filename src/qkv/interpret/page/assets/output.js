// The model's prediction: the most probable tokens at each position, the labels, or the vector.

import { byId, element, quoted, rovingFocus } from "./dom.js";
import { figure, percent } from "./format.js";
import { inspect } from "./inspector.js";
import { fullMatrix } from "./matrix.js";
import { payload } from "./payload.js";
import { Table } from "./table.js";

export function showOutput() {
  const { output } = payload;
  const root = byId("output");
  if (!output) {
    root.remove();
    return;
  }
  byId("output-title").textContent = output.title;
  root.append(element("p", { class: "lead" }, output.sentence));
  if (output.positions) root.append(...predictionList(output));
  if (output.vector) root.append(new Table(fullMatrix(output.vector, null), "the vector", inspect).root);
}

// A strip of positions; the selected one shows its most probable tokens.
function predictionList(output) {
  const { positions } = output;
  const list = element("div", { class: "likeliest", role: "region", "aria-label": "The likeliest answers", "aria-live": "polite" });
  if (positions.length === 1) {
    showPredictions(list, positions[0], output);
    return [list];
  }
  const strip = element("div", { class: positions.length > 40 ? "strip long" : "strip", role: "group", "aria-label": "Positions of the text" });
  const buttons = positions.map((position, index) => positionButton(position, () => select(index)));
  const select = (index) => {
    buttons.forEach((button, other) => {
      button.setAttribute("aria-pressed", String(other === index));
      button.tabIndex = other === index ? 0 : -1;
    });
    showPredictions(list, positions[index], output);
  };
  strip.append(...buttons);
  rovingFocus(strip, buttons, buttons.length);
  select(positions.length - 1);
  requestAnimationFrame(() => (strip.scrollLeft = strip.scrollWidth));
  return [strip, list];
}

function positionButton({ token, best: [top] }, onclick) {
  return element("button", { type: "button", tabindex: -1, "aria-pressed": "false", onclick },
    quoted(token),
    element("span", { class: "then" }, element("span", { "aria-hidden": "true" }, "→ "), quoted(top.name), ` ${percent(Number(top.probability))}`));
}

function showPredictions(list, position, output) {
  const rows = position.best.map((each) => {
    const probability = Number(each.probability), logit = Number(each.logit);
    const bar = element("span", { class: "bar", "aria-hidden": "true" });
    bar.style.setProperty("--fraction", Math.max(0, probability).toFixed(4));
    return element("tr", {}, element("th", { scope: "row" }, quoted(each.name)), element("td", {}, figure(probability)), element("td", {}, figure(logit)), element("td", { class: "bars" }, bar));
  });
  const caption = position.token === null ? "" : element("p", { class: "muted" }, output.after, " “", quoted(position.token), "”");
  const headers = ["answer", "probability", "score"].map((name) => element("th", { scope: "col" }, name));
  list.replaceChildren(caption, element("table", { class: "answers" },
    element("caption", { class: "unseen" }, "Likeliest first"),
    element("thead", {}, element("tr", {}, ...headers, element("td", {}))), element("tbody", {}, ...rows)));
}
