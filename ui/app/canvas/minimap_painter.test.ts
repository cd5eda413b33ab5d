// Tests of the rows of a minimap.

import { expect, test } from "vitest";
import { minimapRows } from "./minimap_painter";

test("rows_of_shallow_graph_show_each_depth", () => {
  expect(minimapRows(40, 2)).toEqual([
    { depth: 0, top: 0, height: 4 },
    { depth: 1, top: 4, height: 4 },
    { depth: 2, top: 8, height: 4 },
  ]);
});

test("rows_of_deep_graph_are_a_pixel_high_and_skip_depths", () => {
  const rows = minimapRows(40, 511);
  expect(rows).toHaveLength(40);
  expect(rows.every(({ height }) => height === 1)).toBe(true);
  expect(rows.map(({ top }) => top)).toEqual(Array.from({ length: 40 }, (_, row) => row));
  expect([rows[0]?.depth, rows[1]?.depth, rows.at(-1)?.depth]).toEqual([0, 12, 499]);
});
