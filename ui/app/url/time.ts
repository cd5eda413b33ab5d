// Times as links and users write them, as in the command line and in Pyroscope's /render.

const MS_PER_SECOND = 1_000;
const MS_PER_DAY = 86_400_000;

const UNIT_MS: ReadonlyMap<string, number> = new Map(
  Object.entries({
    ms: 1,
    s: MS_PER_SECOND,
    m: 60_000,
    h: 3_600_000,
    d: MS_PER_DAY,
    w: 7 * MS_PER_DAY,
    y: 365 * MS_PER_DAY,
  }),
);

// Graphite's words, which older links use.
const UNIT_WORDS: ReadonlyMap<string, string> = new Map(
  Object.entries({
    seconds: "s",
    second: "s",
    sec: "s",
    minutes: "m",
    minute: "m",
    min: "m",
    hours: "h",
    hour: "h",
    days: "d",
    day: "d",
    weeks: "w",
    week: "w",
    months: "mon",
    month: "mon",
    mon: "mon",
    years: "y",
    year: "y",
  }),
);
const MONTH_MS = 30 * MS_PER_DAY;

/** Returns whether a time depends on the current one. */
export function isRelativeTime(text: string): boolean {
  return /^\s*(now|[+-]|$)/.test(text);
}

/**
 * Returns the milliseconds since 1970 that a text means: `now-1h30m`, RFC 3339, a day (`20260302`, `2026-03-02`), or
 * Unix time of up to 11 digits in seconds, 14 in milliseconds, 17 in microseconds, else nanoseconds.
 * Returns undefined if the text is no time.
 */
export function parseTime(text: string, now: number): number | undefined {
  const trimmed = text.trim();
  const relative = /^(?:now)?((?:[+-].*)?)$/s.exec(trimmed);
  if (relative !== null && trimmed !== "") {
    const offset = parseOffset(relative[1] ?? "");
    return offset === undefined ? undefined : inRange(now + offset);
  }
  if (/^\d+$/.test(trimmed)) return parseNumber(trimmed);
  return parseDate(trimmed);
}

// Range of a Date, so that every parsed time can be displayed.
function inRange(ms: number): number | undefined {
  return Math.abs(ms) <= 8.64e15 ? ms : undefined;
}

function parseOffset(text: string): number | undefined {
  let total = 0;
  let sign = 1;
  let rest = text;
  while (rest !== "") {
    const part = /^([+-]?)(\d+)([a-z]+)/i.exec(rest);
    if (part === null) return undefined;
    if (part[1] !== "") sign = part[1] === "-" ? -1 : 1;
    const unit = unitMs(part[3] ?? "");
    if (unit === undefined) return undefined;
    total += sign * Number(part[2]) * unit;
    rest = rest.slice(part[0].length);
  }
  return total;
}

function unitMs(word: string): number | undefined {
  if (word === "M") return MONTH_MS;
  const lower = word.toLowerCase();
  const unit = UNIT_WORDS.get(lower) ?? lower;
  return unit === "mon" ? MONTH_MS : UNIT_MS.get(unit);
}

function parseNumber(digits: string): number | undefined {
  const day = /^((?:19|2\d)\d\d)(0[1-9]|1[0-2])([0-3]\d)$/.exec(digits);
  if (day !== null) return parseDate(`${day[1]}-${day[2]}-${day[3]}`);
  const number = BigInt(digits);
  if (digits.length <= 11) return inRange(Number(number) * MS_PER_SECOND);
  if (digits.length <= 14) return Number(number);
  return inRange(Number(digits.length <= 17 ? number / 1_000n : number / 1_000_000n));
}

// RFC 3339 where the time of day, seconds and the zone may be missing. Without a zone it is UTC.
function parseDate(text: string): number | undefined {
  const match =
    /^(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(\.\d{1,9})?)?)?\s?(Z|[+-]\d\d:?\d\d)?$/i.exec(text);
  if (match === null) return undefined;
  const [, year, month, day, hour = "0", minute = "0", second = "0", fraction = "0", zone = "Z"] = match;
  const date = Date.UTC(Number(year), Number(month) - 1, Number(day));
  const isInCalendar =
    new Date(date).getUTCDate() === Number(day) && new Date(date).getUTCMonth() === Number(month) - 1;
  if (!isInCalendar || Number(hour) > 23 || Number(minute) > 59 || Number(second) > 60) return undefined;
  const ofDay = (Number(hour) * 60 + Number(minute)) * 60_000 + Number(second) * MS_PER_SECOND;
  return date + ofDay + Math.floor(Number(fraction) * MS_PER_SECOND) - zoneOffsetMs(zone);
}

function zoneOffsetMs(zone: string): number {
  const match = /^([+-])(\d\d):?(\d\d)$/.exec(zone);
  if (match === null) return 0;
  const minutes = Number(match[2]) * 60 + Number(match[3]);
  return (match[1] === "-" ? -minutes : minutes) * 60_000;
}

/** Writes a duration as relative times have it, `now-` not included: `1h`, `90m`, `2d`. */
export function formatSpan(ms: number): string {
  const seconds = Math.max(1, Math.round(ms / MS_PER_SECOND));
  for (const [unit, size] of [
    ["d", 86_400],
    ["h", 3_600],
    ["m", 60],
  ] as const) {
    if (seconds % size === 0) return `${seconds / size}${unit}`;
  }
  return `${seconds}s`;
}
