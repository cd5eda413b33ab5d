// Tests of costs in natural units.

import { expect, test } from "vitest";
import {
  costChange,
  formatCost,
  formatPrecise,
  formatQuotient,
  formatRate,
  isGauge,
  rateUnit,
  toInteger,
  writeNumber,
} from "./cost";
import { formatExact, formatValue } from "./format";

const cpu = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
const allocations = "memory:alloc_space:bytes:space:bytes";
const inuse = "memory:inuse_space:bytes:space:bytes";

test("gauges_are_levels_in_either_number", () => {
  expect([inuse, "goroutines:goroutines:count::", "threadcreate:threadcreate:count::"].every(isGauge)).toBe(
    true,
  );
  expect([cpu, allocations, "block:delay:nanoseconds::"].some(isGauge)).toBe(false);
});

test("quotient_has_three_significant_digits", () => {
  expect(formatQuotient(1n, 3n)).toBe("0.333");
  expect(formatQuotient(-5n, 100_000n)).toBe("-0.000050");
  expect(formatQuotient(-12345n, 1000n)).toBe("-12.3");
  expect(formatQuotient(123_456_789n, 10n)).toBe("12345679");
  expect(formatQuotient(999_999n, 1_000_000n)).toBe("1.000");
  expect(formatQuotient(0n, 7n)).toBe("0");
  expect(formatQuotient(1n, 0n)).toBe("–");
});

test("quotient_below_a_millionth_has_an_exponent", () => {
  expect(formatQuotient(413n, 10_000_000_000n)).toBe("4.13e-8");
  expect(formatQuotient(-1n, 3_000_000_000n)).toBe("-3.33e-10");
  expect(formatQuotient(9_999_999n, 10_000_000_000_000n)).toBe("1.00e-6");
  expect(formatQuotient(1n, 1_000_000n)).toBe("0.000001");
});

test("quotient_beyond_double_precision_is_exact", () => {
  expect(formatQuotient(9_007_199_254_740_993n, 1n)).toBe("9007199254740993");
});

test("processor_time_is_in_cores", () => {
  expect(formatCost(90_000_000_000n, 60_000, cpu)).toBe("1.50 cores");
  expect(rateUnit("block:delay:nanoseconds:contentions:count")).toBe("s/s");
  expect(formatCost(30_000_000n, 60_000, "wall:wall:microseconds::")).toBe("0.500 s/s");
});

test("small_rates_keep_decimals", () => {
  expect(formatCost(30n, 60_000, "mutex:contentions:count::")).toBe("0.500/s");
  expect(formatCost(90n, 60_000, allocations)).toBe("1.50 B/s");
});

test("change_is_percent_multiple_or_word", () => {
  expect(costChange(150n, 100n)).toEqual({ kind: "more", text: "+50.0 %" });
  expect(costChange(50n, 100n)).toEqual({ kind: "less", text: "−50.0 %" });
  expect(costChange(1234n, 100n)).toEqual({ kind: "more", text: "×12.3" });
  expect(costChange(5n, 0n)).toEqual({ kind: "new", text: "new" });
  expect(costChange(0n, 5n)).toEqual({ kind: "gone", text: "gone" });
  expect(costChange(5n, 5n)).toEqual({ kind: "same", text: "±0 %" });
  expect(costChange(0n, 0n).text).toBe("–");
  expect(costChange(9_007_199_254_740_993n, 9_007_199_254_740_992n).text).toBe("+0.0 %");
});

test("averages_round_half_away_from_zero", () => {
  expect([2.5, -2.5, 0.4].map(toInteger)).toEqual([3n, -3n, 0n]);
});

test("units named like built-in properties are plain units", () => {
  for (const unit of ["constructor", "__proto__", "toString"]) {
    expect(formatRate(5_000n, 1_000, `a:b:${unit}:c:d`)).toBe(`5 k ${unit}/s`);
    expect(formatValue(5n, unit)).toBe(`5 ${unit}`);
    expect(formatExact(5n, unit)).toBe(`5 ${unit}`);
  }
});

test("rounded_numbers_have_no_exact_digits", () => {
  const exact = BigInt(Number.MAX_SAFE_INTEGER);
  expect(formatPrecise(exact, "count").replace(/\D/g, "")).toBe(exact.toString());
  expect(writeNumber(exact)).toBe(exact.toString());
  for (const rounded of [exact + 1n, -exact - 1n]) {
    expect(formatPrecise(rounded, "count")).toMatch(/^≈ -?9.01 P$/);
    expect(writeNumber(rounded)).toMatch(/^-?9\.00719925474099e\+15$/);
  }
});
