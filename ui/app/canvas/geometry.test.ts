// Tests of rows and of ranges.

import { describe, expect, it } from "vitest";
import {
  depthAt,
  isRowVisible,
  ROW_HEIGHT,
  type RowGeometry,
  rowTop,
  scrollToDepth,
  visibleDepths,
} from "./geometry";
import {
  blendRanges,
  clampRange,
  isSameRange,
  pinchRange,
  scaleRange,
  shiftRange,
  WHOLE_RANGE,
} from "./zoom_range";

describe.each(["flame", "icicle"] as const)("rows of %s", (direction) => {
  const geometry: RowGeometry = { direction, viewHeight: 300, contentHeight: 1000, scrollTop: 340 };

  it("depth_at_the_middle_of_a_row_is_its_depth", () => {
    for (let depth = 0; depth < 50; depth++) {
      expect(depthAt(geometry, rowTop(geometry, depth) + ROW_HEIGHT / 2)).toBe(depth);
    }
  });

  it("visible_rows_are_within_the_visible_depths", () => {
    const { first, last } = visibleDepths(geometry);
    for (let depth = 0; depth < 50; depth++) {
      if (isRowVisible(geometry, depth)) expect(depth >= first && depth <= last).toBe(true);
    }
    expect(last - first).toBeLessThanOrEqual(300 / ROW_HEIGHT + 1);
  });

  it("scrolling_to_a_row_shows_it", () => {
    for (let depth = 0; depth < 50; depth++) {
      const scrollTop = scrollToDepth(geometry, depth, 0.2);
      expect(isRowVisible({ ...geometry, scrollTop }, depth)).toBe(true);
    }
  });
});

describe("zoom ranges", () => {
  it("scaling_keeps_the_anchor", () => {
    const range = { from: 0.2, to: 0.6 };
    const scaled = scaleRange(range, 0.5, 0.25);
    expect(scaled.from + (scaled.to - scaled.from) * 0.25).toBeCloseTo(0.3);
    expect(scaled.to - scaled.from).toBeCloseTo(0.2);
  });

  it("ranges_stay_within_the_graph", () => {
    expect(scaleRange({ from: 0.5, to: 1 }, 100, 1)).toEqual(WHOLE_RANGE);
    expect(shiftRange({ from: 0.5, to: 1 }, 3)).toEqual({ from: 0.5, to: 1 });
    expect(clampRange({ from: -1, to: -0.5 })).toEqual({ from: 0, to: 0.5 });
    const tiny = scaleRange(WHOLE_RANGE, 0, 0.5);
    expect(tiny.to).toBeGreaterThan(tiny.from);
  });

  it("blend_begins_at_the_start_and_ends_at_the_end", () => {
    const start = { from: 0.1, to: 0.9 };
    const end = { from: 0.3, to: 0.31 };
    expect(isSameRange(blendRanges(start, end, 0), start)).toBe(true);
    expect(blendRanges(start, end, 1)).toEqual(end);
    const middle = blendRanges(start, end, 0.5);
    expect(middle.from).toBeGreaterThan(start.from);
    expect(middle.to).toBeGreaterThan(end.to);
  });
});

describe("pinchRange", () => {
  const range = { from: 0.2, to: 0.6 };
  const valueAt = ({ from, to }: { from: number; to: number }, share: number) => from + (to - from) * share;

  it("fingers_that_move_apart_halve_the_range_around_their_center", () => {
    const pinched = pinchRange(range, { center: 0.25, distance: 100 }, { center: 0.25, distance: 200 });
    expect(pinched.to - pinched.from).toBeCloseTo(0.2, 12);
    expect(valueAt(pinched, 0.25)).toBeCloseTo(valueAt(range, 0.25), 12);
  });

  it("fingers_that_move_together_pan", () => {
    const pinched = pinchRange(range, { center: 0.5, distance: 100 }, { center: 0.75, distance: 100 });
    expect(pinched.from).toBeCloseTo(0.1, 12);
    expect(pinched.to).toBeCloseTo(0.5, 12);
  });

  it("value_between_the_fingers_follows_them", () => {
    const pinched = pinchRange(range, { center: 0.4, distance: 90 }, { center: 0.55, distance: 240 });
    expect(valueAt(pinched, 0.55)).toBeCloseTo(valueAt(range, 0.4), 12);
  });

  it("value_between_the_fingers_follows_them_at_the_edge", () => {
    const pinched = pinchRange(WHOLE_RANGE, { center: 0.4, distance: 90 }, { center: 0.55, distance: 240 });
    expect(valueAt(pinched, 0.55)).toBeCloseTo(0.4, 12);
  });

  it("range_stays_within_the_graph", () => {
    expect(pinchRange(range, { center: 0.5, distance: 900 }, { center: 0.5, distance: 1 })).toEqual(
      WHOLE_RANGE,
    );
  });

  it("fingers_on_one_point_do_not_divide_by_zero", () => {
    const pinched = pinchRange(range, { center: 0.5, distance: 0 }, { center: 0.5, distance: 0 });
    expect(pinched.from).toBeCloseTo(range.from, 12);
    expect(pinched.to).toBeCloseTo(range.to, 12);
  });
});
