// Window of visible rows of a long list. Browsers limit the height of an element, so a longer list is scaled.

/** Maximum height of the scrolled area. Firefox draws nothing below about 17.8 million pixels. */
export const MAX_SCROLL_HEIGHT = 8_000_000;

/** Rows that are drawn above and below the visible ones. */
export const OVERSCAN_ROWS = 8;

export interface RowWindow {
  /** Index of the first row to draw. */
  readonly first: number;
  /** Index after the last row to draw. */
  readonly end: number;
  /** Distance of row `first` from the top of the scrolled area, in pixels. */
  readonly offset: number;
}

export interface ListGeometry {
  readonly rowCount: number;
  readonly rowHeight: number;
  /** Height of the visible area without the header. */
  readonly viewport: number;
}

/** Returns the height of the scrolled area. */
export function scrollHeightOf({ rowCount, rowHeight }: ListGeometry): number {
  return Math.min(rowCount * rowHeight, MAX_SCROLL_HEIGHT);
}

/** Returns pixels of the list for each pixel of the scrolled area; 1 unless the list is scaled. */
function scaleOf(geometry: ListGeometry): number {
  const scrollable = scrollHeightOf(geometry) - geometry.viewport;
  const wanted = geometry.rowCount * geometry.rowHeight - geometry.viewport;
  return scrollable <= 0 || wanted <= scrollable ? 1 : wanted / scrollable;
}

/** Returns the rows to draw at a scroll position. */
export function rowWindow(scrollTop: number, geometry: ListGeometry): RowWindow {
  const { rowCount, rowHeight, viewport } = geometry;
  const top = Math.max(0, scrollTop) * scaleOf(geometry);
  const visible = Math.ceil(viewport / rowHeight) + 1;
  const firstVisible = Math.min(Math.floor(top / rowHeight), Math.max(0, rowCount - visible));
  const first = Math.max(0, firstVisible - OVERSCAN_ROWS);
  const end = Math.min(rowCount, firstVisible + visible + OVERSCAN_ROWS);
  return { first, end, offset: scrollTop + first * rowHeight - top };
}

/** Returns the maximum number of rows in a window. */
export function maxDrawnRows({ rowHeight, viewport }: ListGeometry): number {
  return Math.ceil(viewport / rowHeight) + 1 + 2 * OVERSCAN_ROWS;
}

/** Returns the scroll position that shows a row completely, nearest to the current one. */
export function scrollTopFor(row: number, scrollTop: number, geometry: ListGeometry): number {
  const { rowHeight, viewport } = geometry;
  const scale = scaleOf(geometry);
  const top = row * rowHeight;
  const shownTop = scrollTop * scale;
  if (top < shownTop) return top / scale;
  if (top + rowHeight > shownTop + viewport) return (top + rowHeight - viewport) / scale;
  return scrollTop;
}

/** Returns the row that a navigation key moves to, or undefined for other keys. */
export function rowOfKey(key: string, row: number, rowCount: number, pageRows: number): number | undefined {
  const last = rowCount - 1;
  if (last < 0) return undefined;
  const target = {
    ArrowDown: row + 1,
    ArrowUp: row - 1,
    PageDown: row + pageRows,
    PageUp: row - pageRows,
    Home: 0,
    End: last,
  }[key];
  return target === undefined ? undefined : Math.min(last, Math.max(0, target));
}
