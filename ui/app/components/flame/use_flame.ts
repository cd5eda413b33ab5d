// Hooks of a flame graph: they follow the link, the selection and the graph.

import type { Signal } from "@preact/signals";
import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { isAbort } from "../../api/errors";
import { isSameRange, type ZoomRange } from "../../canvas/zoom_range";
import type { Graph } from "../../graph/graph";
import { findPath, type PathMatch } from "../../graph/path";
import { notify } from "../../url/notices";
import { hoveredName } from "../linked_hover";
import type { GraphExpansion, SubtreeLoader } from "./expansion";
import { hasMotion } from "./flame_context";
import type { FlameView } from "./flame_view";
import { subtreeLoaderOf } from "./graph_loader";
import { announceNode } from "./node_facts";

/** Returns a function that opens truncated nodes, until the component ends. */
export function useHiddenCallees(
  loadSubtree: SubtreeLoader | null | undefined,
  expansion: GraphExpansion,
): (node: number) => void {
  const abort = useMemo(() => new AbortController(), [expansion]);
  useEffect(() => () => abort.abort(), [abort]);
  const load = loadSubtree === undefined ? subtreeLoaderOf(expansion.base) : loadSubtree;
  return (node) => {
    if (load === null) return;
    expansion.openNode(node, load, abort.signal).then((hasAdded) => {
      if (!hasAdded) notify("The server found nothing more below this frame.");
    }, notifyFailure);
  };
}

/** Opens truncated nodes until a path is found. Nothing follows if it does not exist. */
export function useOpenPath(expansion: GraphExpansion, path: readonly string[]): void {
  const key = JSON.stringify(path);
  useEffect(() => {
    const load = subtreeLoaderOf(expansion.base);
    if (load === null) return;
    const abort = new AbortController();
    expansion.openPath(path, load, abort.signal).catch(notifyFailure);
    return () => abort.abort();
  }, [expansion, key]);
}

function notifyFailure(error: unknown): void {
  // Another view of the graph may have begun the request, and aborted it when it closed.
  if (!isAbort(error)) notify(`Cannot load hidden frames: ${messageOf(error)}`, "error");
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Zoomed path of a graph, and what it needs to be shown. */
export interface ZoomParams {
  readonly viewRef: { readonly current: FlameView | undefined };
  /** Graph as it was loaded, and with the callees that were added since. */
  readonly baseGraph: Graph;
  readonly graph: Graph;
  readonly zoomPath: readonly string[];
  /** Range that is shown in place of the zoomed frame. */
  readonly zoomRange: ZoomRange | undefined;
  readonly openHidden: (node: number) => void;
  readonly expansion: GraphExpansion;
}

/** Follows the zoomed path: moves the view, opens truncated nodes on the way, and says if the frame is gone. */
export function useZoom(params: ZoomParams): void {
  const { viewRef, baseGraph, graph, zoomPath, zoomRange } = params;
  const last = useRef<{ base: Graph; place: string; range: ZoomRange } | undefined>(undefined);
  const match = findPath(graph, zoomPath);
  const place = JSON.stringify([zoomPath.slice(0, match.matched), zoomRange]);
  useLayoutEffect(() => {
    const flameView = viewRef.current as FlameView;
    const before = last.current;
    // A refresh leaves a view alone that the user moved away from the zoomed frame.
    const isMoved =
      before !== undefined && before.place === place && !isSameRange(flameView.range, before.range);
    const isAnimated = before !== undefined && before.base === baseGraph && hasMotion();
    if (!isMoved && zoomRange !== undefined) flameView.zoomToRange(zoomRange, isAnimated);
    else if (!isMoved) flameView.zoomToNode(match.node, isAnimated);
    last.current = { base: baseGraph, place, range: zoomRange ?? flameView.rangeOf(match.node) };
  }, [baseGraph, place]);
  useOpenZoom(params, match);
}

/** Opens truncated nodes until the zoomed frame is found, once for each graph. */
function useOpenZoom({ graph, zoomPath, openHidden, expansion }: ZoomParams, match: PathMatch): void {
  const zoomKey = JSON.stringify(zoomPath);
  const isComplete = match.matched === zoomPath.length;
  const isTruncated = (graph.truncated[match.node] as number) > 0;
  const isLoading = expansion.loadingCount.value > 0;
  useEffect(() => expansion.forgetFailures(), [expansion, zoomKey]);
  useEffect(() => {
    if (isLoading || zoomPath.length === 0) return;
    const outcome = expansion.outcomeOf(zoomPath.slice(0, match.matched));
    // The server may send the callees of a node in several parts.
    const mayHideMore = outcome === undefined || (outcome === "added" && !isComplete);
    if (isTruncated && mayHideMore) openHidden(match.node);
    else if (!isComplete && outcome !== "failed")
      notify("The zoomed frame does not exist in this graph. Its nearest caller is shown.", "warning");
  }, [graph, zoomKey, isLoading]);
}

/** Frame of which screen readers hear. */
export interface AnnouncedFrame {
  readonly announcement: Signal<string>;
  readonly graph: Graph;
  /** Selected node, or the zoomed one without a selection. */
  readonly selectedNode: number;
  /** Whether a frame is selected that the graph has. */
  readonly isSelected: boolean;
  /** Frames, direction and transforms of the graph. */
  readonly framesKey: string;
  /** Element that takes the keys of the graph. */
  readonly surface: { readonly current: HTMLElement | null };
}

/**
 * Announces the selection of another graph, if a frame was announced before. A refresh of the same frames is announced
 * only in a graph with the focus.
 */
export function useAnnouncement(frame: AnnouncedFrame): void {
  const { announcement, graph, selectedNode, isSelected, framesKey, surface } = frame;
  const announced = useRef({ graph, framesKey });
  useEffect(() => {
    const before = announced.current;
    announced.current = { graph, framesKey };
    if (before.graph === graph || announcement.peek() === "") return;
    const hasFocus = surface.current !== null && surface.current === document.activeElement;
    if (before.framesKey === framesKey && !hasFocus) return;
    const text = announceNode(graph, selectedNode);
    announcement.value = isSelected ? text : `no frame is selected; ${text}`;
  }, [graph]);
}

/** Follows selection and hover of all views. The marks are drawn in the same frame as the graph. */
export function useMarks(
  viewRef: { readonly current: FlameView | undefined },
  graph: Graph,
  selectedNode: number,
  selectedPath: readonly string[],
): void {
  const linkedName = hoveredName.value;
  useLayoutEffect(() => {
    // Entry 0 is that of the root. The graph of callers in a sandwich has its function as the last entry.
    const index = linkedName === undefined ? -1 : graph.names.lastIndexOf(linkedName);
    viewRef.current?.setMarks({ hoveredName: index });
  }, [graph, linkedName]);
  useLayoutEffect(() => {
    viewRef.current?.setMarks({ selectedNode: selectedPath.length === 0 ? -1 : selectedNode });
  }, [graph, selectedNode, selectedPath]);
}
