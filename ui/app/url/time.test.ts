// Tests of times as text.
import { expect, test } from "vitest";
import { formatSpan, isRelativeTime, parseTime } from "./time";

const NOW = Date.UTC(2026, 2, 2, 10, 0, 0);

test("all forms of times are read", () => {
  const day = Date.UTC(2026, 2, 2);
  for (const [text, expected] of [
    ["now", NOW],
    ["now-1h", NOW - 3_600_000],
    ["now-1h30m", NOW - 5_400_000],
    [" now-7d ", NOW - 7 * 86_400_000],
    ["now+5min", NOW + 300_000],
    ["-1h", NOW - 3_600_000],
    ["now-2weeks", NOW - 14 * 86_400_000],
    ["20260302", day],
    ["2026-03-02", day],
    ["1772445600", 1_772_445_600_000],
    ["1772445600123", 1_772_445_600_123],
    ["1772445600123456", 1_772_445_600_123],
    ["1772445600123456789", 1_772_445_600_123],
    ["2026-03-02T10:00:00Z", NOW],
    ["2026-03-02T10:00Z", NOW],
    ["2026-03-02 10:00:00.5", NOW + 500],
    ["2026-03-02T12:00:00+02:00", NOW],
    ["0", 0],
  ] as const) {
    expect(parseTime(text, NOW), text).toBe(expected);
  }
});

test("texts that are no time are rejected", () => {
  const texts = [
    "",
    "then",
    "now-",
    "now-1",
    "now-1x",
    "now1h",
    "2026-02-31",
    "20260231",
    "2026-03-02T25:00",
    "1e9",
    "9".repeat(30),
  ];
  for (const text of texts) expect(parseTime(text, NOW), text).toBeUndefined();
});

test("relative times are recognized", () => {
  expect(["now", "now-1h", "-1h", ""].every(isRelativeTime)).toBe(true);
  expect(["1772445600", "2026-03-02"].some(isRelativeTime)).toBe(false);
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
