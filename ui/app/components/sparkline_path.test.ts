// Tests of the paths of sparklines.
import { expect, test } from "vitest";
import { sparklinePaths } from "./sparkline_path";

const size = { width: 40, height: 12 };
const pathsOf = (...values: number[]) => sparklinePaths(Float64Array.from(values), size);

test("values_span_the_width_and_the_scale_begins_at_zero", () => {
  expect(pathsOf(0, 10, 5, 10)).toEqual({
    line: "M0 11L5 11L15 1L25 6L35 1L40 1",
    area: "M0 12L0 11L5 11L15 1L25 6L35 1L40 1L40 12Z",
  });
});

test("gaps_divide_the_line_and_a_single_point_is_a_short_line", () => {
  const { line, area } = pathsOf(Number.NaN, 8, Number.NaN, 4);
  expect(line).toBe("M10 1L15 1L20 1M30 6L35 6L40 6");
  expect(area).toBe("M10 12L10 1L15 1L20 1L20 12ZM30 12L30 6L35 6L40 6L40 12Z");
});

test("nothing_is_drawn_without_a_positive_value", () => {
  for (const values of [[], [Number.NaN, Number.NaN], [0, 0]])
    expect(pathsOf(...values)).toEqual({ line: "", area: "" });
});

test("paths_have_short_numbers", () => {
  expect(pathsOf(1, 3, 2).line).toBe("M0 7.7L6.7 7.7L20 1L33.3 4.3L40 4.3");
});
