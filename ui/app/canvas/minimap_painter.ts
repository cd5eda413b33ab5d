// Drawing of the minimap: the whole graph in small, with the visible part marked.

import { type NameSlots, SLOT_COUNT, slotOfShare } from "../graph/colors";
import type { Graph } from "../graph/graph";
import { BoxKind, BoxList, type LayoutColumns, layOutBoxes } from "../graph/layout";
import { cssColor } from "../graph/oklch";
import { isMatchingNode } from "../graph/search";
import type { FlameScene } from "./flame_painter";
import type { DepthRange } from "./geometry";
import { beginDrawing, type SurfaceSize } from "./surface";
import type { ZoomRange } from "./zoom_range";

/** Whole graph, as the minimap shows it. */
export interface MinimapScene {
  readonly graph: Graph;
  readonly columns: LayoutColumns;
  readonly colors: FlameScene["colors"];
  readonly slots: NameSlots | undefined;
  readonly matches: Uint8Array | undefined;
  readonly size: SurfaceSize;
  readonly rootAtBottom: boolean;
}

const MAX_ROW_HEIGHT = 4;
/** Rows below a pixel would fade away. A deeper graph shows some of its rows. */
const MIN_ROW_HEIGHT = 1;

/** Returns the height that one level of the graph has. */
function levelHeight(size: SurfaceSize, maxDepth: number): number {
  return Math.min(MAX_ROW_HEIGHT, size.height / (maxDepth + 1));
}

/** Row of the minimap, and the depth that it shows. */
export interface MinimapRow {
  readonly depth: number;
  readonly top: number;
  readonly height: number;
}

/** Returns the rows of a minimap from the root. They are at least one pixel high, and skip depths if need be. */
export function minimapRows(height: number, maxDepth: number): MinimapRow[] {
  const count = Math.min(maxDepth + 1, Math.max(1, Math.floor(height / MIN_ROW_HEIGHT)));
  const rowHeight = Math.min(MAX_ROW_HEIGHT, height / count);
  return Array.from({ length: count }, (_, row) => ({
    depth: Math.floor((row * (maxDepth + 1)) / count),
    top: row * rowHeight,
    height: rowHeight,
  }));
}

/**
 * Draws the whole graph. Only a new graph, color or size needs it. Returns the deepest depth with a box: rows whose
 * frames are all narrower than a pixel take no place.
 */
export function paintMinimap(canvas: HTMLCanvasElement, scene: MinimapScene): number {
  const context = beginDrawing(canvas, scene.size);
  if (context === null) return 0;
  const { graph, columns, size, colors } = scene;
  const whole = graph.total[0] as number;
  if (!(whole > 0)) return 0;
  const lastDepth = columns.deepest[0] as number;
  const boxes = new BoxList();
  layOutBoxes(
    graph,
    columns,
    { from: 0, to: whole, widthPixels: size.width, firstDepth: 0, lastDepth },
    boxes,
  );
  const styles = [...colors.fills, colors.dimmedFill, colors.mergedFill, colors.hiddenFill].map((color) =>
    cssColor(color),
  );
  for (const { depth, top, height } of minimapRows(size.height, boxes.lastDepth)) {
    const { first, end } = boxes.rowOf(depth);
    const y = scene.rootAtBottom ? size.height - top - height : top;
    for (let box = first; box < end; box++) {
      context.fillStyle = styles[styleOf(scene, boxes, box)] as string;
      context.fillRect(boxes.left[box] as number, y, boxes.width[box] as number, height);
    }
  }
  return boxes.lastDepth;
}

/** Returns the index of a box's color: of its slot, or behind the slots one of the other colors. */
function styleOf(scene: MinimapScene, boxes: BoxList, box: number): number {
  const { graph, matches, slots } = scene;
  const node = boxes.node[box] as number;
  if (boxes.kind[box] === BoxKind.hidden) return SLOT_COUNT + 2;
  if (matches !== undefined && !isMatchingNode(graph, matches, node)) return SLOT_COUNT;
  if (node === 0) return SLOT_COUNT + 1;
  return slots === undefined
    ? slotOfShare((graph.total[node] as number) / (graph.total[0] as number))
    : slots.slotOf(graph.name[node] as number);
}

/** Smallest edge of the mark of the visible part. */
const MIN_WINDOW_PIXELS = 4;
const WINDOW_LINE_PIXELS = 2;
const VEIL_OPACITY = 0.7;

/** Part of a graph that its view shows. */
export interface MinimapWindow {
  readonly range: ZoomRange;
  readonly rows: DepthRange;
}

/** Properties of the minimap on which the mark of the visible part depends. */
export interface WindowScene extends Pick<MinimapScene, "size" | "colors" | "rootAtBottom"> {
  /** Deepest depth that the minimap shows. */
  readonly maxDepth: number;
}

/** Draws a frame around the visible part, and a veil over the rest. Nothing if all is visible. */
export function paintMinimapWindow(
  canvas: HTMLCanvasElement,
  scene: WindowScene,
  { range, rows }: MinimapWindow,
): void {
  const context = beginDrawing(canvas, scene.size);
  if (context === null) return;
  const { width, height } = scene.size;
  const isWhole = range.from <= 0 && range.to >= 1;
  if (isWhole && rows.first <= 0 && rows.last >= scene.maxDepth) return;
  const across = windowEdges(range.from * width, range.to * width, width);
  const along = windowEdges(...rowEdges(scene, rows), height);
  context.fillStyle = cssColor(scene.colors.background, VEIL_OPACITY);
  context.fillRect(0, 0, width, height);
  context.clearRect(across.low, along.low, across.high - across.low, along.high - along.low);
  context.strokeStyle = cssColor(scene.colors.focusRing);
  context.lineWidth = WINDOW_LINE_PIXELS;
  const inset = WINDOW_LINE_PIXELS / 2;
  context.strokeRect(
    across.low + inset,
    along.low + inset,
    across.high - across.low - WINDOW_LINE_PIXELS,
    along.high - along.low - WINDOW_LINE_PIXELS,
  );
}

/** Returns the top and the bottom of rows. Rows at the ends of the graph reach to the edge. */
function rowEdges(scene: WindowScene, { first, last }: DepthRange): [number, number] {
  const { size, maxDepth, rootAtBottom } = scene;
  const rowHeight = levelHeight(size, maxDepth);
  const near = first <= 0 ? 0 : Math.min(size.height, first * rowHeight);
  const far = last >= maxDepth ? size.height : (last + 1) * rowHeight;
  return rootAtBottom ? [size.height - far, size.height - near] : [near, far];
}

/** Widens a span that is too narrow to see, within 0 and `limit`. */
function windowEdges(from: number, to: number, limit: number): { low: number; high: number } {
  const extent = Math.min(limit, Math.max(MIN_WINDOW_PIXELS, to - from));
  const low = Math.min(limit - extent, Math.max(0, (from + to - extent) / 2));
  return { low, high: low + extent };
}
