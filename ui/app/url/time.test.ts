// Tests of times as text.
import { afterEach, expect, test, vi } from "vitest";
import {
  formatSpan,
  isRelativeTime,
  isSlidingTime,
  parseFrom,
  parseUntil,
  storeRange,
  storeTime,
  timeProblem,
} from "./time";

afterEach(() => vi.unstubAllEnvs());

const NOW = 1_772_445_660_000;

test("all forms of times are read as the server reads them", () => {
  for (const [text, seconds] of [
    ["now", 1_772_445_660],
    ["now-1h", 1_772_442_060],
    ["now-1h30m", 1_772_440_260],
    ["now-1h30min", 1_772_440_260],
    ["now+1min", 1_772_445_720],
    ["-1d", 1_772_359_260],
    ["-5m", 1_772_445_360],
    ["now-1h+5m", 1_772_442_360],
    ["now + 1d 2s", 1_772_532_062],
    ["today", 1_772_409_600],
    ["yesterday", 1_772_323_200],
    ["noon", 1_772_452_800],
    ["noon-1h", 1_772_449_200],
    ["20260302", 1_772_409_600],
    ["20000229", 951_782_400],
    ["19700101", 0],
    ["20260302-1h", 1_772_406_000],
    ["1772445600-1h", 1_772_442_000],
    ["0", 0],
    ["20269999", 20_269_999],
    ["1772445600", 1_772_445_600],
    ["1_772_445_600", 1_772_445_600],
    ["1772445600000", 1_772_445_600],
    ["1772445600000000", 1_772_445_600],
    ["1772445600000000000", 1_772_445_600],
    ["2024-02-29", 1_709_164_800],
    ["2024-02-29T12:34:56.789Z", 1_709_210_096.789],
    ["2024-03-01 01:30+02:00", 1_709_249_400],
    ["1969-12-31T23:00:00-00:30", -1_800],
    [" 2024-02-29T12:34Z ", 1_709_210_040],
    ["now-1500ms", 1_772_445_658.5],
    ["1h30m", 1_772_440_260],
    ["1.5h", 1_772_440_260],
    ["2w", 1_771_236_060],
    ["now-1M", 1_769_853_660],
    ["now-1y", 1_740_909_660],
  ] as const) {
    expect(parseUntil(text, NOW), text).toBe(seconds * 1_000);
  }
});

test("texts that are no time are rejected", () => {
  const texts =
    "soon nowish later now- now-1 now-h now-1x 1.5 -5 now1h 1m1h 2023-02-29 2024-13-01 2024-1-1 2024-01-01T25:00 " +
    "99999999999999999999 9999999999999999999 now-9999999999y 20260231 20230229 2026-02-31 99991231 1e9 " +
    "2024-01-01T00:00:60Z now/x 20260302/d now-1h/1d constructor";
  for (const text of ["", " ", "9".repeat(30), ...texts.split(" ")])
    expect(parseUntil(text, NOW), text).toBeUndefined();
});

test("duration counts back from the end of the range", () => {
  const end = 1_600_000_000_000;
  expect(parseFrom("1h", NOW, end)).toBe(end - 3_600_000);
  expect(parseFrom("now-1h", NOW, end)).toBe(NOW - 3_600_000);
  expect(parseFrom("2024-02-29", NOW, end)).toBe(Date.UTC(2024, 1, 29));
});

test("a rounded time begins its unit as a start and ends it as an end", () => {
  for (const [text, from, until] of [
    ["now/h", "2026-03-02T10:00Z", "2026-03-02T11:00Z"],
    ["now-1d/d", "2026-03-01", "2026-03-02"],
    ["now/w", "2026-03-02", "2026-03-09"],
    ["now-1M/M", "2026-02-01", "2026-03-01"],
    ["now-1month/M", "2026-02-01", "2026-03-01"],
    ["now-1M-1d/d", "2026-02-01", "2026-02-02"],
    ["now-12M/M", "2025-03-01", "2025-04-01"],
    ["now+11M/M", "2027-02-01", "2027-03-01"],
    ["now/y", "2026-01-01", "2027-01-01"],
    ["now-1y/y", "2025-01-01", "2026-01-01"],
  ] as const) {
    expect(parseFrom(text, NOW, NOW), text).toBe(Date.parse(from));
    expect(parseUntil(text, NOW), text).toBe(Date.parse(until));
  }
});

test("a rounded time counts months and years of the calendar", () => {
  for (const [now, text, from] of [
    ["2026-03-31T23:59Z", "now-1M/M", "2026-02-01"],
    ["2026-03-31T23:59Z", "now-1M/d", "2026-02-28"],
    ["2024-03-31T00:00Z", "now-1M/d", "2024-02-29"],
    ["2026-01-31T12:00Z", "now+1M/d", "2026-02-28"],
    ["2026-01-01T00:00Z", "now-1M/M", "2025-12-01"],
    ["2024-12-31T12:00Z", "now-1y/y", "2023-01-01"],
    ["2024-02-29T12:00Z", "now-1y/d", "2023-02-28"],
    ["2024-02-29T12:00Z", "now-4y/d", "2020-02-29"],
    ["2026-05-31T12:00Z", "now-1M-1M/d", "2026-03-30"],
  ] as const) {
    const nowMs = Date.parse(now);
    expect(parseFrom(text, nowMs, nowMs), `${text} at ${now}`).toBe(Date.parse(from));
  }
  for (const text of ["now-9999999999M/M", "now-600y/y", "now-9007199254740993y/y"])
    expect(parseUntil(text, NOW), text).toBeUndefined();
});

test("relative and sliding times are recognized", () => {
  expect(["now", "now-1h", "-1h", "1h", "yesterday", "now-1d/d"].every(isRelativeTime)).toBe(true);
  expect(["", "soon", "1772445600", "2026-03-02", "20260302-1h"].some(isRelativeTime)).toBe(false);
  expect(["now", "now-1h", "-1h", "1h"].every(isSlidingTime)).toBe(true);
  expect(["", "yesterday", "now/d", "1772445600"].some(isSlidingTime)).toBe(false);
});

test("a time without a zone is in the given zone, other texts are not", () => {
  vi.stubEnv("TZ", "Asia/Kathmandu");
  const offset = 345 * 60_000;
  for (const text of ["2026-03-02 10:15:30", "2026-03-02T10:15", "2026-03-02", "20260302", "20260302-1h"]) {
    const utc = parseUntil(text, NOW, "utc") ?? Number.NaN;
    expect(parseUntil(text, NOW, "local"), text).toBe(utc - offset);
    expect(parseFrom(text, NOW, NOW, "local"), text).toBe(utc - offset);
  }
  for (const text of ["2026-03-02T10:15Z", "2026-03-02T10:15+02:00", "yesterday", "1772445600", "now-1h"])
    expect(parseUntil(text, NOW, "local"), text).toBe(parseUntil(text, NOW));
  expect(storeRange("2026-03-02 10:00", "2026-03-02 11:00", NOW, "local")).toEqual({
    from: String(Date.UTC(2026, 2, 2, 10) - offset),
    until: String(Date.UTC(2026, 2, 2, 11) - offset),
  });
});

test("stored times are read back, before March 1973 and 1970 too", () => {
  expect(storeTime(86_400_000)).toBe("1970-01-02T00:00:00Z");
  expect(storeTime(1_772_442_000_000)).toBe("1772442000000");
  for (const ms of [-5_000, 0, 1, 86_400_000, 99_999_999_999, 100_000_000_000, 1_772_442_000_123]) {
    expect(parseUntil(storeTime(ms), NOW), String(ms)).toBe(ms);
  }
});

test("links keep relative times, and others in milliseconds", () => {
  for (const [from, until, stored] of [
    ["now-1h", "now", ["now-1h", "now"]],
    ["1h", "now", ["now-1h", "now"]],
    ["2h", "1h", ["2h", "now-1h"]],
    ["1h", "1772445600", ["1772442000000", "1772445600000"]],
    ["yesterday", "today", ["yesterday", "today"]],
    ["20260302", "now", ["1772409600000", "now"]],
    ["1970-01-02T00:00Z", "19700103", ["1970-01-02T00:00:00Z", "1970-01-03T00:00:00Z"]],
    ["soon", "now", [undefined, "now"]],
    ["now-1h", "soon", ["now-1h", undefined]],
  ] as const) {
    const texts = storeRange(from, until, NOW);
    expect([texts.from, texts.until], `${from} ${until}`).toEqual(stored);
  }
});

test("spans have their largest whole unit", () => {
  expect([1_000, 60_000, 5_400_000, 7_200_000, 86_400_000].map(formatSpan)).toEqual([
    "1s",
    "1m",
    "90m",
    "2h",
    "1d",
  ]);
});

test("text that is no time has its reason", () => {
  const reasons = [
    ["2026-02-30", "calendar"],
    ["2026-02-03T25:00", "calendar"],
    ["20260230", "calendar"],
    ["2262-05-01", "range"],
    ["now-1000y", "range"],
    ["99999999999", "range"],
    ["-5", "form"],
    ["soon", "form"],
    ["", "form"],
  ] as const;
  for (const [text, reason] of reasons) {
    expect(parseUntil(text, Date.UTC(2026, 2, 2)), text).toBeUndefined();
    expect(timeProblem(text), text).toBe(reason);
  }
});
