// Puts the page together.

import { drawHeads, markHead } from "./heads.js";
import { fillAll, showEnds, showLayer } from "./steps.js";
import { drawSwitcher, markSwitcher } from "./switcher.js";
import { showOutput } from "./output.js";
import { runChecks } from "./checks.js";
import { forget } from "./inspector.js";
import { byId } from "./elements.js";
import { held } from "./payload.js";

function choose(attention, head, look = true) {
  markHead(attention, head);
  markSwitcher(attention, head);
  showLayer(attention, head);
  if (!look) return;
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  byId("layer").scrollIntoView({ behavior: still ? "auto" : "smooth" });
  byId("layer-title").focus({ preventScroll: true });
}

document.documentElement.classList.add("scripted");
showOutput();
if (held.attentions.length) {
  drawHeads(choose);
  drawSwitcher((attention, head) => choose(attention, head, false));
  choose(held.attentions[held.first[0]], held.first[1], false);
} else {
  for (const id of ["heads", "layer"]) byId(id).remove();
}
showEnds(byId("ends"));
byId("close").addEventListener("click", forget);
document.addEventListener("keydown", (event) => event.key === "Escape" && forget());
window.addEventListener("beforeprint", fillAll);
runChecks();
