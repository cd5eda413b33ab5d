// Tests of the rows of the fleet.

import { expect, test } from "vitest";
import {
  filterRows,
  firstPoint,
  fleetRows,
  fleetTotal,
  lastSeenText,
  pointCount,
  sortRows,
  sparklineRange,
} from "./fleet_rows";

const range = { start: 0, end: 60_000, step: 15_000 };
const labels = (service: string) => [{ name: "service_name", value: service }];
const series = (service: string, type: string) => ({
  labels: [...labels(service), { name: "__profile_type__", value: type }],
});

const rows = fleetRows("service_name", range, {
  points: [
    {
      labels: labels("shop"),
      points: [
        { timestamp: "15000", value: 5 },
        { timestamp: "60000", value: 7 },
      ],
    },
  ],
  totals: [
    {
      labels: labels("shop"),
      points: [
        { timestamp: "0", value: 6 },
        { timestamp: "60000", value: 12 },
      ],
    },
    { labels: labels("cart"), points: [{ timestamp: "60000", value: 3 }] },
    { labels: labels("old"), points: [{ timestamp: "0", value: 9_007_199_254_740_992 }] },
  ],
  series: { labelsSet: [series("shop", "b:b:c::"), series("shop", "a:a:c::"), series("idle", "a:a:c::")] },
});
const row = (name: string) => rows.find((candidate) => candidate.name === name);

test("points_are_at_their_step_and_gaps_are_empty", () => {
  expect([...(row("shop")?.points ?? [])]).toEqual([5, Number.NaN, Number.NaN, 7]);
  expect(row("shop")?.lastSeen).toBe(60_000);
  expect(row("shop")?.types).toEqual(["a:a:c::", "b:b:c::"]);
});

test("totals_of_both_periods_are_told_apart", () => {
  expect([row("shop")?.value, row("shop")?.previous]).toEqual([12n, 6n]);
  expect([row("cart")?.value, row("cart")?.previous]).toEqual([3n, undefined]);
  expect([row("old")?.value, row("old")?.previous]).toEqual([undefined, 9_007_199_254_740_992n]);
  expect(fleetTotal(rows)).toBe(15n);
});

test("service_without_the_type_has_a_row", () => {
  expect(row("idle")?.value).toBeUndefined();
});

test("rows_sort_by_cost_change_and_name", () => {
  const names = (column: string, reversed = false) =>
    sortRows(rows, column, reversed).map(({ name }) => name);
  expect(names("cost")).toEqual(["shop", "cart", "idle", "old"]);
  expect(names("name", true)).toEqual(["shop", "old", "idle", "cart"]);
  // A service without a previous period grew without bound.
  expect(names("change").slice(0, 2)).toEqual(["cart", "shop"]);
});

test("filter_ignores_letter_case", () => {
  expect(filterRows(rows, " SHO ").map(({ name }) => name)).toEqual(["shop"]);
  expect(filterRows(rows, "")).toHaveLength(4);
});

test("sparkline_has_at_most_sixty_points_and_ends_with_the_range", () => {
  const day = sparklineRange({ start: 0, end: 86_400_000, step: 900_000 });
  expect([pointCount(day), firstPoint(day)]).toEqual([48, 86_400_000 - 47 * 1_800_000]);
  expect(sparklineRange(range)).toEqual(range);
  // 61 steps make 31 points, the first of which reaches before the range.
  const odd = sparklineRange({ start: 0, end: 61_000, step: 1_000 });
  expect([odd.step, pointCount(odd), firstPoint(odd)]).toEqual([2_000, 31, 1_000]);
});

test("last_profile_has_its_age_now_in_whole_steps", () => {
  const now = 7_200_000;
  const textOf = (lastSeen: number, currentTime = now) => lastSeenText(lastSeen, 15_000, currentTime);
  expect([7_200_000, 7_185_000, 7_170_000, 7_050_000, 0].map((time) => textOf(time))).toEqual([
    "< 15 s ago",
    "< 15 s ago",
    "30 s ago",
    "2 min ago",
    "2 h ago",
  ]);
  // The end of the range does not count: the last step of an old range is old.
  expect(textOf(7_200_000, now + 61 * 86_400_000)).toBe("61 d ago");
});

test("last_step_may_end_after_now", () => {
  expect(lastSeenText(7_210_000, 15_000, 7_200_000)).toBe("< 15 s ago");
  expect(lastSeenText(10_800_000, 15_000, 7_200_000)).toBe("in 60 min");
});
