// Values and times as text. Values are integers of any size, and all digits are computed from integers.

export type ZoneName = "local" | "utc";

interface UnitScale {
  readonly suffix: string;
  /** Size of the unit in its smallest one. */
  readonly size: bigint;
}

const TIME_SCALES: readonly UnitScale[] = [
  { suffix: "ns", size: 1n },
  { suffix: "µs", size: 1_000n },
  { suffix: "ms", size: 1_000_000n },
  { suffix: "s", size: 1_000_000_000n },
  { suffix: "min", size: 60_000_000_000n },
  { suffix: "h", size: 3_600_000_000_000n },
  { suffix: "d", size: 86_400_000_000_000n },
];

const BYTE_SCALES: readonly UnitScale[] = [
  { suffix: "B", size: 1n },
  { suffix: "kB", size: 1_000n },
  { suffix: "MB", size: 1_000_000n },
  { suffix: "GB", size: 1_000_000_000n },
  { suffix: "TB", size: 1_000_000_000_000n },
  { suffix: "PB", size: 1_000_000_000_000_000n },
  { suffix: "EB", size: 1_000_000_000_000_000_000n },
];

const COUNT_SCALES: readonly UnitScale[] = [
  { suffix: "", size: 1n },
  { suffix: "k", size: 1_000n },
  { suffix: "M", size: 1_000_000n },
  { suffix: "G", size: 1_000_000_000n },
  { suffix: "T", size: 1_000_000_000_000n },
  { suffix: "P", size: 1_000_000_000_000_000n },
  { suffix: "E", size: 1_000_000_000_000_000_000n },
];

/** Factor from a unit to the smallest one of its scale. */
const UNIT_FACTORS: ReadonlyMap<string, readonly [scales: readonly UnitScale[], factor: bigint]> = new Map(
  Object.entries<readonly [scales: readonly UnitScale[], factor: bigint]>({
    nanoseconds: [TIME_SCALES, 1n],
    microseconds: [TIME_SCALES, 1_000n],
    milliseconds: [TIME_SCALES, 1_000_000n],
    seconds: [TIME_SCALES, 1_000_000_000n],
    bytes: [BYTE_SCALES, 1n],
    kilobytes: [BYTE_SCALES, 1_000n],
    megabytes: [BYTE_SCALES, 1_000_000n],
  }),
);

const SIGNIFICANT_DIGITS = 3;

/** Writes a value in its natural unit with three significant digits: `1.24 s`, `12.4 MB`, `1.53 M`. */
export function formatValue(value: bigint, unit: string): string {
  const [scales, factor] = UNIT_FACTORS.get(unit) ?? [COUNT_SCALES, 1n];
  const scaled = value * factor;
  const size = scaled < 0n ? -scaled : scaled;
  let index = scales.length - 1;
  while (index > 0 && size < (scales[index]?.size ?? 1n)) index--;
  let text = formatRatio(scaled, scales[index]?.size ?? 1n);
  const next = scales[index + 1];
  // Rounding may reach the next unit: 999.9 kB is 1 MB.
  const reached = BigInt(text.replace(/[-.].*$|^-/g, "") || "0") * (scales[index]?.size ?? 1n);
  if (next !== undefined && reached >= next.size) {
    index++;
    text = formatRatio(scaled, next.size);
  }
  const suffix = scales[index]?.suffix ?? "";
  const own =
    scales === COUNT_SCALES && unit !== "" && unit !== "count" && unit !== "samples" ? ` ${unit}` : "";
  return suffix === "" ? text + own : `${text} ${suffix}${own}`;
}

/** Writes a quotient with three significant digits, rounded half away from zero. Whole numbers have no decimals. */
export function formatRatio(dividend: bigint, divisor: bigint): string {
  if (divisor === 0n) return "–";
  const isNegative = dividend < 0n !== divisor < 0n && dividend !== 0n;
  const size = dividend < 0n ? -dividend : dividend;
  const by = divisor < 0n ? -divisor : divisor;
  const whole = size / by;
  const decimals = Math.max(0, SIGNIFICANT_DIGITS - whole.toString().length);
  const power = 10n ** BigInt(decimals);
  const rounded = roundHalfAway(size * power, by);
  const digits = rounded.toString().padStart(decimals + 1, "0");
  const integer = digits.slice(0, digits.length - decimals);
  const fraction = size % by === 0n ? "" : digits.slice(digits.length - decimals);
  const text = fraction === "" || decimals === 0 ? integer : `${integer}.${fraction}`;
  return isNegative && rounded !== 0n ? `-${text}` : text;
}

/** Divides, and rounds half away from zero, as the server does for averages. */
export function roundHalfAway(dividend: bigint, divisor: bigint): bigint {
  const isNegative = dividend < 0n !== divisor < 0n;
  const size = dividend < 0n ? -dividend : dividend;
  const by = divisor < 0n ? -divisor : divisor;
  const rounded = (2n * size + by) / (2n * by);
  return isNegative ? -rounded : rounded;
}

const DIGIT_GROUPS = /\B(?=(\d{3})+$)/g;
/** Narrow no-break space, which groups digits. */
export const DIGIT_SPACE = "\u202f";

const UNIT_SYMBOLS: ReadonlyMap<string, string> = new Map(
  Object.entries({
    nanoseconds: "ns",
    microseconds: "µs",
    milliseconds: "ms",
    seconds: "s",
    bytes: "B",
    count: "",
    samples: "samples",
  }),
);

/** Writes all digits of a value: `1 240 000 000 ns`. */
export function formatExact(value: bigint, unit: string): string {
  const symbol = UNIT_SYMBOLS.get(unit) ?? unit;
  const digits = value.toString().replace(DIGIT_GROUPS, DIGIT_SPACE);
  return symbol === "" ? digits : `${digits} ${symbol}`;
}

/** Writes a share with three significant digits: `12.4 %`. A share that is not zero is never written as zero. */
export function formatPercent(part: bigint, whole: bigint): string {
  if (whole === 0n) return "–";
  if (part === 0n) return "0 %";
  const isTiny = roundHalfAway(part * 10_000n, whole) === 0n;
  if (isTiny) return part < 0n !== whole < 0n ? "> -0.01 %" : "< 0.01 %";
  const percent = formatRatio(part * 100n, whole);
  return `${percent} %`;
}

/** Decimals of the narrowest range. Its shares have no more digits. */
const MAX_RANGE_DECIMALS = 12;

/** Writes a range of shares: `90–100 %`. A narrow range has more decimals, so that its ends differ. */
export function formatShareRange({ from, to }: { readonly from: number; readonly to: number }): string {
  const magnitude = Math.floor(Math.log10(Number(((to - from) * 100).toPrecision(6))));
  const decimals = Math.min(MAX_RANGE_DECIMALS, Math.max(0, 1 - magnitude));
  return `${(from * 100).toFixed(decimals)}–${(to * 100).toFixed(decimals)} %`;
}

/** Writes a time with its date, to the second: `2026-03-02 10:15:30`. UTC is marked with `Z`. */
export function formatTime(ms: number, zone: ZoneName): string {
  const date = new Date(ms);
  if (Number.isNaN(date.getTime())) return "–";
  if (zone === "utc") return `${date.toISOString().slice(0, 19).replace("T", " ")}Z`;
  const local = new Date(ms - date.getTimezoneOffset() * 60_000);
  return local.toISOString().slice(0, 19).replace("T", " ");
}

/** Writes elapsed time roughly: `12 s`, `5 min`, `3 h`, `2 d`. */
export function formatAge(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1_000));
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 2 * 3_600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 2 * 86_400) return `${Math.floor(seconds / 3_600)} h`;
  return `${Math.floor(seconds / 86_400)} d`;
}
