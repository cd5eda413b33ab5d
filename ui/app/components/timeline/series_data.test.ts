// Tests of the series of the timeline.

import { expect, test } from "vitest";
import {
  alignSeries,
  otherSelector,
  otherSeries,
  seriesRequest,
  seriesSum,
  stepFactor,
  timesOf,
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

test("rest_excludes_the_shown_groups", () => {
  expect(otherSelector('{zone="eu"}', "pod", ["a.b", "c|d"])).toBe('{zone="eu", pod!~"a\\\\.b|c\\\\|d"}');
});

test("step_grows_to_the_usual_distance_of_profiles", () => {
  const every = (distance: number, count: number) =>
    Array.from({ length: count }, (_, place) => (place % distance === 0 ? 1n : undefined));
  expect(stepFactor(every(1, 240))).toBe(1);
  expect(stepFactor(every(4, 240))).toBe(4);
  // 7 does not divide 240, 8 does.
  expect(stepFactor(every(7, 240))).toBe(8);
  expect(stepFactor(every(4, 241))).toBe(4);
  expect(stepFactor([undefined, 1n])).toBe(1);
  expect(stepFactor([])).toBe(1);
});

test("last_point_is_at_the_end", () => {
  expect(timesOf({ start: 0, end: 50_000, step: 20_000 })).toEqual([10_000, 30_000, 50_000]);
});
