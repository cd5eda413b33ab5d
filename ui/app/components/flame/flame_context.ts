// Handlers of a mounted flame graph: what pointer, keyboard and path bar do with it.

import type { Signal } from "@preact/signals";
import type { DepthRange, GraphDirection } from "../../canvas/geometry";
import type { ZoomRange } from "../../canvas/zoom_range";
import type { Graph } from "../../graph/graph";
import { BoxKind } from "../../graph/layout";
import { findPath, nameOfNode, pathOfNode } from "../../graph/path";
import { openFrameMenu } from "../frame_menu";
import { hoveredName } from "../linked_hover";
import { runCommand } from "./flame_commands";
import { commandOfKey } from "./flame_keys";
import { followPointer } from "./flame_pointer";
import type { HoverTarget } from "./flame_tooltip";
import { type BoxHit, type FlameElements, FlameView } from "./flame_view";
import { announceNode } from "./node_facts";
import { type FrameSelection, type FrameZoom, isSamePath, isSameZoom, zoomOf } from "./selection";
import type { ZoomHistory } from "./zoom_history";

const reducedMotion = globalThis.matchMedia?.("(prefers-reduced-motion: reduce)");

/** Parts of one mounted graph that handlers share. They change with each rendering. */
export interface FlameContext {
  readonly graph: Graph;
  readonly direction: GraphDirection;
  readonly selection: FrameSelection;
  readonly zoomedNode: number;
  readonly selectedNode: number;
  readonly matches: Uint8Array | undefined;
  readonly flameView: FlameView;
  readonly announcement: Signal<string>;
  readonly hover: Signal<HoverTarget | undefined>;
  openHidden(node: number): void;
  readonly zoomHistory: ZoomHistory;
  openMenuAt(node: number, x: number, y: number): void;
}

/** Part of a graph that is visible: the range across, and the rows. */
export interface VisiblePart {
  readonly range: Signal<ZoomRange>;
  readonly rows: Signal<DepthRange>;
}

/** Creates the view of a graph and follows size and pointer. Returns a function that ends it. */
export function mountView(
  elements: FlameElements,
  viewRef: { current: FlameView | undefined },
  contextRef: { current: FlameContext | undefined },
  visible: VisiblePart,
): () => void {
  const flameView = new FlameView(elements);
  viewRef.current = flameView;
  flameView.onRangeChange = (changed) => {
    visible.range.value = changed;
    // Another frame may be under the pointer now; its next movement tells.
    clearHover(contextRef.current);
  };
  flameView.onRowsChange = (rows) => {
    visible.rows.value = rows;
  };
  const { scroller } = elements;
  const resize = () => flameView.setSize(scroller.clientWidth, scroller.clientHeight);
  const observer = new ResizeObserver(resize);
  observer.observe(scroller);
  resize();
  // The pixel ratio changes with the browser's zoom or the screen.
  const redraw = () => flameView.requestDraw();
  addEventListener("resize", redraw);
  const stopPointer = followPointer(scroller, flameView, {
    onHover: (hit, x, y) => hoverBox(contextRef.current, hit, x, y),
    onClick: (hit) => clickBox(contextRef.current, hit),
    onMenu: (hit, x, y) => contextRef.current?.openMenuAt(hit.node, x, y),
  });
  return () => {
    observer.disconnect();
    removeEventListener("resize", redraw);
    stopPointer();
    flameView.dispose();
    viewRef.current = undefined;
    if (contextRef.current?.hover.peek() !== undefined) hoveredName.value = undefined;
  };
}

/** Forgets the hovered frame. */
export function clearHover(context: FlameContext | undefined): void {
  if (context !== undefined && context.hover.peek() !== undefined) hoverBox(context, undefined, 0, 0);
}

function hoverBox(context: FlameContext | undefined, hit: BoxHit | undefined, x: number, y: number): void {
  if (context === undefined) return;
  const { flameView, graph, hover } = context;
  hover.value = hit === undefined ? undefined : { hit, x, y };
  flameView.setMarks({ hoveredBox: hit?.box ?? -1 });
  const isFrame = hit !== undefined && hit.kind === BoxKind.frame && hit.node > 0;
  hoveredName.value = isFrame ? nameOfNode(graph, hit.node) : undefined;
}

function clickBox(context: FlameContext | undefined, hit: BoxHit): void {
  if (context === undefined) return;
  const { flameView, graph, selection, openHidden, announcement } = context;
  if (hit.kind === BoxKind.merged) {
    zoomToRange(context, flameView.rangeOfBox(hit.box));
    return;
  }
  if (hit.kind === BoxKind.hidden) {
    openHidden(hit.node);
    return;
  }
  announcement.value = announceNode(graph, hit.node);
  const path = pathOfNode(graph, hit.node);
  zoomToPath(context, path);
  if (!isSamePath(selection.selectedPath.peek(), path)) selection.select(path);
}

/** Zooms to a path and selects its frame. */
export function zoomToPath(context: FlameContext | undefined, path: readonly string[]): void {
  if (context === undefined) return;
  const { graph, flameView } = context;
  if (isZoomed(context, { path, range: undefined }))
    flameView.zoomToNode(findPath(graph, path).node, hasMotion());
  else changeZoom(context, { path, range: undefined }, path);
}

/** Zooms to merged frames. The zoomed path and the selection stay. */
export function zoomToRange(context: FlameContext | undefined, range: ZoomRange): void {
  if (context === undefined) return;
  const { selection, flameView } = context;
  const zoom = { path: selection.zoomPath.peek(), range };
  if (isZoomed(context, zoom)) flameView.zoomToRange(range, hasMotion());
  else changeZoom(context, zoom, selection.selectedPath.peek());
}

/** Returns whether the link has a zoom. A view that was moved returns to it, although the link stays the same. */
function isZoomed({ selection }: FlameContext, zoom: FrameZoom): boolean {
  return isSameZoom(zoomOf(selection), zoom);
}

function changeZoom(context: FlameContext, zoom: FrameZoom, selected: readonly string[]): void {
  context.zoomHistory.push(zoomOf(context.selection));
  context.selection.zoomTo(zoom, selected);
}

export function hasMotion(): boolean {
  return reducedMotion?.matches !== true;
}

export function showFocus(context: FlameContext | undefined, element: HTMLElement | null): void {
  if (context === undefined || element === null) return;
  const hasFocus = element.matches(":focus-visible");
  context.flameView.setMarks({ hasFocus, selectedNode: context.selectedNode });
  if (hasFocus) context.announcement.value = announceNode(context.graph, context.selectedNode);
}

export function handleKey(event: KeyboardEvent, context: FlameContext | undefined): void {
  if (context === undefined) return;
  const command = commandOfKey(event, context.direction);
  if (command === undefined) return;
  event.preventDefault();
  event.stopPropagation();
  context.flameView.setMarks({ hasFocus: true });
  runCommand(command, context);
}

/** Jumps to a match of the search. */
export function handleJump(context: FlameContext | undefined, step: 1 | -1): void {
  if (context !== undefined) runCommand({ kind: "match", step }, context);
}

export function openMenu(
  { graph, selection }: Pick<FlameContext, "graph" | "selection">,
  node: number,
  x: number,
  y: number,
  returnFocus: HTMLElement | null,
): void {
  const target = {
    x,
    y,
    name: node === 0 ? "" : nameOfNode(graph, node),
    path: pathOfNode(graph, node),
    graph,
    selection,
  };
  openFrameMenu(returnFocus === null ? target : { ...target, returnFocus });
}
