// Tests of the series of the timeline.

import { expect, test } from "vitest";
import {
  alignSeries,
  otherSelector,
  otherSeries,
  seriesRequest,
  seriesSum,
  timesOf,
  withMatcher,
} from "./series_data";

const range = { start: 0, end: 60_000, step: 15_000 };
const series = (points: [number, number][]) => ({
  points: points.map(([timestamp, value]) => ({ timestamp: String(timestamp), value })),
});

test("points_lie_at_ends_of_steps_within_the_range", () => {
  expect(timesOf(range)).toEqual([15_000, 30_000, 45_000, 60_000]);
  const request = seriesRequest(
    { profileType: "memory:inuse_space:bytes::", selector: "{}", groupBy: "pod", range },
    true,
  );
  expect(request).toMatchObject({ start: "15000", end: "60000", step: 15, groupBy: ["pod"], limit: "10" });
  expect(request.aggregation).toBe("TIME_SERIES_AGGREGATION_TYPE_AVERAGE");
});

test("missing_points_are_undefined", () => {
  const aligned = alignSeries(
    series([
      [15_000, 3],
      [60_000, 4],
    ]),
    "a",
    range,
  );
  expect(aligned.values).toEqual([3n, undefined, undefined, 4n]);
  expect(seriesSum(aligned)).toBe(7n);
});

test("other_is_the_exact_difference", () => {
  const large = 9_007_199_254_740_991;
  const all = alignSeries(
    series([
      [15_000, large],
      [30_000, 10],
    ]),
    "",
    range,
  );
  const groups = [
    alignSeries(series([[15_000, large - 3]]), "a", range),
    alignSeries(
      series([
        [15_000, 1],
        [30_000, 10],
      ]),
      "b",
      range,
    ),
  ];
  expect(otherSeries(all, groups)?.values).toEqual([2n, 0n, undefined, undefined]);
  expect(otherSeries(all, [all])).toBeUndefined();
});

test("matchers_are_added_and_quoted", () => {
  expect(withMatcher("{}", "pod", "=", 'a"b\\')).toBe('{pod="a\\"b\\\\"}');
  expect(withMatcher('{zone="eu"}', "pod", "=", "a")).toBe('{zone="eu", pod="a"}');
  expect(withMatcher("", "pod", "=", "a")).toBe('{pod="a"}');
  expect(otherSelector("{}", "pod", ["a.b", "c|d"])).toBe('{pod!~"a\\\\.b|c\\\\|d"}');
});
