// Visible part of a graph across, as fractions of the root's total.

/** Range from 0 to 1, `from` < `to`. */
export interface ZoomRange {
  readonly from: number;
  readonly to: number;
}

export const WHOLE_RANGE: ZoomRange = { from: 0, to: 1 };

/** Narrowest range. Narrower ones would exceed the precision of floating-point numbers. */
const MIN_RANGE = 1e-12;

/** Returns the nearest range within the graph. Keeps the width where it can. */
export function clampRange(range: ZoomRange): ZoomRange {
  const width = Math.min(1, Math.max(MIN_RANGE, range.to - range.from));
  const from = Math.min(1 - width, Math.max(0, range.from));
  return { from, to: from + width };
}

/** Scales a range around a point that keeps its place. `anchor` is the point's share of the view's width. */
export function scaleRange(range: ZoomRange, factor: number, anchor: number): ZoomRange {
  const width = Math.min(1, Math.max(MIN_RANGE, (range.to - range.from) * factor));
  const point = range.from + (range.to - range.from) * anchor;
  return clampRange({ from: point - width * anchor, to: point + width * (1 - anchor) });
}

/** Moves a range by a share of its width. */
export function shiftRange(range: ZoomRange, share: number): ZoomRange {
  const offset = (range.to - range.from) * share;
  return clampRange({ from: range.from + offset, to: range.to + offset });
}

export function isSameRange(first: ZoomRange, second: ZoomRange): boolean {
  const tolerance = 1e-6 * Math.min(first.to - first.from, second.to - second.from);
  return Math.abs(first.from - second.from) <= tolerance && Math.abs(first.to - second.to) <= tolerance;
}

/** Returns the range between two ranges. Widths change by equal factors, which the eye sees as even motion. */
export function blendRanges(start: ZoomRange, end: ZoomRange, progress: number): ZoomRange {
  if (progress >= 1) return end;
  const startWidth = start.to - start.from;
  const endWidth = end.to - end.from;
  const width = startWidth * (endWidth / startWidth) ** progress;
  // The share of the way that the width has gone; the place goes along, so that the target stays in view.
  const share = startWidth === endWidth ? progress : (width - startWidth) / (endWidth - startWidth);
  const from = start.from + (end.from - start.from) * share;
  return { from, to: from + width };
}

/** Two fingers on a view: their center as a share of its width, and their distance in pixels. */
export interface FingerPair {
  readonly center: number;
  readonly distance: number;
}

/** Fingers closer than this count as this far apart, since a touch is no finer. */
const MIN_FINGER_DISTANCE = 16;

/** Returns the range after two fingers moved. The values between them stay between them. */
export function pinchRange(range: ZoomRange, before: FingerPair, after: FingerPair): ZoomRange {
  const apart = Math.max(MIN_FINGER_DISTANCE, before.distance);
  const extent = range.to - range.from;
  const width = Math.min(
    1,
    Math.max(MIN_RANGE, (extent * apart) / Math.max(MIN_FINGER_DISTANCE, after.distance)),
  );
  const from = range.from + extent * before.center - width * after.center;
  return clampRange({ from, to: from + width });
}
