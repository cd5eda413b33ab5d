// Drawn part of a flame graph: keeps the visible range, draws frames on demand, finds boxes under the pointer.

import { FlamePainter, type FlameScene, paintMarks } from "../../canvas/flame_painter";
import {
  contentHeightOf,
  type DepthRange,
  depthAt,
  type GraphDirection,
  isRowVisible,
  type RowGeometry,
  rowTop,
  scrollToDepth,
  visibleDepths,
} from "../../canvas/geometry";
import { LabelCache } from "../../canvas/labels";
import { blendRanges, clampRange, isSameRange, WHOLE_RANGE, type ZoomRange } from "../../canvas/zoom_range";
import { type ColorScheme, frameColors } from "../../graph/colors";
import type { Graph } from "../../graph/graph";
import { BoxKind, BoxList, findBoxAt, layOutBoxes, rangeOfNode } from "../../graph/layout";
import { hiddenShare } from "./node_facts";
import { type PreparedGraph, prepareGraph } from "./prepared_graph";

/** Elements that the view draws on. */
export interface FlameElements {
  readonly scroller: HTMLElement;
  readonly spacer: HTMLElement;
  readonly base: HTMLCanvasElement;
  readonly marks: HTMLCanvasElement;
}

/** Look of the graph. */
export interface FlameAppearance {
  readonly direction: GraphDirection;
  readonly isDark: boolean;
  readonly scheme: ColorScheme;
  readonly matches: Uint8Array | undefined;
}

/** Box at a point of the view. */
export interface BoxHit {
  readonly box: number;
  readonly node: number;
  readonly kind: number;
}

const ANIMATION_MS = 120;
/** Share of the view's height at which a zoomed frame is placed. */
const ZOOM_ROW_SHARE = 0.2;
/** A revealed node is at least so wide; otherwise the view zooms until it is. */
const MIN_REVEALED_PIXELS = 3;
const REVEAL_FACTOR = 4;

interface Animation {
  readonly startedAt: number;
  readonly range: ZoomRange;
  readonly target: ZoomRange;
  readonly scrollTop: number;
  readonly targetScroll: number;
}

/** View of one graph on two canvases: boxes below, marks above. */
export class FlameView {
  range: ZoomRange = WHOLE_RANGE;
  onRangeChange: (range: ZoomRange) => void = () => {};
  onRowsChange: (rows: DepthRange) => void = () => {};
  private readonly elements: FlameElements;
  private readonly painter = new FlamePainter();
  private readonly boxes = new BoxList();
  private labels: LabelCache | undefined;
  private prepared: PreparedGraph | undefined;
  private appearance: FlameAppearance = {
    direction: "icicle",
    isDark: false,
    scheme: "package",
    matches: undefined,
  };
  private viewSize = { width: 0, height: 0 };
  private scrollTop = 0;
  private rows: DepthRange = { first: 0, last: 0 };
  private scene: FlameScene | undefined;
  private markState = { hoveredBox: -1, hoveredName: -1, selectedNode: -1, hasFocus: false };
  private animation: Animation | undefined;
  private frameRequest = 0;
  private needsBoxes = false;

  constructor(elements: FlameElements) {
    this.elements = elements;
  }

  get size(): { readonly width: number; readonly height: number } {
    return this.viewSize;
  }

  /** Shows a graph. The range stays, as a share of the whole. */
  setGraph(graph: Graph): void {
    if (this.prepared?.graph === graph) return;
    const before = this.prepared;
    this.prepared = prepareGraph(graph);
    if (before?.graph.names !== graph.names) this.labels?.clear();
    this.markState = { ...this.markState, hoveredBox: -1, hoveredName: -1 };
    this.updateContentHeight(before === undefined);
    this.requestDraw();
  }

  setAppearance(appearance: FlameAppearance): void {
    const isTurned = appearance.direction !== this.appearance.direction;
    this.appearance = appearance;
    if (isTurned) this.updateContentHeight(true);
    this.requestDraw();
  }

  setSize(width: number, height: number): void {
    if (width === this.viewSize.width && height === this.viewSize.height) return;
    const before = this.viewSize.height;
    this.viewSize = { width, height };
    this.updateContentHeight(before === 0, before);
    // A resized canvas is empty until it is drawn, so this does not wait.
    this.draw();
  }

  setScrollTop(scrollTop: number): void {
    if (scrollTop === this.scrollTop) return;
    this.scrollTop = scrollTop;
    this.requestDraw();
  }

  scrollBy(offset: number): void {
    this.elements.scroller.scrollTop += offset;
  }

  /** Changes the range at once, as free zooming does. */
  setRange(range: ZoomRange): void {
    this.animation = undefined;
    this.range = clampRange(range);
    this.onRangeChange(this.range);
    this.requestDraw();
  }

  /** Draws what was requested without waiting for a frame. */
  drawNow(): void {
    cancelAnimationFrame(this.frameRequest);
    this.frameRequest = 0;
    this.draw();
  }

  /** Number of boxes of the last drawing. */
  get boxCount(): number {
    return this.boxes.count;
  }

  /** Returns the range of a node. */
  rangeOf(node: number): ZoomRange {
    if (this.prepared === undefined) return WHOLE_RANGE;
    const { graph, columns } = this.prepared;
    const whole = graph.total[0] as number;
    if (node === 0 || !(whole > 0)) return WHOLE_RANGE;
    const { from, to } = rangeOfNode(graph, columns, node);
    return clampRange({ from: from / whole, to: to / whole });
  }

  /** Zooms to a node and scrolls its row into view. */
  zoomToNode(node: number, isAnimated: boolean): void {
    const depth = this.prepared?.graph.depth[node] ?? 0;
    this.moveTo(this.rangeOf(node), this.scrollForRow(depth), isAnimated);
  }

  zoomToRange(range: ZoomRange, isAnimated: boolean): void {
    this.moveTo(clampRange(range), this.scrollTop, isAnimated);
  }

  /** Scrolls and pans so that a node is visible. The width of the range stays unless the node is tiny. */
  revealNode(node: number): void {
    if (this.prepared === undefined) return;
    const depth = this.prepared.graph.depth[node] as number;
    const target = this.rangeOf(node);
    const isWithin = target.to > this.range.from && target.from < this.range.to;
    const pixels = ((target.to - target.from) / (this.range.to - this.range.from)) * this.viewSize.width;
    const scrollTop = isRowVisible(this.geometry(), depth) ? this.scrollTop : this.scrollForRow(depth);
    if (isWithin && pixels >= MIN_REVEALED_PIXELS) {
      this.moveTo(this.range, scrollTop, false);
      return;
    }
    const width = Math.max(this.range.to - this.range.from, target.to - target.from);
    const enough = pixels >= MIN_REVEALED_PIXELS ? width : (target.to - target.from) * REVEAL_FACTOR;
    const center = (target.from + target.to) / 2;
    this.moveTo(clampRange({ from: center - enough / 2, to: center + enough / 2 }), scrollTop, false);
  }

  setMarks(change: Partial<typeof this.markState>): void {
    this.markState = { ...this.markState, ...change };
    if (this.scene !== undefined && !this.needsBoxes) this.paintMarks();
  }

  /** Finds the box at a point relative to the view. */
  hitTest(x: number, y: number): BoxHit | undefined {
    if (this.scene === undefined) return undefined;
    const box = findBoxAt(this.boxes, depthAt(this.geometry(), y), x);
    if (box < 0) return undefined;
    return { box, node: this.boxes.node[box] as number, kind: this.boxes.kind[box] as number };
  }

  /** Returns the visible rectangle of a node relative to the view, or undefined if it is out of sight. */
  rectOfNode(node: number): { x: number; y: number; width: number } | undefined {
    const graph = this.prepared?.graph;
    if (graph === undefined) return undefined;
    const { first, end } = this.boxes.rowOf(graph.depth[node] as number);
    for (let box = first; box < end; box++) {
      if (this.boxes.node[box] !== node || this.boxes.kind[box] !== BoxKind.frame) continue;
      const y = this.rowTopOf(graph.depth[node] as number);
      return { x: this.boxes.left[box] as number, y, width: this.boxes.width[box] as number };
    }
    return undefined;
  }

  /** Returns the place of the view on the page. */
  pageBounds(): DOMRect {
    return this.elements.scroller.getBoundingClientRect();
  }

  /** Returns the range that a box covers. */
  rangeOfBox(box: number): ZoomRange {
    const width = this.range.to - this.range.from;
    const left = Math.max(0, this.boxes.left[box] as number) / this.viewSize.width;
    const right = Math.min(
      1,
      ((this.boxes.left[box] as number) + (this.boxes.width[box] as number)) / this.viewSize.width,
    );
    return { from: this.range.from + left * width, to: this.range.from + right * width };
  }

  dispose(): void {
    cancelAnimationFrame(this.frameRequest);
  }

  requestDraw(): void {
    this.needsBoxes = true;
    if (this.frameRequest !== 0) return;
    this.frameRequest = requestAnimationFrame((time) => {
      this.frameRequest = 0;
      this.stepAnimation(time);
      this.draw();
      if (this.animation !== undefined) this.requestDraw();
    });
  }

  private moveTo(target: ZoomRange, targetScroll: number, isAnimated: boolean): void {
    const isMoving = !isSameRange(target, this.range) || targetScroll !== this.scrollTop;
    // A motion that has drawn nothing yet may leave this place.
    this.animation = undefined;
    if (!isMoving) return;
    if (isAnimated && this.viewSize.width > 0) {
      const start = { range: this.range, scrollTop: this.scrollTop, startedAt: performance.now() };
      this.animation = { ...start, target, targetScroll };
    } else {
      this.range = target;
      this.applyScroll(targetScroll);
      this.onRangeChange(target);
    }
    this.requestDraw();
  }

  private stepAnimation(time: number): void {
    const { animation } = this;
    if (animation === undefined) return;
    const progress = Math.min(1, Math.max(0, (time - animation.startedAt) / ANIMATION_MS));
    const eased = 1 - (1 - progress) ** 3;
    this.range = blendRanges(animation.range, animation.target, eased);
    this.applyScroll(animation.scrollTop + (animation.targetScroll - animation.scrollTop) * eased);
    if (progress === 1) this.animation = undefined;
    this.onRangeChange(this.range);
  }

  private applyScroll(scrollTop: number): void {
    this.elements.scroller.scrollTop = scrollTop;
    this.scrollTop = this.elements.scroller.scrollTop;
  }

  private geometry(): RowGeometry {
    const maxDepth = this.prepared?.columns.deepest[0] ?? 0;
    const viewHeight = this.viewSize.height;
    const { direction } = this.appearance;
    return {
      direction,
      viewHeight,
      contentHeight: contentHeightOf(maxDepth, viewHeight),
      scrollTop: this.scrollTop,
    };
  }

  private rowTopOf(depth: number): number {
    return rowTop(this.geometry(), depth);
  }

  private scrollForRow(depth: number): number {
    return scrollToDepth(this.geometry(), depth, ZOOM_ROW_SHARE);
  }

  /** A graph that grows upward keeps its distance to the bottom, where its root is. */
  private updateContentHeight(isReset: boolean, heightBefore = this.viewSize.height): void {
    const { spacer, scroller } = this.elements;
    const { contentHeight, viewHeight, direction } = this.geometry();
    const contentBefore = Number.parseFloat(spacer.style.height) || heightBefore;
    const belowView = Math.max(0, contentBefore - this.scrollTop - heightBefore);
    spacer.style.height = `${contentHeight}px`;
    if (direction === "icicle") this.applyScroll(isReset ? 0 : scroller.scrollTop);
    else this.applyScroll(isReset ? contentHeight : contentHeight - viewHeight - belowView);
  }

  private draw(): void {
    const { prepared, viewSize } = this;
    if (prepared === undefined || viewSize.width === 0 || viewSize.height === 0) return;
    const { graph, columns, kinds } = prepared;
    this.needsBoxes = false;
    const geometry = this.geometry();
    const depths = visibleDepths(geometry);
    this.reportRows(depths);
    const whole = Math.max(0, graph.total[0] as number);
    if (whole > 0) {
      const span = { from: this.range.from * whole, to: this.range.to * whole, widthPixels: viewSize.width };
      layOutBoxes(graph, columns, { ...span, firstDepth: depths.first, lastDepth: depths.last }, this.boxes);
    } else this.boxes.clear(0);
    const { isDark, matches, scheme } = this.appearance;
    this.scene = {
      graph,
      boxes: this.boxes,
      geometry,
      size: { ...viewSize, pixelRatio: devicePixelRatio },
      colors: frameColors(isDark),
      kinds,
      slots: prepared.slotsOf(scheme),
      matches: matches !== undefined && matches.length >= graph.names.length ? matches : undefined,
      hiddenLabel: (node) => `+${hiddenShare(graph, node)} hidden`,
    };
    this.painter.paint(this.elements.base, this.scene, this.labelCache());
    this.paintMarks();
  }

  private reportRows(rows: DepthRange): void {
    if (rows.first === this.rows.first && rows.last === this.rows.last) return;
    this.rows = rows;
    this.onRowsChange(rows);
  }

  private labelCache(): LabelCache {
    const context = this.elements.base.getContext("2d") as CanvasRenderingContext2D;
    this.labels ??= new LabelCache(context);
    return this.labels;
  }

  private paintMarks(): void {
    if (this.scene !== undefined) paintMarks(this.elements.marks, this.scene, this.markState);
  }
}
