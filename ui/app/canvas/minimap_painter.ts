// Drawing of the minimap: the whole graph in small, with the visible part marked.

import { SLOT_COUNT, slotOfShare } from "../graph/colors";
import type { Graph } from "../graph/graph";
import { BoxKind, BoxList, type LayoutColumns, layOutBoxes } from "../graph/layout";
import { cssColor } from "../graph/oklch";
import type { FlameScene } from "./flame_painter";
import { beginDrawing, type SurfaceSize } from "./surface";
import type { ZoomRange } from "./zoom_range";

/** Whole graph, as the minimap shows it. */
export interface MinimapScene {
  readonly graph: Graph;
  readonly columns: LayoutColumns;
  readonly colors: FlameScene["colors"];
  readonly slots: Uint8Array | undefined;
  readonly matches: Uint8Array | undefined;
  readonly size: SurfaceSize;
  readonly rootAtBottom: boolean;
}

const MAX_ROW_HEIGHT = 4;

/** Draws the whole graph. Only a new graph, color or size needs it. */
export function paintMinimap(canvas: HTMLCanvasElement, scene: MinimapScene): void {
  const context = beginDrawing(canvas, scene.size);
  if (context === null) return;
  const { graph, columns, size, colors } = scene;
  const whole = graph.total[0] as number;
  if (!(whole > 0)) return;
  const maxDepth = columns.deepest[0] as number;
  const rowHeight = Math.min(MAX_ROW_HEIGHT, size.height / (maxDepth + 1));
  const boxes = new BoxList();
  layOutBoxes(
    graph,
    columns,
    { from: 0, to: whole, widthPixels: size.width, firstDepth: 0, lastDepth: maxDepth },
    boxes,
  );
  const styles = [...colors.fills, colors.dimmedFill, colors.mergedFill, colors.hiddenFill].map((color) =>
    cssColor(color),
  );
  for (let depth = 0; depth <= maxDepth; depth++) {
    const { first, end } = boxes.rowOf(depth);
    const y = scene.rootAtBottom ? size.height - (depth + 1) * rowHeight : depth * rowHeight;
    for (let box = first; box < end; box++) {
      context.fillStyle = styles[styleOf(scene, boxes, box)] as string;
      context.fillRect(boxes.left[box] as number, y, boxes.width[box] as number, rowHeight);
    }
  }
}

/** Returns the index of a box's color: of its slot, or behind the slots one of the other colors. */
function styleOf(scene: MinimapScene, boxes: BoxList, box: number): number {
  const { graph, matches, slots } = scene;
  const node = boxes.node[box] as number;
  if (boxes.kind[box] === BoxKind.hidden) return SLOT_COUNT + 2;
  const name = graph.name[node] as number;
  if (matches !== undefined && matches[name] !== 1) return SLOT_COUNT;
  if (node === 0) return SLOT_COUNT + 1;
  return slots === undefined
    ? slotOfShare((graph.total[node] as number) / (graph.total[0] as number))
    : (slots[name] as number);
}

/** Narrowest mark of the visible part. */
const MIN_WINDOW_PIXELS = 3;

/** Draws a frame around the visible part, and a veil over the rest. */
export function paintMinimapWindow(
  canvas: HTMLCanvasElement,
  scene: Pick<MinimapScene, "size" | "colors">,
  range: ZoomRange,
): void {
  const context = beginDrawing(canvas, scene.size);
  if (context === null) return;
  const { width, height } = scene.size;
  if (range.from <= 0 && range.to >= 1) return;
  const center = ((range.from + range.to) / 2) * width;
  const extent = Math.max(MIN_WINDOW_PIXELS, (range.to - range.from) * width);
  const left = Math.max(0, center - extent / 2);
  const right = Math.min(width, center + extent / 2);
  context.fillStyle = cssColor(scene.colors.background, 0.65);
  context.fillRect(0, 0, left, height);
  context.fillRect(right, 0, width - right, height);
  context.strokeStyle = cssColor(scene.colors.focusRing);
  context.lineWidth = 1.5;
  context.strokeRect(left + 0.75, 0.75, Math.max(1, right - left - 1.5), height - 1.5);
}
