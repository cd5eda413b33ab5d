// Tests of the series of the timeline.

import { expect, test } from "vitest";
import {
  alignSeries,
  MAX_TIMELINE_GROUPS,
  mergeSteps,
  otherSelector,
  otherSeries,
  seriesRequest,
  seriesSum,
  stepFactor,
  type TimelineSeries,
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

const valued = (name: string, values: (bigint | undefined)[]): TimelineSeries => ({
  name,
  isOther: false,
  values,
  exemplars: [],
});

test("other_is_the_exact_difference_and_never_below_zero", () => {
  const large = 9_007_199_254_740_991n;
  const all = valued("", [large, 10n, undefined, 3n]);
  const empty = Array.from({ length: MAX_TIMELINE_GROUPS - 2 }, (_, index) => valued(`${index}`, []));
  const groups = [valued("a", [large - 3n]), valued("b", [1n, 10n, undefined, 4n]), ...empty];
  expect(otherSeries(all, groups)?.values).toEqual([2n, 0n, undefined, 0n]);
  expect(
    otherSeries(all, [valued("a", [large, 11n, undefined, 3n]), ...empty, valued("b", [])]),
  ).toBeUndefined();
});

test("fewer_groups_than_the_maximum_leave_no_other", () => {
  const groups = Array.from({ length: MAX_TIMELINE_GROUPS - 1 }, (_, index) => valued(`${index}`, [1n]));
  expect(otherSeries(valued("", [100n]), groups)).toBeUndefined();
});

test("merged_steps_have_the_sum_of_the_range", () => {
  const times = timesOf({ start: 0, end: 3_615_000, step: 15_000 });
  expect(times).toHaveLength(241);
  const exemplar = { profileId: "a", timestamp: 0, value: 1n, labels: "", place: 5 };
  const values = times.map((_, place) => (place % 4 === 0 ? BigInt(place) : undefined));
  const series = [{ ...valued("", values), exemplars: [exemplar] }];
  const data = { times, start: 0, stepMs: 15_000, isAverage: false, series };
  const merged = mergeSteps(data, 4);
  expect(merged.stepMs).toBe(60_000);
  // The first step is longer by the step that is left.
  expect(merged.times.slice(0, 2)).toEqual([75_000, 135_000]);
  expect(merged.times.at(-1)).toBe(3_615_000);
  expect(merged.series[0]?.values.slice(0, 2)).toEqual([4n, 8n]);
  expect(merged.series[0]?.exemplars[0]?.place).toBe(1);
  expect(seriesSum(merged.series[0] as TimelineSeries)).toBe(seriesSum(valued("", values)));
  const single = mergeSteps({ ...data, times: times.slice(0, 3), series: [valued("", [1n, 2n, 3n])] }, 7);
  expect(single.series[0]?.values).toEqual([6n]);
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
