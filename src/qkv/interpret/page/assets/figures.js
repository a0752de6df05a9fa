// How numbers are written: as the rest of the program writes them, so that both can be compared.

export const DECIMALS = 4;

// Rounded as at school, a half away from zero; −∞ as such, a real minus sign, none before zero.
export function figure(value, decimals = DECIMALS) {
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value < 0 ? "−∞" : "∞";
  if (Math.abs(value) >= 1e6) return value.toExponential(decimals).replaceAll("-", "−");
  const text = school(value, decimals).toFixed(decimals);
  return (Number(text) === 0 ? text.replace("-", "") : text).replace("-", "−");
}

// The figure in brackets if a minus sign stands before it, for use after × or +.
export function signed(value, decimals = DECIMALS) {
  const text = figure(value, decimals);
  return text.startsWith("−") ? `(${text})` : text;
}

// Every digit that tells this float32 from its neighbours.
export function allDigits(value) {
  if (!Number.isFinite(value)) return figure(value);
  for (let digits = 1; digits < 10; digits++) {
    const text = value.toPrecision(digits);
    if (Math.fround(Number(text)) === Math.fround(value)) return String(Number(text)).replaceAll("-", "−");
  }
  return String(value).replaceAll("-", "−");
}

export function percent(share) {
  if (Number.isNaN(share)) return "NaN";
  const shown = 100 * share;
  return `${shown < 9.95 && shown > 0 ? shown.toFixed(1) : shown.toFixed(0)} %`;
}

export function school(value, decimals = DECIMALS) {
  const scaled = Math.abs(value) * 10 ** decimals;
  if (!(scaled < 1e15)) return value;
  return (Math.sign(value) * Math.floor(scaled + 0.5 + 1e-7)) / 10 ** decimals;
}

export function count(number, noun, plural = `${noun}s`) {
  return `${number} ${number === 1 ? noun : plural}`;
}
