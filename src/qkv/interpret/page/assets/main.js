// Builds the page.

import { runChecks } from "./checks.js";
import { byId } from "./dom.js";
import { drawHeadLists, drawHeads, markHead } from "./heads.js";
import { clearInspector } from "./inspector.js";
import { showOutput } from "./output.js";
import { payload } from "./payload.js";
import { buildAllTables, showLayer, showOuterSteps } from "./steps.js";

function selectHead(attention, head) {
  markHead(attention, head);
  showLayer(attention, head);
}

// From the grid of heads: also scrolls to the steps.
function openHead(attention, head) {
  selectHead(attention, head);
  const isStill = matchMedia("(prefers-reduced-motion: reduce)").matches;
  byId("layer").scrollIntoView({ behavior: isStill ? "auto" : "smooth" });
  byId("layer-title").focus({ preventScroll: true });
}

document.documentElement.classList.add("scripted");
showOutput();
if (payload.attentions.length) {
  const [attention, head] = payload.first;
  drawHeads(openHead);
  drawHeadLists(selectHead);
  selectHead(payload.attentions[attention], head);
} else {
  for (const id of ["heads", "layer"]) byId(id).remove();
}
showOuterSteps(byId("outer"));
byId("close").addEventListener("click", clearInspector);
document.addEventListener("keydown", (event) => event.key === "Escape" && clearInspector());
window.addEventListener("beforeprint", buildAllTables);
runChecks();
