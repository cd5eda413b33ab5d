// Times as links and users write them: the forms of the server's pages, and the rounding of Grafana's links.

const MS_PER_SECOND = 1_000;
const MS_PER_DAY = 86_400_000;
/** Last time of the server, which counts nanoseconds in 64 bits. */
export const MAX_TIME_MS = 9_223_372_036_854;

/** Time that an offset refers to: the current one, its day in UTC, the end of the range, or milliseconds since 1970. */
type TimeReference = "now" | "midnight" | "rangeEnd" | number;

type RoundingUnit = "s" | "m" | "h" | "d" | "w" | "M" | "y";

/** Part of an offset. `months` is 0 for units of a fixed length. */
interface OffsetPart {
  readonly ms: number;
  readonly months: number;
}

interface TimeExpression {
  readonly reference: TimeReference;
  readonly offset: readonly OffsetPart[];
  /** Unit to whose beginning a start is rounded, and to whose end an end. */
  readonly rounding?: RoundingUnit;
}

/** Zone of a date and time of day that state none. Links have UTC, as the server does. */
export type InputZone = "local" | "utc";

/**
 * Returns the milliseconds since 1970 of the end of a range: `now`, `now-1h30m`, `1h` before now, `yesterday`,
 * `noon-1h`, RFC 3339, a day (`20260302`), or Unix time of up to 11 digits in seconds, 14 in milliseconds, 17 in
 * microseconds, else nanoseconds. `/d` after a relative time rounds it, and its months and years are those of the
 * calendar, as in Grafana. Without a rounding they have 30 and 365 days. Returns undefined if the text is no time.
 */
export function parseUntil(text: string, now: number, zone: InputZone = "utc"): number | undefined {
  const expression = parseExpression(text, zone);
  return expression === undefined ? undefined : resolve(expression, now, now, true);
}

/** Like `parseUntil`, for the start of a range. A bare duration refers to the end of the range. */
export function parseFrom(
  text: string,
  now: number,
  until: number,
  zone: InputZone = "utc",
): number | undefined {
  const expression = parseExpression(text, zone);
  return expression === undefined ? undefined : resolve(expression, now, until, false);
}

/** Texts of a range as links keep them; undefined where a text is no time. */
export interface RangeTexts {
  readonly from: string | undefined;
  readonly until: string | undefined;
}

/** Smallest time that is written in milliseconds. Shorter numbers are read as seconds. */
const MIN_NUMBER_MS = 100_000_000_000;

/** Returns the text under which a link keeps an absolute time: milliseconds, or RFC 3339 before March 1973. */
export function storeTime(ms: number): string {
  const rounded = Math.round(ms);
  return rounded < MIN_NUMBER_MS ? isoTime(rounded) : String(rounded);
}

/** Returns the texts under which a link keeps a range: relative times as they are, others as `storeTime` does. */
export function storeRange(from: string, until: string, now: number, zone: InputZone = "utc"): RangeTexts {
  const end = parseUntil(until, now, zone);
  const start = parseFrom(from, now, end ?? now, zone);
  return {
    from: start === undefined ? undefined : storeStart(from, until, start),
    until: end === undefined ? undefined : storeEnd(until, end),
  };
}

function storeEnd(until: string, endMs: number): string {
  return isRelativeTime(until) ? writeBeforeNow(until) : storeTime(endMs);
}

function storeStart(from: string, until: string, startMs: number): string {
  if (!isRelativeTime(from)) return storeTime(startMs);
  if (until.trim() === "now" || !isBareSpan(from)) return writeBeforeNow(from);
  return isRelativeTime(until) ? from.trim() : storeTime(startMs);
}

/** Writes a relative time. A bare duration is short for a time before now. */
function writeBeforeNow(text: string): string {
  return isBareSpan(text) ? `now-${text.trim()}` : text.trim();
}

function isBareSpan(text: string): boolean {
  return parseExpression(text)?.reference === "rangeEnd";
}

/** Returns whether a time depends on the current one, or on the end of its range. */
export function isRelativeTime(text: string): boolean {
  return typeof (parseExpression(text)?.reference ?? 0) === "string";
}

/** Returns whether a time moves with the current one at each moment, and not only once a day. */
export function isSlidingTime(text: string): boolean {
  const expression = parseExpression(text);
  const { reference, rounding } = expression ?? {};
  return rounding === undefined && (reference === "now" || reference === "rangeEnd");
}

/** Returns whether a time is rounded, down as a start and up as an end. */
export function isRoundedTime(text: string): boolean {
  return parseExpression(text)?.rounding !== undefined;
}

function resolve(expression: TimeExpression, now: number, until: number, isEnd: boolean): number | undefined {
  const { reference, offset, rounding } = expression;
  const base = resolveReference(reference, now, until);
  const ms = rounding === undefined ? Math.floor(addFixed(base, offset)) : addCalendar(base, offset);
  if (!(Math.abs(ms) <= MAX_TIME_MS)) return undefined;
  return rounding === undefined ? ms : roundTo(ms, rounding, isEnd);
}

function resolveReference(reference: TimeReference, now: number, until: number): number {
  switch (reference) {
    case "now":
      return now;
    case "rangeEnd":
      return until;
    case "midnight":
      return Math.floor(now / MS_PER_DAY) * MS_PER_DAY;
    default:
      return reference;
  }
}

function addFixed(base: number, offset: readonly OffsetPart[]): number {
  return offset.reduce((sum, part) => sum + part.ms, base);
}

/** Adds the parts one after the other, as Grafana does. Times beyond those of a `Date` become NaN. */
function addCalendar(base: number, offset: readonly OffsetPart[]): number {
  return offset.reduce(
    (ms, part) => (part.months === 0 ? ms + part.ms : addMonths(ms, part.months)),
    Math.floor(base),
  );
}

function addMonths(ms: number, months: number): number {
  const date = new Date(ms);
  const day = date.getUTCDate();
  date.setUTCMonth(date.getUTCMonth() + months);
  // A month that lacks the day has passed into the next one: its last day counts instead.
  if (date.getUTCDate() !== day) date.setUTCDate(0);
  return date.getTime();
}

const ROUNDING_MS: ReadonlyMap<RoundingUnit, number> = new Map([
  ["s", MS_PER_SECOND],
  ["m", 60_000],
  ["h", 3_600_000],
  ["d", MS_PER_DAY],
  ["w", 7 * MS_PER_DAY],
]);
/** 1970 began on a Thursday, and weeks begin on Monday. */
const FIRST_MONDAY_MS = 4 * MS_PER_DAY;

function roundTo(ms: number, unit: RoundingUnit, isEnd: boolean): number {
  const length = ROUNDING_MS.get(unit);
  if (length !== undefined) {
    const first = unit === "w" ? FIRST_MONDAY_MS : 0;
    return (Math.floor((ms - first) / length) + (isEnd ? 1 : 0)) * length + first;
  }
  const date = new Date(ms);
  const year = date.getUTCFullYear();
  if (unit === "y") return Date.UTC(year + (isEnd ? 1 : 0), 0, 1);
  return Date.UTC(year, date.getUTCMonth() + (isEnd ? 1 : 0), 1);
}

function parseExpression(text: string, zone: InputZone = "utc"): TimeExpression | undefined {
  const rounded = /^(.*)\/([smhdwMy])$/.exec(text.trim());
  if (rounded === null) return parseAtTime(text, zone) ?? parseArgument(text.trim(), zone);
  const expression = parseAtTime(rounded[1] as string, zone);
  if (typeof (expression?.reference ?? 0) === "number") return undefined;
  return { ...(expression as TimeExpression), rounding: rounded[2] as RoundingUnit };
}

const DAY_WORDS: ReadonlyMap<string, number> = new Map(
  Object.entries({
    today: 0,
    midnight: 0,
    yesterday: -MS_PER_DAY,
    tomorrow: MS_PER_DAY,
    noon: MS_PER_DAY / 2,
    teatime: (MS_PER_DAY / 24) * 16,
  }),
);

/** Parses the syntax of Graphite: a time and offsets. `_`, `,` and spaces mean nothing. */
function parseAtTime(text: string, zone: InputZone): TimeExpression | undefined {
  const compact = text.replace(/[_, ]/g, "").trim();
  const sign = compact.search(/[+-]/);
  const name = sign < 0 ? compact : compact.slice(0, sign);
  const offset = parseOffset(sign < 0 ? "" : compact.slice(sign));
  if (offset === undefined || compact === "") return undefined;
  if (name === "" || name === "now") return { reference: "now", offset };
  const sinceMidnight = DAY_WORDS.get(name);
  if (sinceMidnight !== undefined)
    return { reference: "midnight", offset: [{ ms: sinceMidnight, months: 0 }, ...offset] };
  const time = /^\d+$/.test(name) ? parseNumber(name, zone) : undefined;
  return time === undefined ? undefined : { reference: time, offset };
}

/** Parses a time as arguments of commands have it. */
function parseArgument(text: string, zone: InputZone): TimeExpression | undefined {
  const ago = /^now-(.*)$/s.exec(text);
  const span = parseSpan(ago?.[1] ?? text);
  if (span !== undefined) {
    return { reference: ago === null ? "rangeEnd" : "now", offset: [{ ms: -span, months: 0 }] };
  }
  const time = parseDateTime(text, zone);
  return time === undefined ? undefined : { reference: time, offset: [] };
}

const OFFSET_UNITS: ReadonlyMap<string, OffsetPart> = new Map(
  (
    [
      ["s sec secs second seconds", MS_PER_SECOND, 0],
      ["m min mins minute minutes", 60_000, 0],
      ["h hr hrs hour hours", 3_600_000, 0],
      ["d day days", MS_PER_DAY, 0],
      ["w week weeks", 7 * MS_PER_DAY, 0],
      ["M mon month months", 30 * MS_PER_DAY, 1],
      ["y year years", 365 * MS_PER_DAY, 12],
    ] as const
  ).flatMap(([words, ms, months]) =>
    words.split(" ").map((word): [string, OffsetPart] => [word, { ms, months }]),
  ),
);

/** Parses an empty text, or parts such as `-1h` and `+30min`. A part without a sign has that of the part before. */
function parseOffset(text: string): readonly OffsetPart[] | undefined {
  const parts: OffsetPart[] = [];
  let sign = 1;
  let rest = text;
  while (rest !== "") {
    const part = /^([+-]?)(\d+)([a-zA-Z]+)/.exec(rest);
    const unit = OFFSET_UNITS.get(part?.[3] ?? "");
    if (part === null || unit === undefined) return undefined;
    if (part[1] !== "") sign = part[1] === "-" ? -1 : 1;
    const count = sign * Number(part[2]);
    parts.push({ ms: count * unit.ms, months: count * unit.months });
    rest = rest.slice(part[0].length);
  }
  return parts;
}

const SPAN_UNITS: readonly (readonly [name: string, ms: number])[] = [
  ["w", 7 * MS_PER_DAY],
  ["d", MS_PER_DAY],
  ["h", 3_600_000],
  ["m", 60_000],
  ["s", MS_PER_SECOND],
  ["ms", 1],
  ["us", 1e-3],
  ["ns", 1e-6],
];

/** Parses a duration of a command, `1h30m` or `1.5h`, with its units from long to short. */
function parseSpan(text: string): number | undefined {
  let total = 0;
  let next = 0;
  let rest = text;
  do {
    const part = /^(\d+(?:\.\d+)?)([a-z]+)/.exec(rest);
    const unit = SPAN_UNITS.findIndex(([name], index) => index >= next && name === part?.[2]);
    if (part === null || unit < 0) return text === "0" ? 0 : undefined;
    total += Number(part[1]) * (SPAN_UNITS[unit]?.[1] as number);
    next = unit + 1;
    rest = rest.slice(part[0].length);
  } while (rest !== "");
  return total;
}

/** Parses Unix time, or a day of eight digits. */
function parseNumber(digits: string, zone: InputZone): number | undefined {
  const day = /^((?:19|[2-9]\d)\d\d)(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])$/.exec(digits);
  if (day !== null && digits > "19010000") return parseDateTime(`${day[1]}-${day[2]}-${day[3]}`, zone);
  const number = BigInt(digits);
  if (digits.length <= 11) return inRange(number * 1_000n);
  if (digits.length <= 14) return inRange(number);
  return inRange(digits.length <= 17 ? number / 1_000n : number / 1_000_000n);
}

function inRange(ms: bigint): number | undefined {
  return ms <= BigInt(MAX_TIME_MS) ? Number(ms) : undefined;
}

const DATE_TIME =
  /^(\d{4})-(\d\d)-(\d\d)(?:[Tt ](?:(\d\d):(\d\d)(?::(\d\d))?(?:\.(\d{1,9}))?)?([Zz]|[+-]\d\d:\d\d)?)?$/;

/** Parses RFC 3339. Time of day, seconds and zone may be missing. */
function parseDateTime(text: string, inputZone: InputZone): number | undefined {
  const match = DATE_TIME.exec(text);
  if (match === null) return undefined;
  const [, year, month, day, hour = "0", minute = "0", second = "0", fraction = "0", zone] = match;
  const date = new Date(Date.UTC(Number(year), Number(month) - 1, Number(day)));
  const isInCalendar = date.getUTCDate() === Number(day) && date.getUTCMonth() === Number(month) - 1;
  if (!isInCalendar || Number(hour) > 23 || Number(minute) > 59 || Number(second) > 59) return undefined;
  if (date.getUTCFullYear() !== Number(year)) return undefined;
  const seconds = (Number(hour) * 60 + Number(minute)) * 60 + Number(second);
  const utc = date.getTime() + seconds * MS_PER_SECOND + Number(fraction.padEnd(3, "0").slice(0, 3));
  if (zone === undefined && inputZone === "local") return localTime(utc);
  const offset = zoneOffsetMs(zone ?? "Z");
  return offset === undefined ? undefined : utc - offset;
}

/** Returns the time at which local clocks show what those of UTC show at `utc`. */
function localTime(utc: number): number {
  const date = new Date(utc);
  const day = [date.getUTCFullYear(), date.getUTCMonth(), date.getUTCDate()] as const;
  const time = [date.getUTCHours(), date.getUTCMinutes(), date.getUTCSeconds()] as const;
  return new Date(...day, ...time, date.getUTCMilliseconds()).getTime();
}

function zoneOffsetMs(zone: string): number | undefined {
  if (zone === "Z" || zone === "z") return 0;
  const hours = Number(zone.slice(1, 3));
  const minutes = Number(zone.slice(4));
  if (hours > 23 || minutes > 59) return undefined;
  return (zone.startsWith("-") ? -1 : 1) * (hours * 60 + minutes) * 60_000;
}

/**
 * Reason for which a text is no time: it has no form of one, its day or time of day does not exist, or the server cannot
 * count it.
 */
export type TimeProblem = "form" | "calendar" | "range";

/** Returns why a text is no time. */
export function timeProblem(text: string, zone: InputZone = "utc"): TimeProblem {
  const trimmed = text.trim();
  if (DATE_TIME.test(trimmed)) return parseDateTime(trimmed, zone) === undefined ? "calendar" : "range";
  // A number of eight digits that is no Unix time has the form of a day.
  if (/^\d{8}$/.test(trimmed)) return "calendar";
  return /^\d+$/.test(trimmed) || parseExpression(text, zone) !== undefined ? "range" : "form";
}

/** Writes a time as RFC 3339 in UTC. */
export function isoTime(ms: number): string {
  return new Date(ms).toISOString().replace(/\.000Z$/, "Z");
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
