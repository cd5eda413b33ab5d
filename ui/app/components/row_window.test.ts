// Tests of the window of visible rows.

import { expect, test } from "vitest";
import { MAX_SCROLL_HEIGHT, rowOfKey, rowWindow, scrollHeightOf, scrollTopFor } from "./row_window";

const small = { rowCount: 2_000, rowHeight: 24, viewport: 480 };
const million = { rowCount: 1_000_000, rowHeight: 24, viewport: 480 };

test("window_of_short_list_has_visible_rows_and_overscan", () => {
  expect(scrollHeightOf(small)).toBe(48_000);
  expect(rowWindow(0, small)).toEqual({ first: 0, end: 29, offset: 0 });
  expect(rowWindow(2400, small)).toEqual({ first: 92, end: 129, offset: 92 * 24 });
});

test("scaled_list_reaches_first_and_last_row", () => {
  expect(scrollHeightOf(million)).toBe(MAX_SCROLL_HEIGHT);
  const bottom = MAX_SCROLL_HEIGHT - million.viewport;
  const window = rowWindow(bottom, million);
  expect(window.end).toBe(1_000_000);
  // The last row ends at the bottom of the scrolled area.
  expect(window.offset + (window.end - window.first) * 24).toBeCloseTo(MAX_SCROLL_HEIGHT, 3);
  expect(rowWindow(0, million).first).toBe(0);
});

test("scroll_position_shows_row_at_nearest_edge", () => {
  expect(scrollTopFor(5, 0, small)).toBe(0);
  expect(scrollTopFor(20, 0, small)).toBe(24);
  expect(scrollTopFor(3, 2400, small)).toBe(72);
  const scrollTop = scrollTopFor(999_999, 0, million);
  expect(rowWindow(scrollTop, million).end).toBe(1_000_000);
});

test("keys_stay_within_the_list", () => {
  expect(rowOfKey("ArrowUp", 0, 10, 5)).toBe(0);
  expect(rowOfKey("PageDown", 7, 10, 5)).toBe(9);
  expect(rowOfKey("End", 0, 10, 5)).toBe(9);
  expect(rowOfKey("a", 0, 10, 5)).toBeUndefined();
  expect(rowOfKey("End", 0, 0, 5)).toBeUndefined();
});
