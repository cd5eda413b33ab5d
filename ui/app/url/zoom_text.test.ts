// Tests of zoomed ranges as text.

import { expect, test } from "vitest";
import { parseZoomRange, writeZoomRange } from "./zoom_text";

test("ranges_survive_as_text", () => {
  for (const range of [
    { from: 0, to: 1 },
    { from: 0.9652, to: 1 },
    { from: 3e-9, to: 4.5e-8 },
  ]) {
    expect(parseZoomRange(writeZoomRange(range))).toEqual(range);
  }
});

test("texts_without_range_are_rejected", () => {
  for (const text of ["", "0.5", "0.5-0.5", "0.6-0.5", "0-1.1", "-1-1", "a-b", "0-1-2", "NaN-1", "1e9-1"]) {
    expect(parseZoomRange(text), text).toBeUndefined();
  }
});
