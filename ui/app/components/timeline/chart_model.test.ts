// Tests of the columns and texts of the chart.

import { expect, test } from "vitest";
import { axisText, chartModel, exemplarDots, isolatedPoints, pointText, summaryText } from "./chart_model";
import type { TimelineData, TimelineSeries } from "./series_data";

const cpu = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
const inuse = "memory:inuse_space:bytes:space:bytes";
const named = (name: string, values: (bigint | undefined)[]): TimelineSeries => ({
  name,
  isOther: false,
  values,
  exemplars: [],
});
const data: TimelineData = {
  times: [15_000, 30_000],
  start: 0,
  stepMs: 15_000,
  isAverage: false,
  series: [named("a", [15_000_000_000n, undefined]), named("b", [30_000_000_000n, 15_000_000_000n])],
};
const rate = { isStacked: false, isRate: true, profileType: cpu };
const none: ReadonlySet<string> = new Set();

test("rates_are_in_cores_and_gaps_stay", () => {
  expect(chartModel(data, rate, none)).toEqual({
    times: [15, 30],
    heights: [
      [1, null],
      [2, 1],
    ],
    visible: [0, 1],
  });
});

test("stack_adds_visible_series_up", () => {
  const stacked = { ...rate, isStacked: true };
  expect(chartModel(data, stacked, none).heights).toEqual([
    [1, 0],
    [3, 1],
  ]);
  expect(chartModel(data, stacked, new Set(["a"])).heights).toEqual([[2, 1]]);
});

test("averages_are_never_stacked", () => {
  const gauge = { ...data, isAverage: true };
  const mode = { isStacked: true, isRate: true, profileType: inuse };
  expect(chartModel(gauge, mode, none).heights[1]).toEqual([30_000_000_000, 15_000_000_000]);
});

test("texts_are_exact", () => {
  expect(pointText(named("a", [45_000_000_000n]), 0, data, rate)).toBe("3 cores");
  expect(pointText(named("a", [undefined]), 0, data, rate)).toBe("–");
  expect(pointText(named("a", [45_000_000_000n]), 0, data, { ...rate, isRate: false })).toBe("45 s");
  expect(summaryText(data.series[1] as TimelineSeries, data, rate)).toBe("1.50 cores");
});

test("longer_first_step_has_its_own_rate", () => {
  const longer = { ...data, start: -15_000 };
  expect(chartModel(longer, rate, none).heights[1]).toEqual([1, 1]);
  expect(pointText(data.series[1] as TimelineSeries, 0, longer, rate)).toBe("1 cores");
  expect(summaryText(data.series[1] as TimelineSeries, longer, rate)).toBe("1 cores");
});

test("ticks_have_units", () => {
  expect(axisText(0.5, data, rate)).toBe("0.5 cores");
  expect(axisText(0.25, data, { ...rate, isRate: false })).toBe("250 ms");
  expect(axisText(2_000_000, data, { ...rate, profileType: inuse })).toBe("2 MB/s");
  expect(axisText(1000, data, { ...rate, profileType: "a:b:count::" })).toBe("1 k/s");
  expect(axisText(0, data, rate)).toBe("0");
});

test("isolated_points_are_found", () => {
  expect(isolatedPoints([1, null, 2, 3, null, 4])).toEqual([0, 5]);
});

test("dots_are_the_largest_of_their_run", () => {
  const exemplar = (place: number, value: bigint) => ({
    profileId: `${value}`,
    timestamp: 0,
    value,
    labels: "",
    place,
  });
  const many = {
    ...data,
    times: [1, 2, 3, 4],
    series: [
      { ...named("a", []), exemplars: [0, 1, 2, 3].map((place) => exemplar(place, BigInt((place * 7) % 5))) },
    ],
  };
  expect(exemplarDots(many, [0], 2).map(({ exemplar: { place } }) => place)).toEqual([1, 2]);
});
