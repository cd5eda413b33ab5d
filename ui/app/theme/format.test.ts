// Tests of values as text.
import { expect, test } from "vitest";
import {
  DIGIT_SPACE,
  formatAge,
  formatExact,
  formatPercent,
  formatShareRange,
  formatTime,
  formatValue,
  roundHalfAway,
} from "./format";

test("values have natural units and three digits", () => {
  for (const [value, unit, expected] of [
    [0n, "nanoseconds", "0 ns"],
    [999n, "nanoseconds", "999 ns"],
    [1_240_000_000n, "nanoseconds", "1.24 s"],
    [999_999n, "nanoseconds", "1.00 ms"],
    [90_000_000_000n, "nanoseconds", "1.50 min"],
    [7_200n, "seconds", "2 h"],
    [12_400_000n, "bytes", "12.4 MB"],
    [999_950n, "bytes", "1.00 MB"],
    [1_000n, "bytes", "1 kB"],
    [-1_536n, "bytes", "-1.54 kB"],
    [1_530_000n, "count", "1.53 M"],
    [42n, "count", "42"],
    [42n, "apples", "42 apples"],
    [9_223_372_036_854_775_807n, "nanoseconds", "106752 d"],
    [-9_223_372_036_854_775_808n, "bytes", "-9.22 EB"],
  ] as const) {
    expect(formatValue(value, unit), `${value} ${unit}`).toBe(expected);
  }
});

test("exact values have all digits beyond 2^53", () => {
  expect(formatExact(9_007_199_254_740_993n, "nanoseconds").replaceAll(DIGIT_SPACE, " ")).toBe(
    "9 007 199 254 740 993 ns",
  );
  expect(formatExact(-1_000n, "count").replaceAll(DIGIT_SPACE, " ")).toBe("-1 000");
});

test("shares have three digits and tiny ones are not zero", () => {
  expect(formatPercent(124n, 1_000n)).toBe("12.4 %");
  expect(formatPercent(1n, 3n)).toBe("33.3 %");
  expect(formatPercent(1n, 1n)).toBe("100 %");
  expect(formatPercent(0n, 5n)).toBe("0 %");
  expect(formatPercent(1n, 10n ** 12n)).toBe("< 0.01 %");
  expect(formatPercent(-1n, 4n)).toBe("-25 %");
  expect(formatPercent(5n, 0n)).toBe("–");
});

test("averages are rounded half away from zero", () => {
  expect([5n, 4n, -5n, -4n, 7n].map((value) => roundHalfAway(value, 2n))).toEqual([3n, 2n, -3n, -2n, 4n]);
});

test("times are written in both zones", () => {
  const ms = Date.UTC(2026, 2, 2, 10, 15, 30);
  expect(formatTime(ms, "utc")).toBe("2026-03-02 10:15:30Z");
  expect(formatTime(ms, "local")).toMatch(/^2026-03-0[123] \d\d:\d\d:30$/);
  expect(formatTime(Number.NaN, "utc")).toBe("–");
  expect([500, 119_000, 3_600_000, 7_200_000, 200_000_000].map(formatAge)).toEqual([
    "0 s",
    "119 s",
    "60 min",
    "2 h",
    "2 d",
  ]);
});

test("ends of a range of shares differ", () => {
  for (const [from, to, expected] of [
    [0.9, 1, "90–100 %"],
    [0.505, 0.515, "50.5–51.5 %"],
    [0, 1e-4, "0.000–0.010 %"],
    [0.5, 0.5 + 1e-12, "50.000000000000–50.000000000100 %"],
  ] as const) {
    expect(formatShareRange({ from, to })).toBe(expected);
  }
});
