// Boxes of a call tree that a viewport shows. Costs are proportional to pixels, not to nodes.

import type { Graph } from "./graph";

/** Boxes narrower than this many pixels are drawn as parts of a merged box. */
export const MIN_BOX_PIXELS = 1;

/** Columns of the layout that do not depend on the viewport. */
export interface LayoutColumns {
  /** Left edge of each node in units of value. It never decreases in preorder. */
  readonly start: Float64Array;
  /** Depth of the deepest node of each subtree. */
  readonly deepest: Uint16Array;
}

/** Computes the columns once a graph. Costs O(nodes). */
export function prepareLayout(graph: Graph): LayoutColumns {
  const { nodeCount, parent, total, depth } = graph;
  const start = new Float64Array(nodeCount);
  const deepest = depth.slice();
  // Left edge of the next callee of each node.
  const next = new Float64Array(nodeCount);
  for (let node = 1; node < nodeCount; node++) {
    const caller = parent[node] as number;
    const left = next[caller] as number;
    start[node] = left;
    next[node] = left;
    next[caller] = left + Math.max(0, total[node] as number);
  }
  for (let node = nodeCount - 1; node > 0; node--) {
    const caller = parent[node] as number;
    if ((deepest[node] as number) > (deepest[caller] as number)) deepest[caller] = deepest[node] as number;
  }
  return { start, deepest };
}

/** Part of a graph that is visible: a range of values across, a range of depths along. */
export interface GraphViewport {
  /** Range in units of value, `from` < `to`. */
  readonly from: number;
  readonly to: number;
  /** Pixels that the range covers. */
  readonly widthPixels: number;
  /** First and last visible depth, both included. */
  readonly firstDepth: number;
  readonly lastDepth: number;
}

/** Meaning of a box. */
export const BoxKind = {
  /** Frame of one node. */
  frame: 0,
  /** Callees that are too narrow to draw; the node is the first. */
  merged: 1,
  /** Callees that the server left out; the node is their caller. */
  hidden: 2,
} as const;

/** Boxes of a viewport in columns, row by row, each row from left to right. One list serves many layouts. */
export class BoxList {
  count = 0;
  firstDepth = 0;
  node = new Int32Array(1024);
  kind = new Uint8Array(1024);
  left = new Float32Array(1024);
  width = new Float32Array(1024);
  /** Index of the first box of each row, and the number of boxes at the end. */
  rowStart: number[] = [];

  clear(firstDepth: number): void {
    this.count = 0;
    this.firstDepth = firstDepth;
    this.rowStart = [];
  }

  push(node: number, kind: number, left: number, width: number): void {
    if (this.count === this.node.length) this.grow();
    this.node[this.count] = node;
    this.kind[this.count] = kind;
    this.left[this.count] = left;
    this.width[this.count] = width;
    this.count++;
  }

  /** Returns the range of boxes of a depth. It is empty for a depth that is not visible. */
  rowOf(depth: number): { readonly first: number; readonly end: number } {
    const row = depth - this.firstDepth;
    const first = this.rowStart[row];
    const end = this.rowStart[row + 1];
    return first === undefined || end === undefined ? { first: 0, end: 0 } : { first, end };
  }

  /** Deepest row with a box. */
  get lastDepth(): number {
    let row = this.rowStart.length - 2;
    while (row > 0 && this.rowStart[row] === this.count) row--;
    return this.firstDepth + Math.max(0, row);
  }

  private grow(): void {
    const capacity = this.node.length * 2;
    const grown = new BoxList();
    grown.node = new Int32Array(capacity);
    grown.node.set(this.node);
    this.node = grown.node;
    const kind = new Uint8Array(capacity);
    kind.set(this.kind);
    this.kind = kind;
    const left = new Float32Array(capacity);
    left.set(this.left);
    this.left = left;
    const width = new Float32Array(capacity);
    width.set(this.width);
    this.width = width;
  }
}

/** Fills the list with the boxes that the viewport shows. */
export function layOutBoxes(
  graph: Graph,
  columns: LayoutColumns,
  viewport: GraphViewport,
  boxes: BoxList,
): void {
  boxes.clear(viewport.firstDepth);
  const pass = new LayoutPass(graph, columns, viewport, boxes);
  let callers: number[] = [];
  if (viewport.firstDepth === 0) boxes.rowStart.push(0);
  if (pass.placeFrame(0, viewport.firstDepth === 0)) callers.push(0);
  for (let depth = 1; depth <= viewport.lastDepth && callers.length > 0; depth++) {
    const isVisible = depth >= viewport.firstDepth;
    if (isVisible) boxes.rowStart.push(boxes.count);
    const next: number[] = [];
    for (const caller of callers) pass.placeCallees(caller, isVisible, next);
    callers = next;
  }
  boxes.rowStart.push(boxes.count);
}

/** One pass over the visible nodes. */
class LayoutPass {
  private readonly scale: number;

  constructor(
    private readonly graph: Graph,
    private readonly columns: LayoutColumns,
    private readonly viewport: GraphViewport,
    private readonly boxes: BoxList,
  ) {
    this.scale = viewport.widthPixels / (viewport.to - viewport.from);
  }

  /** Places one node. Returns whether it is wide enough to have visible callees. */
  placeFrame(node: number, isVisible: boolean): boolean {
    const start = this.columns.start[node] as number;
    const total = this.graph.total[node] as number;
    if (isVisible) this.pushClipped(node, BoxKind.frame, start, start + total);
    return total * this.scale >= MIN_BOX_PIXELS;
  }

  /** Places the callees of a node: wide ones each, the rest as one box, then the weight that the server left out. */
  placeCallees(caller: number, isVisible: boolean, next: number[]): void {
    const { graph, columns, viewport } = this;
    const end = graph.end[caller] as number;
    const truncated = graph.truncated[caller] as number;
    const calleesEnd = this.endOfCallees(caller, truncated);
    let callee = this.firstVisibleCallee(caller);
    while (callee < end) {
      const start = columns.start[callee] as number;
      if (start >= viewport.to) return;
      if ((graph.total[callee] as number) * this.scale < MIN_BOX_PIXELS) {
        // Siblings are sorted: all further ones are as narrow.
        if (isVisible) this.pushMerged(callee, start, calleesEnd);
        break;
      }
      if (isVisible) this.placeFrame(callee, true);
      next.push(callee);
      callee = graph.end[callee] as number;
    }
    if (!isVisible || truncated * this.scale < MIN_BOX_PIXELS) return;
    this.pushClipped(caller, BoxKind.hidden, calleesEnd, calleesEnd + truncated);
  }

  private endOfCallees(caller: number, truncated: number): number {
    const { graph, columns } = this;
    return (
      (columns.start[caller] as number) +
      (graph.total[caller] as number) -
      (graph.self[caller] as number) -
      truncated
    );
  }

  /** Finds the first callee that reaches into the viewport, by binary search in preorder: left edges are sorted. */
  private firstVisibleCallee(caller: number): number {
    const { graph, columns, viewport } = this;
    if ((columns.start[caller] as number) >= viewport.from) return caller + 1;
    let low = caller + 1;
    let high = graph.end[caller] as number;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((columns.start[middle] as number) <= viewport.from) low = middle + 1;
      else high = middle;
    }
    let node = low - 1;
    if (node <= caller) return caller + 1;
    while (graph.parent[node] !== caller) node = graph.parent[node] as number;
    return node;
  }

  private pushMerged(node: number, start: number, end: number): void {
    const { boxes } = this;
    const left = (start - this.viewport.from) * this.scale;
    const right = (end - this.viewport.from) * this.scale;
    const last = boxes.count - 1;
    const rowFirst = boxes.rowStart[boxes.rowStart.length - 1] as number;
    if (last >= rowFirst && boxes.kind[last] === BoxKind.merged) {
      const lastRight = (boxes.left[last] as number) + (boxes.width[last] as number);
      if (left - lastRight < MIN_BOX_PIXELS) {
        boxes.width[last] = Math.min(right, this.viewport.widthPixels + 1) - (boxes.left[last] as number);
        return;
      }
    }
    this.pushClipped(node, BoxKind.merged, start, end);
  }

  private pushClipped(node: number, kind: number, start: number, end: number): void {
    const { viewport, scale } = this;
    // One pixel beyond the edges keeps the border of a clipped box out of sight.
    const left = Math.max(-1, (start - viewport.from) * scale);
    const right = Math.min(viewport.widthPixels + 1, (end - viewport.from) * scale);
    if (right > left) this.boxes.push(node, kind, left, right - left);
  }
}

/** Returns the index of the box at a pixel, or -1. Boxes of less than two pixels are hit within one pixel. */
export function findBoxAt(boxes: BoxList, depth: number, x: number): number {
  const { first, end } = boxes.rowOf(depth);
  let low = first;
  let high = end;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((boxes.left[middle] as number) <= x) low = middle + 1;
    else high = middle;
  }
  const box = low - 1;
  if (box < first) return -1;
  const right = (boxes.left[box] as number) + Math.max(MIN_BOX_PIXELS, boxes.width[box] as number);
  return x < right ? box : -1;
}

/** Returns the range of values of a node. */
export function rangeOfNode(
  graph: Graph,
  columns: LayoutColumns,
  node: number,
): { from: number; to: number } {
  const from = columns.start[node] as number;
  return { from, to: from + (graph.total[node] as number) };
}
