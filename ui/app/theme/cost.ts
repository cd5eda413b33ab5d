// Costs in natural units: cores, bytes per second, averages of gauges. All digits are computed from integers.

import { formatExact, formatRatio, formatValue, roundHalfAway } from "./format";

/** Values of the profile types that state a level, such as memory in use. The plural counts as well. */
const GAUGE_KINDS: ReadonlySet<string> = new Set([
  "inuse_objects",
  "inuse_space",
  "goroutine",
  "thread",
  "threadcreate",
  "live",
  "live_objects",
  "live_space",
]);

const NANOS_PER_UNIT: ReadonlyMap<string, bigint> = new Map(
  Object.entries({
    nanoseconds: 1n,
    microseconds: 1_000n,
    milliseconds: 1_000_000n,
    seconds: 1_000_000_000n,
  }),
);

const NANOS_PER_MILLI = 1_000_000n;
const MILLIS_PER_SECOND = 1_000n;
const SIGNIFICANT_DIGITS_BOUND = 100n;
const MAX_DECIMALS = 6;
/** Quotients below a part of this have no digit among the decimals. */
const TINY_DIVISOR = 10n ** BigInt(MAX_DECIMALS);

export interface ProfileTypeParts {
  readonly name: string;
  /** Type of the values, such as `cpu` or `inuse_space`. */
  readonly kind: string;
  readonly unit: string;
}

export function parseProfileType(profileType: string): ProfileTypeParts {
  const [name = "", kind = "", unit = ""] = profileType.split(":");
  return { name, kind, unit };
}

/** Returns whether values state a level. Levels are averaged, all other values are added up. */
export function isGauge(profileType: string): boolean {
  const { kind } = parseProfileType(profileType);
  return GAUGE_KINDS.has(kind) || (kind.endsWith("s") && GAUGE_KINDS.has(kind.slice(0, -1)));
}

/** Returns an integer from a number of the API. Averages are rounded half away from zero. */
export function toInteger(value: number): bigint {
  return BigInt(value < 0 ? -Math.round(-value) : Math.round(value));
}

/** Returns whether an integer from a number of the API may lack its last digits. */
function isRounded(value: bigint): boolean {
  return absolute(value) > BigInt(Number.MAX_SAFE_INTEGER);
}

/** Writes all digits of an integer from a number of the API. If they may be rounded, writes a rough value. */
export function formatPrecise(value: bigint, unit: string): string {
  return isRounded(value) ? `≈ ${formatValue(value, unit)}` : formatExact(value, unit);
}

/** Writes an integer from a number of the API for other programs, with the digits that are known. */
export function writeNumber(value: bigint): string {
  return isRounded(value) ? Number(value).toPrecision(15) : value.toString();
}

/** Returns a quotient with three significant digits, also below one. Rounds half away from zero. */
export function formatQuotient(numerator: bigint, denominator: bigint): string {
  const dividend = absolute(numerator);
  const divisor = absolute(denominator);
  if (dividend >= divisor || dividend === 0n) return formatRatio(numerator, denominator);
  const sign = numerator < 0n === denominator < 0n ? "" : "-";
  if (dividend * TINY_DIVISOR < divisor) return sign + formatTiny(dividend, divisor);
  let decimals = 0;
  let scaled = dividend;
  while (decimals < MAX_DECIMALS && scaled < SIGNIFICANT_DIGITS_BOUND * divisor) {
    scaled *= 10n;
    decimals += 1;
  }
  const digits = ((2n * scaled + divisor) / (2n * divisor)).toString().padStart(decimals + 1, "0");
  return `${sign}${digits.slice(0, -decimals)}.${digits.slice(-decimals)}`;
}

/** Writes a quotient below one, in which decimals would be zeros: `4.13e-8`. */
function formatTiny(dividend: bigint, divisor: bigint): string {
  let exponent = 0;
  let scaled = dividend;
  while (scaled < divisor) {
    scaled *= 10n;
    exponent += 1;
  }
  const hundredths = roundHalfAway(100n * scaled, divisor).toString();
  // Rounding may reach the next power of ten.
  const isNext = hundredths.length > 3;
  return `${hundredths.slice(0, 1)}.${hundredths.slice(1, 3)}e-${isNext ? exponent - 1 : exponent}`;
}

function absolute(value: bigint): bigint {
  return value < 0n ? -value : value;
}

/** Returns the unit of a rate: `cores`, `s/s`, or an amount for each second. */
export function rateUnit(profileType: string): string {
  const { name, kind, unit } = parseProfileType(profileType);
  if (NANOS_PER_UNIT.get(unit) === undefined) return unit === "bytes" ? "B/s" : "1/s";
  return kind === "cpu" || name === "process_cpu" ? "cores" : "s/s";
}

/** Returns a cost in words. A gauge's value is its average, any other value is the sum over `millis`. */
export function formatCost(value: bigint, millis: number, profileType: string): string {
  const { unit } = parseProfileType(profileType);
  return isGauge(profileType) ? formatValue(value, unit) : formatRate(value, millis, profileType);
}

/** Returns a sum over `millis` as a rate. */
export function formatRate(sum: bigint, millis: number, profileType: string): string {
  const { unit } = parseProfileType(profileType);
  const duration = BigInt(Math.max(1, Math.round(millis)));
  const nanos = NANOS_PER_UNIT.get(unit);
  if (nanos !== undefined) {
    return `${formatQuotient(sum * nanos, duration * NANOS_PER_MILLI)} ${rateUnit(profileType)}`;
  }
  const perSecond = sum * MILLIS_PER_SECOND;
  // Few things a second need decimals.
  if (perSecond < SIGNIFICANT_DIGITS_BOUND * duration && perSecond > -SIGNIFICANT_DIGITS_BOUND * duration) {
    const suffix = unit === "bytes" ? " B/s" : "/s";
    return `${formatQuotient(perSecond, duration)}${suffix}`;
  }
  return `${formatValue((2n * perSecond + duration) / (2n * duration), unit)}/s`;
}

export type ChangeKind = "more" | "less" | "same" | "new" | "gone";

export interface CostChange {
  readonly kind: ChangeKind;
  readonly text: string;
}

/** Factor from which a change is shown as a multiple instead of percent. */
const MULTIPLE_FROM = 10n;

/** A change below a twentieth has no color, since such changes are common. */
const SMALL_CHANGE_DIVISOR = 20n;

/** Returns the change from the period before. */
export function costChange(now: bigint, before: bigint): CostChange {
  if (now === before) return { kind: "same", text: now === 0n ? "–" : "±0 %" };
  if (before === 0n) return { kind: "new", text: "new" };
  if (now === 0n) return { kind: "gone", text: "gone" };
  const isSmall = SMALL_CHANGE_DIVISOR * absolute(now - before) < absolute(before);
  const kind = isSmall ? "same" : now > before ? "more" : "less";
  if (before > 0n && now >= MULTIPLE_FROM * before) {
    return { kind, text: `×${formatQuotient(now, before)}` };
  }
  return { kind, text: `${now > before ? "+" : "−"}${percentOf(now - before, before)} %` };
}

/** Returns the absolute share in percent with one decimal. */
function percentOf(part: bigint, whole: bigint): string {
  const tenths = (2n * 1000n * absolute(part) + absolute(whole)) / (2n * absolute(whole));
  return `${tenths / 10n}.${tenths % 10n}`;
}
