// The numbers held against each other, here and now: whatever does not agree turns red.

import { byId, element } from "./elements.js";
import { held } from "./payload.js";
import { CHECKS } from "./proofs.js";

const SLICE = 10; // milliseconds of work before the page may do something else

// Runs every check a little at a time, and fills the panel as they end.
export async function runChecks() {
  const all = CHECKS.map(({ name, sentence }) => ({ name, sentence, ok: null, worst: 0, cases: 0 }));
  const own = held.checks.map((check) => ({ ...check, from: "trace" }));
  const draw = () => byId("checks-list").replaceChildren(...all.filter((each) => each.ok !== null).map(line));
  byId("checks-before").replaceChildren(...own.map(line));
  summary(own, false);
  for (const [at, check] of CHECKS.entries()) {
    await work(all[at], check);
    draw();
  }
  summary([...all, ...own], true);
}

async function work(result, check) {
  let rested = performance.now();
  try {
    for (const { worst, tolerance, place } of check.cases()) {
      result.cases += 1;
      if (!(worst <= tolerance) && result.ok !== false) Object.assign(result, { ok: false, worst, tolerance, place });
      if (result.ok !== false && worst >= result.worst) Object.assign(result, { worst, tolerance });
      if (performance.now() - rested > SLICE) {
        await new Promise((go) => setTimeout(go));
        rested = performance.now();
      }
    }
  } catch (problem) {
    Object.assign(result, { ok: false, worst: NaN, place: `a tensor cannot be read: ${problem.message}` });
  }
  if (result.cases && result.ok === null) result.ok = true;
}

function line({ name, sentence, ok, worst, tolerance, place, cases, from }) {
  const mark = element("span", { class: "mark" }, ok ? "✓" : "✗", element("span", { class: "unseen" }, ok ? " holds" : " fails"));
  const found = Number.isFinite(worst) && tolerance !== 0 ? `off by ${brief(worst)} ${ok ? "at most" : "there"}${tolerance === undefined || tolerance === null ? "" : `, ${brief(tolerance)} allowed`}` : "";
  const where = ok || !place ? null : element("p", { class: "where" }, `first at ${place}`);
  const detail = from ? "" : `${sentence}; ${cases} ${cases === 1 ? "time" : "times"}`;
  return element("li", { class: ok ? "holds" : "fails" }, mark, element("div", {}, element("strong", {}, name), where, element("p", { class: "muted" }, [detail, found].filter(Boolean).join(" · "))));
}

function summary(results, done) {
  const failed = results.filter((each) => each.ok === false);
  const held_ = results.filter((each) => each.ok === true).length;
  const place = byId("checks-summary");
  const text = failed.length ? `✗ ${failed.length} of ${failed.length + held_} checks fail` : done ? `✓ all ${held_} checks hold` : "… checking";
  place.textContent = text;
  place.className = failed.length ? "fails" : done ? "holds" : "";
  place.dataset.done = String(done);
  const badge = byId("checks-badge");
  badge.textContent = text;
  badge.className = `chip ${place.className}`;
  byId("checks").classList.toggle("red", failed.length > 0);
}

function brief(number) {
  return number === 0 ? "0" : number.toExponential(1).replace("-", "−");
}
