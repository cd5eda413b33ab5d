// Drawing of a flame graph: fills, patterns and labels of the visible boxes, and rings above them.

import { CodeKind, type NameKinds } from "../graph/code_kind";
import { type FrameColors, type NameSlots, SLOT_COUNT, slotOfShare } from "../graph/colors";
import type { Graph } from "../graph/graph";
import { BoxKind, type BoxList } from "../graph/layout";
import { cssColor } from "../graph/oklch";
import { isMatchingNode } from "../graph/search";
import { ROW_HEIGHT, type RowGeometry, rowTop } from "./geometry";
import { type LabelCache, prepareLabelContext } from "./labels";
import { createPatterns, type PatternSet } from "./patterns";
import { beginDrawing, type SurfaceSize } from "./surface";

const LABEL_PADDING = 3;
/** Narrower boxes have no label. */
const MIN_LABEL_WIDTH = 26;
/** Narrower boxes have neither a gap nor a pattern. */
const MIN_DECORATED_WIDTH = 4;
const ROW_GAP = 1;

/** Everything that a drawing shows besides the boxes. */
export interface FlameScene {
  readonly graph: Graph;
  readonly boxes: BoxList;
  readonly geometry: RowGeometry;
  readonly size: SurfaceSize;
  readonly colors: FrameColors;
  readonly kinds: NameKinds;
  /** Slots of names, or undefined to color by share. */
  readonly slots: NameSlots | undefined;
  /** Flag of each name that the search matches; undefined without a search. */
  readonly matches: Uint8Array | undefined;
  /** Text of a box of weight that the server left out. */
  readonly hiddenLabel: (node: number) => string;
}

/** Marks above the boxes. */
export interface FlameMarks {
  readonly hoveredBox: number;
  /** Name that is hovered here or in another view; -1 for none. */
  readonly hoveredName: number;
  readonly selectedNode: number;
  readonly hasFocus: boolean;
}

/** Painter of one canvas. Keeps colors and patterns from one drawing to the next. */
export class FlamePainter {
  private styles: readonly string[] = [];
  private styledColors: FrameColors | undefined;
  private patterns: PatternSet | undefined;
  private patternRatio = 0;
  private readonly order = { start: new Uint32Array(SLOT_COUNT + 4), boxes: new Uint32Array(0) };

  paint(canvas: HTMLCanvasElement, scene: FlameScene, labels: LabelCache): void {
    const context = beginDrawing(canvas, scene.size);
    if (context === null) return;
    this.prepareStyles(context, scene);
    this.paintFills(context, scene);
    this.paintPatterns(context, scene);
    paintLabels(context, scene, labels);
  }

  private prepareStyles(context: CanvasRenderingContext2D, scene: FlameScene): void {
    const { colors, size } = scene;
    if (this.styledColors === colors && this.patternRatio === size.pixelRatio) return;
    this.styledColors = colors;
    this.patternRatio = size.pixelRatio;
    const extra = [colors.dimmedFill, colors.mergedFill, colors.hiddenFill];
    this.styles = [...colors.fills, ...extra].map((color) => cssColor(color));
    this.patterns = createPatterns(context, colors, size.pixelRatio);
  }

  /** Fills the boxes of one color after the other: changes of the color cost more than rectangles. */
  private paintFills(context: CanvasRenderingContext2D, scene: FlameScene): void {
    const { boxes } = scene;
    const sorted = this.sortBoxesByStyle(scene);
    for (let style = 0; style < this.styles.length; style++) {
      const first = this.order.start[style] as number;
      const end = this.order.start[style + 1] as number;
      if (first === end) continue;
      context.fillStyle = this.styles[style] as string;
      for (let position = first; position < end; position++) {
        const box = sorted[position] as number;
        const { x, y, width } = boxRect(scene, box);
        context.fillRect(x, y, width, ROW_HEIGHT - ROW_GAP);
      }
    }
    if (boxes.count > 0) paintHiddenBorders(context, scene);
  }

  private sortBoxesByStyle(scene: FlameScene): Uint32Array {
    const { boxes } = scene;
    const { start } = this.order;
    if (this.order.boxes.length < boxes.count) this.order.boxes = new Uint32Array(boxes.node.length);
    start.fill(0);
    const styleOf = new Uint8Array(boxes.count);
    for (let box = 0; box < boxes.count; box++) {
      const style = styleOfBox(scene, box);
      styleOf[box] = style;
      start[style + 1] = (start[style + 1] as number) + 1;
    }
    for (let style = 1; style < start.length; style++) {
      start[style] = (start[style] as number) + (start[style - 1] as number);
    }
    const next = start.slice();
    for (let box = 0; box < boxes.count; box++) {
      const style = styleOf[box] as number;
      this.order.boxes[next[style] as number] = box;
      next[style] = (next[style] as number) + 1;
    }
    return this.order.boxes;
  }

  private paintPatterns(context: CanvasRenderingContext2D, scene: FlameScene): void {
    const { boxes, graph, kinds } = scene;
    for (let box = 0; box < boxes.count; box++) {
      if ((boxes.width[box] as number) < MIN_DECORATED_WIDTH) continue;
      const boxKind = boxes.kind[box];
      if (boxKind === BoxKind.merged) continue;
      const node = boxes.node[box] as number;
      const kind = kinds.kindOf(graph.name[node] as number);
      const isPlain = node === 0 || kind === CodeKind.application || isDimmed(scene, node);
      if (boxKind === BoxKind.frame && isPlain) continue;
      const pattern = boxKind === BoxKind.hidden ? this.patterns?.hidden : this.patterns?.ofKind.get(kind);
      if (pattern === undefined) continue;
      const { x, y, width } = boxRect(scene, box);
      context.fillStyle = pattern;
      context.fillRect(x, y, width, ROW_HEIGHT - ROW_GAP);
    }
  }
}

/** Returns whether a search dims a node. */
function isDimmed({ graph, matches }: FlameScene, node: number): boolean {
  return matches !== undefined && !isMatchingNode(graph, matches, node);
}

function styleOfBox(scene: FlameScene, box: number): number {
  const { boxes, graph, slots } = scene;
  const kind = boxes.kind[box];
  // A narrow box looks like the heaviest of its frames, a wide one like none.
  if (kind === BoxKind.merged && (boxes.width[box] as number) >= MIN_DECORATED_WIDTH) return SLOT_COUNT + 1;
  if (kind === BoxKind.hidden) return SLOT_COUNT + 2;
  const node = boxes.node[box] as number;
  if (isDimmed(scene, node)) return SLOT_COUNT;
  // The root stands for no code.
  if (node === 0) return SLOT_COUNT + 1;
  return slots === undefined
    ? slotOfShare((graph.total[node] as number) / (graph.total[0] as number))
    : slots.slotOf(graph.name[node] as number);
}

interface BoxRect {
  readonly x: number;
  readonly y: number;
  readonly width: number;
}

/** Returns the rectangle of a box, with edges on device pixels. */
function boxRect(scene: Pick<FlameScene, "boxes" | "geometry" | "size">, box: number): BoxRect {
  const { boxes, geometry, size } = scene;
  const ratio = size.pixelRatio;
  const left = boxes.left[box] as number;
  const right = left + (boxes.width[box] as number);
  const x = Math.round(left * ratio) / ratio;
  const edge = Math.round(right * ratio) / ratio;
  const gap = right - left < MIN_DECORATED_WIDTH ? 0 : Math.max(1, Math.round(ratio * 0.75)) / ratio;
  const y = Math.round(rowTop(geometry, depthOfBox(boxes, box)) * ratio) / ratio;
  return { x, y, width: Math.max(1 / ratio, edge - x - gap) };
}

/** Returns the depth of a box, by binary search in the starts of rows. */
function depthOfBox(boxes: BoxList, box: number): number {
  const { rowStart } = boxes;
  let low = 0;
  let high = rowStart.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >>> 1;
    if ((rowStart[middle] as number) <= box) low = middle;
    else high = middle - 1;
  }
  return boxes.firstDepth + low;
}

function paintHiddenBorders(context: CanvasRenderingContext2D, scene: FlameScene): void {
  const { boxes, colors } = scene;
  context.strokeStyle = cssColor(colors.hover);
  context.lineWidth = 1;
  context.setLineDash([3, 3]);
  for (let box = 0; box < boxes.count; box++) {
    if (boxes.kind[box] !== BoxKind.hidden || (boxes.width[box] as number) < MIN_DECORATED_WIDTH) continue;
    const { x, y, width } = boxRect(scene, box);
    context.strokeRect(x + 0.5, y + 0.5, Math.max(0, width - 1), ROW_HEIGHT - ROW_GAP - 1);
  }
  context.setLineDash([]);
}

function paintLabels(context: CanvasRenderingContext2D, scene: FlameScene, labels: LabelCache): void {
  const { boxes, graph, colors } = scene;
  prepareLabelContext(context);
  const normal = cssColor(colors.label);
  const dimmed = cssColor(colors.dimmedLabel);
  const hidden = cssColor(colors.hiddenLabel);
  let style = "";
  for (let box = 0; box < boxes.count; box++) {
    const kind = boxes.kind[box];
    if ((boxes.width[box] as number) < MIN_LABEL_WIDTH || kind === BoxKind.merged) continue;
    const { x, y, width } = boxRect(scene, box);
    const left = Math.max(0, x) + LABEL_PADDING;
    const right = Math.min(scene.size.width, x + width) - LABEL_PADDING;
    if (right <= left) continue;
    const node = boxes.node[box] as number;
    const label =
      kind === BoxKind.hidden
        ? fitText(scene.hiddenLabel(node), right - left, labels)
        : nodeLabel(graph, node, right - left, labels);
    if (label === "") continue;
    const wanted = kind === BoxKind.hidden ? hidden : isDimmed(scene, node) ? dimmed : normal;
    if (wanted !== style) {
      style = wanted;
      context.fillStyle = style;
    }
    context.fillText(label, left, y + ROW_HEIGHT / 2);
  }
}

/** Name of the root in labels. */
export const ROOT_LABEL = "all";

function nodeLabel(graph: Graph, node: number, width: number, labels: LabelCache): string {
  if (node === 0) return fitText(ROOT_LABEL, width, labels);
  const name = graph.name[node] as number;
  return labels.labelOf(name, graph.names[name] as string, width);
}

function fitText(text: string, width: number, labels: LabelCache): string {
  if (labels.measureWidth(text) <= width) return text;
  const short = text.slice(0, text.lastIndexOf(" "));
  return short !== "" && labels.measureWidth(short) <= width ? short : "";
}

/** Paints rings on a canvas above the boxes, so that hovering does not draw the graph. */
export function paintMarks(canvas: HTMLCanvasElement, scene: FlameScene, marks: FlameMarks): void {
  const context = beginDrawing(canvas, scene.size);
  if (context === null) return;
  const { boxes, graph, colors } = scene;
  if (marks.hoveredName >= 0) {
    context.strokeStyle = cssColor(colors.hover);
    context.lineWidth = 1;
    for (let box = 0; box < boxes.count; box++) {
      const node = boxes.node[box] as number;
      if (node === 0 || boxes.kind[box] !== BoxKind.frame || graph.name[node] !== marks.hoveredName) continue;
      strokeBox(context, scene, box, 0.5);
    }
  }
  if (marks.hoveredBox >= 0 && marks.hoveredBox < boxes.count) {
    context.strokeStyle = cssColor(colors.selection);
    context.lineWidth = 1.5;
    strokeBox(context, scene, marks.hoveredBox, 0.75);
  }
  if (marks.selectedNode >= 0) paintSelection(context, scene, marks);
}

function paintSelection(context: CanvasRenderingContext2D, scene: FlameScene, marks: FlameMarks): void {
  const { boxes, graph, colors } = scene;
  const { first, end } = boxes.rowOf(graph.depth[marks.selectedNode] as number);
  for (let box = first; box < end; box++) {
    if (boxes.node[box] !== marks.selectedNode || boxes.kind[box] !== BoxKind.frame) continue;
    context.strokeStyle = cssColor(colors.selection);
    context.lineWidth = 2;
    strokeBox(context, scene, box, 1);
    if (!marks.hasFocus) return;
    context.strokeStyle = cssColor(colors.focusRing);
    context.lineWidth = 2;
    strokeBox(context, scene, box, -1);
    return;
  }
}

function strokeBox(context: CanvasRenderingContext2D, scene: FlameScene, box: number, inset: number): void {
  const { x, y, width } = boxRect(scene, box);
  // A ring around a box that reaches beyond the view stays visible at the view's edge.
  const left = Math.max(x, 0) + inset;
  const right = Math.min(x + width, scene.size.width) - inset;
  context.strokeRect(left, y + inset, Math.max(0.5, right - left), ROW_HEIGHT - ROW_GAP - 2 * inset);
}
