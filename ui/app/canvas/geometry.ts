// Places of rows on a flame graph, and conversions between pixels and depths.

/** `icicle` has the root at the top, `flame` at the bottom. */
export type GraphDirection = "flame" | "icicle";

export const ROW_HEIGHT = 20;

/** Rows of a graph in a scrolled view. */
export interface RowGeometry {
  readonly direction: GraphDirection;
  readonly viewHeight: number;
  /** Height of all rows, at least that of the view. */
  readonly contentHeight: number;
  readonly scrollTop: number;
}

export function contentHeightOf(maxDepth: number, viewHeight: number): number {
  return Math.max(viewHeight, (maxDepth + 1) * ROW_HEIGHT);
}

/** Returns the top of a row relative to the view. */
export function rowTop(geometry: RowGeometry, depth: number): number {
  const offset =
    geometry.direction === "icicle" ? depth * ROW_HEIGHT : geometry.contentHeight - (depth + 1) * ROW_HEIGHT;
  return offset - geometry.scrollTop;
}

/** Returns the depth of the row at a position in the view. It may lie beyond the graph. */
export function depthAt(geometry: RowGeometry, y: number): number {
  const position = y + geometry.scrollTop;
  const offset = geometry.direction === "icicle" ? position : geometry.contentHeight - position;
  return Math.floor(offset / ROW_HEIGHT);
}

/** Range of depths, both included. */
export interface DepthRange {
  readonly first: number;
  readonly last: number;
}

export function visibleDepths(geometry: RowGeometry): DepthRange {
  const top = depthAt(geometry, 0);
  const bottom = depthAt(geometry, geometry.viewHeight);
  return { first: Math.max(0, Math.min(top, bottom)), last: Math.max(0, top, bottom) };
}

/** Returns the scroll position that shows a row, at the given share of the view's height, as far as the ends allow. */
export function scrollToDepth(geometry: RowGeometry, depth: number, share: number): number {
  const top = rowTop({ ...geometry, scrollTop: 0 }, depth);
  const inset = geometry.direction === "icicle" ? share : 1 - share;
  const wanted = top - inset * (geometry.viewHeight - ROW_HEIGHT);
  return Math.min(Math.max(0, wanted), geometry.contentHeight - geometry.viewHeight);
}

/** Returns whether a row lies wholly within the view. */
export function isRowVisible(geometry: RowGeometry, depth: number): boolean {
  const top = rowTop(geometry, depth);
  return top >= 0 && top + ROW_HEIGHT <= geometry.viewHeight;
}
