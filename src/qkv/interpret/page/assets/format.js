// Numbers as text, formatted as the rest of the program does, so that both can be compared.

export const DECIMALS = 4;

// Rounded half away from zero; a real minus sign, none before zero; −∞, ∞ and NaN as such.
export function figure(value, decimals = DECIMALS) {
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value < 0 ? "−∞" : "∞";
  if (Math.abs(value) >= 1e6) return value.toExponential(decimals).replaceAll("-", "−");
  const text = round(value, decimals).toFixed(decimals);
  return (Number(text) === 0 ? text.replace("-", "") : text).replace("-", "−");
}

// The figure in parentheses if it is negative, for use after × or +.
export function signed(value, decimals = DECIMALS) {
  const text = figure(value, decimals);
  return text.startsWith("−") ? `(${text})` : text;
}

// The fewest digits that tell this float32 from its neighbours.
export function allDigits(value) {
  if (!Number.isFinite(value)) return figure(value);
  for (let digits = 1; digits < 10; digits++) {
    const text = value.toPrecision(digits);
    if (Math.fround(Number(text)) === Math.fround(value)) return String(Number(text)).replaceAll("-", "−");
  }
  return String(value).replaceAll("-", "−");
}

export function percent(fraction) {
  if (Number.isNaN(fraction)) return "NaN";
  const value = 100 * fraction;
  return `${value < 9.95 && value > 0 ? value.toFixed(1) : value.toFixed(0)} %`;
}

export function round(value, decimals = DECIMALS) {
  const scaled = Math.abs(value) * 10 ** decimals;
  if (!(scaled < 1e15)) return value; // beyond the integers that a float64 holds exactly
  return (Math.sign(value) * Math.floor(scaled + 0.5 + 1e-7)) / 10 ** decimals;
}

export function count(number, noun, plural = `${noun}s`) {
  return `${number} ${number === 1 ? noun : plural}`;
}
