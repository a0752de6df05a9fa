// Choosing another layer or head without going back to the grid.

import { byId, element } from "./elements.js";
import { held } from "./payload.js";

// Lists of kinds, layers and heads; choose(attention, head) is called for another choice.
export function drawSwitcher(choose) {
  const kinds = [...new Set(held.attentions.map((each) => each.kind))];
  const lists = { kind: list("kind"), layer: list("layer"), head: list("head") };
  const picked = () => {
    const same = held.attentions.filter((each) => each.kind === lists.kind.value);
    const attention = same.find((each) => each.layer === Number(lists.layer.value)) ?? same[0];
    choose(attention, Math.min(Number(lists.head.value), attention.heads - 1));
  };
  for (const each of Object.values(lists)) each.addEventListener("change", picked);
  fill(lists.kind, kinds.map((kind) => [kind, kind]));
  byId("switcher").append(...(kinds.length > 1 ? [named("attention", lists.kind)] : []), named("layer", lists.layer), named("head", lists.head));
}

// Shows what is chosen now.
export function markSwitcher(attention, head) {
  const same = held.attentions.filter((each) => each.kind === attention.kind);
  fill(byId("choose-layer"), same.map((each) => [each.layer, each.layer]));
  fill(byId("choose-head"), Array.from({ length: attention.heads }, (_, at) => [at, at]));
  if (byId("choose-kind")) byId("choose-kind").value = attention.kind;
  byId("choose-layer").value = attention.layer;
  byId("choose-head").value = head;
}

function list(name) {
  return element("select", { id: `choose-${name}` });
}

function named(name, control) {
  return element("span", {}, element("label", { for: control.id }, name), " ", control);
}

function fill(control, options) {
  control.replaceChildren(...options.map(([value, text]) => element("option", { value }, String(text))));
}
