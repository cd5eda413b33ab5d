// Tests of requests that views stand for.
import { expect, test } from "vitest";
import { now } from "./clock";
import { chosenTimesOf, graphRequestOf, queryOf, timeRangeOf } from "./query_of";
import { DEFAULT_VIEW, type ViewState } from "./view_state";

const CPU_TYPE = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
const view = (change: Partial<ViewState>): ViewState => ({
  ...DEFAULT_VIEW,
  profileType: CPU_TYPE,
  ...change,
});

const RELATIVE = ["now-1m", "now-5m", "now-37m", "now-1h", "now-6h", "now-7d", "now-30d", "now-20y"];

test("range is rounded outwards to the step", () => {
  for (const from of RELATIVE) {
    const { start, end, step } = timeRangeOf({ from, until: "now" });
    const [chosen] = chosenTimesOf({ from, until: "now" });
    expect(end % step).toBe(0);
    expect(start % step).toBe(0);
    expect(end).toBeGreaterThanOrEqual(now.value);
    expect(end - now.value).toBeLessThan(step);
    expect(start).toBeLessThanOrEqual(chosen);
    expect((end - start) / step).toBeLessThanOrEqual(241);
  }
});

test("range with fixed times contains both of them, with less than a step around them", () => {
  const first = Date.UTC(2026, 2, 1, 0, 1);
  for (let index = 1; index < 2_000; index++) {
    const from = first + index * 977_003;
    const until = from + 1_000 + ((index * index * 1_237) % (35 * 86_400_000));
    const { start, end, step } = timeRangeOf({ from: String(from), until: String(until) });
    expect([start % step, end % step]).toEqual([0, 0]);
    expect(from - start).toBeGreaterThanOrEqual(0);
    expect(from - start).toBeLessThan(step);
    expect(end - until).toBeGreaterThanOrEqual(0);
    expect(end - until).toBeLessThan(step);
    expect((end - start) / step).toBeLessThanOrEqual(241);
    expect(timeRangeOf({ from: String(start), until: String(end) })).toEqual({ start, end, step });
  }
});

test("fixed times of a link give the same range as the relative ones", () => {
  for (const from of RELATIVE) {
    const range = timeRangeOf({ from, until: "now" });
    expect(timeRangeOf({ from: String(range.start), until: String(range.end) })).toEqual(range);
  }
});

test("range from 1970 has a start that is not 0, and whole steps before its end", () => {
  for (const from of ["0", "1970-01-01", "1969-12-31T18:15:00Z"]) {
    const { start, end, step } = timeRangeOf({ from, until: "now" });
    expect(start).toBe(1);
    expect(end % step).toBe(0);
  }
  expect(timeRangeOf({ from: "1969-12-30", until: "1969-12-31" }).end).toBeGreaterThan(1);
});

test("reversed, empty and unreadable ranges stay usable", () => {
  for (const [from, until] of [
    ["now", "now-1h"],
    ["now", "now"],
    ["x", "y"],
    ["0", "now"],
  ] as const) {
    const { start, end, step } = timeRangeOf({ from, until });
    expect(start).toBeLessThan(end);
    expect((end - start) / step).toBeLessThanOrEqual(242);
  }
});

test("steps are round and bounded", () => {
  const steps = ["now-1m", "now-5m", "now-1h", "now-1d", "now-30d"].map(
    (from) => timeRangeOf({ from, until: "now" }).step,
  );
  expect(steps).toEqual([5_000, 15_000, 15_000, 600_000, 10_800_000]);
});

test("query has transforms and ids only if the view has them", () => {
  expect(queryOf(view({ profileType: "" }))).toBeUndefined();
  expect(Object.keys(queryOf(view({})) ?? {})).toEqual(["profileType", "selector", "start", "end"]);
  const query = queryOf(
    view({
      profileIds: ["a1"],
      transforms: [
        { action: "focus", pattern: "main", isRegex: false },
        { action: "hide", pattern: "^runtime", isRegex: true },
        { action: "collapseRecursion", pattern: undefined, isRegex: false },
        { action: "collapseRecursion", pattern: "", isRegex: false },
      ],
    }),
  );
  expect(query?.profileIdSelector).toEqual(["a1"]);
  expect(query?.transforms).toEqual([
    { focus: { name: "main" } },
    { hide: { regex: "^runtime" } },
    { collapseRecursion: {} },
    { collapseRecursion: { name: "" } },
  ]);
});

test("graph request has grouping and inversion", () => {
  expect(graphRequestOf(view({ frames: "label:pod", inverted: true }))).toMatchObject({
    groupByLabel: "pod",
    invert: true,
  });
  expect(graphRequestOf(view({ frames: "file" }))?.groupBy).toBe("GRAPH_GROUP_BY_FILE");
  expect(Object.keys(graphRequestOf(view({})) ?? {})).toEqual(["query"]);
});
